"""Every delegate of the registry keeps the protocol."""

from __future__ import annotations

import pytest
from support import tinymodel

from delegates import registry
from edged.engines.tflite_runtime import Runtime


@pytest.mark.parametrize("name", registry.names())
def test_a_probe_says_why_it_is_not_available(name: str) -> None:
    """Available, or one line with the reason; never an exception."""
    delegate = registry.create(name)
    assert delegate.name == name
    probe = delegate.probe()
    assert probe.available or (probe.reason and "\n" not in probe.reason)


@pytest.mark.parametrize("name", registry.names())
def test_an_unknown_option_is_refused_by_name(name: str) -> None:
    """A typo in the configuration does not pass in silence."""
    with pytest.raises(ValueError, match="no_such_option"):
        registry.create(name, {"no_such_option": 1})


@pytest.mark.parametrize("name", registry.names())
def test_an_available_delegate_opens(name: str, runtime: Runtime) -> None:
    """What `open` returns is taken by the runtime's Interpreter."""
    delegate = registry.create(name)
    if not delegate.probe().available:
        pytest.skip(f"{name}: {delegate.probe().reason}")
    module = runtime.module()
    module.Interpreter(model_content=tinymodel.dense_model(), **delegate.open(module)).allocate_tensors()


def test_an_unknown_delegate_names_the_known_ones() -> None:
    """The error helps."""
    with pytest.raises(KeyError, match="cpu"):
        registry.create("tpu9000")

"""Every delegate of the registry keeps the protocol."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from support import delegates, require, tinymodel

from delegates import registry
from delegates.base import Delegate, Opening
from edged import probing
from edged.engines import tflite_runtime
from edged.engines.tflite_runtime import Runtime


def options(name: str) -> dict[str, Any]:
    """What a delegate that cannot do without is given: here the test delegate."""
    return {"library": str(delegates.library())} if name in registry.WITH_OPTIONS_ONLY else {}


def created(name: str) -> Delegate:
    return registry.create(name, options(name))


@pytest.fixture(params=registry.names())
def name(request: pytest.FixtureRequest) -> str:
    """Each delegate in turn."""
    return str(request.param)


def test_it_has_what_the_protocol_asks_for(name: str) -> None:
    """A delegate is told by its registry's name, which more may follow, and names runtimes that exist."""
    delegate = created(name)
    assert delegate.name.partition(":")[0] == name
    assert delegate.api in ("interpreter", "compiled_model")
    assert delegate.runtimes
    assert delegate.runtimes <= {runtime.name for runtime in tflite_runtime.RUNTIMES}
    assert isinstance(delegate.isolated, bool)
    assert isinstance(delegate.caches, bool)
    assert delegate.isolated == (name != "cpu")  # code of a vendor never runs in the daemon's process


def test_a_probe_says_why_it_is_not_available(name: str) -> None:
    """Available, or one line with the reason and one with the fix; never an exception."""
    probe = probing.probe(name, options(name))
    assert probe.available or (probe.reason and probe.fix)
    assert not any("\n" in text for text in (probe.reason, probe.fix, probe.library, probe.version, probe.device))


def test_an_unknown_option_is_refused_by_name(name: str) -> None:
    """A typo in the configuration does not pass in silence."""
    with pytest.raises(ValueError, match="no_such_option"):
        registry.create(name, {**options(name), "no_such_option": 1})


def test_an_available_delegate_opens(name: str, runtime: Runtime) -> None:
    """What `open` returns is taken by the class of the runtime that its `api` names."""
    delegate = created(name)
    if runtime.name not in delegate.runtimes:
        pytest.skip(f"{name} is not of {runtime.name}")
    probe = probing.probe(name, options(name))
    if not probe.available:
        pytest.skip(f"{name}: {probe.reason}")
    model = tinymodel.dense_model()
    if delegate.api == "compiled_model":
        module = import_module(f"{runtime.package}.compiled_model")
        assert module.CompiledModel.from_buffer(model, **delegate.open(module, Opening(alone=False)))
        return
    module = runtime.module()
    module.Interpreter(model_content=model, **delegate.open(module)).allocate_tensors()


def test_a_missing_library_raises_what_the_protocol_says(name: str) -> None:
    """OSError or ValueError, with a text: nothing else leaves `open` where the vendor's library is not here."""
    require.any_runtime()
    delegate = created(name)
    if delegate.api != "interpreter" or probing.probe(name, options(name)).available:
        pytest.skip(f"{name} needs no library, or has it")
    with pytest.raises((OSError, ValueError), match=r"\S"):
        delegate.open(tflite_runtime.installed()[0].module())


def test_an_unknown_delegate_names_the_known_ones() -> None:
    """The error helps."""
    with pytest.raises(KeyError, match="cpu"):
        registry.create("tpu9000")

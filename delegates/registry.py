"""Name → delegate, imported on demand. Other packages add theirs through the entry-point group `edged.delegates`.

A target is called with the options of the configuration, a mapping or None, and returns a `delegates.base.Delegate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from delegates.base import Delegate

GROUP = "edged.delegates"
BUILT_IN = {
    "cpu": "delegates.cpu:Cpu",
    "gpu": "delegates.gpu:Gpu",
    "gpu_tflite": "delegates.vendors:GPU_TFLITE",
    "edgetpu": "delegates.edgetpu:Edgetpu",
    "npu_openvino": "delegates.npu_openvino:NpuOpenvino",
    "vx": "delegates.vendors:VX",
    "neutron": "delegates.vendors:NEUTRON",
    "ethos_u": "delegates.vendors:ETHOS_U",
    "qnn": "delegates.vendors:QNN",
    "armnn": "delegates.vendors:ARMNN",
    "neuron": "delegates.vendors:NEURON",
    "external": "delegates.external:External",
}
# What cannot be looked for unless a configuration says what it is.
WITH_OPTIONS_ONLY = frozenset({"external"})


def names() -> tuple[str, ...]:
    """Return every delegate that can be named in a configuration, the built-in ones first."""
    return (*BUILT_IN, *(name for name in _foreign() if name not in BUILT_IN))


def create(name: str, options: Mapping[str, Any] | None = None) -> Delegate:
    """Construct a delegate. Raises KeyError for an unknown name; ValueError for an unknown or wrong option, and when
    the package that brings the delegate cannot be imported."""
    target = BUILT_IN.get(name) or _foreign().get(name)
    if target is None:
        msg = f"unknown delegate {name!r}{_hint(name)}"
        raise KeyError(msg)
    module, _, attribute = target.partition(":")
    try:
        make = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as exc:
        msg = f"{name}: {target} cannot be loaded: {exc}"
        raise ValueError(msg) from exc
    delegate: Delegate = make(options)
    return delegate


def _hint(name: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415  # for a typo only

    known = names()
    close = get_close_matches(name, known, 1)
    return f" (did you mean {close[0]!r}?)" if close else f" (known: {', '.join(known)})"


def _foreign() -> dict[str, str]:
    # Imported here: it reads the metadata of every installed package, and `cpu` never needs it.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return {entry.name: entry.value for entry in entry_points(group=GROUP)}

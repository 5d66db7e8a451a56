"""Name → delegate, imported on demand. Other packages add theirs through the entry-point group `edged.delegates`.

A target is called with the options of the configuration, a mapping or None, and returns a `delegates.base.Delegate`.
What another package brings is told by the name of its entry point, and always lives in a process of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from delegates.base import Delegate

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

log = logging.getLogger(__name__)

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
# What was said in the log, so that it is said once.
_told: set[str] = set()


def names() -> tuple[str, ...]:
    """Return every delegate that can be named in a configuration, the built-in ones first."""
    return (*BUILT_IN, *(name for name in _foreign() if name not in BUILT_IN))


def foreign(name: str) -> bool:
    """Whether another package brings it; nothing of that is imported."""
    return name not in BUILT_IN and name in _foreign()


def create(name: str, options: Mapping[str, Any] | None = None) -> Delegate:
    """Construct a delegate. Raises KeyError for an unknown name; ValueError for an unknown or wrong option.

    One of another package that is broken is constructed all the same, and its `probe` says why it is of no use.
    """
    if name not in BUILT_IN:
        return _of_another(name, options)
    module, _, attribute = BUILT_IN[name].partition(":")
    delegate: Delegate = getattr(import_module(module), attribute)(options)
    return delegate


def _of_another(name: str, options: Mapping[str, Any] | None) -> Delegate:
    from delegates.foreign import made  # noqa: PLC0415  # it needs the metadata of packages, see `_foreign`

    entry = _foreign().get(name)
    if entry is None:
        msg = f"unknown delegate {name!r}{_hint(name)}"
        raise KeyError(msg)
    return made(entry, options)


def _hint(name: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415  # for a typo only

    known = names()
    close = get_close_matches(name, known, 1)
    return f" (did you mean {close[0]!r}?)" if close else f" (known: {', '.join(known)})"


def _foreign() -> dict[str, EntryPoint]:
    # Imported here: it reads the metadata of every installed package, and `cpu` never needs it.
    from importlib.metadata import entry_points  # noqa: PLC0415

    try:
        entries = list(entry_points(group=GROUP))
    except Exception:  # noqa: BLE001  # one package wrote something that Python's own parser stumbles over
        entries = [entry for entry in _one_by_one() if entry.group == GROUP]
    return {entry.name: entry for entry in entries}


def _one_by_one() -> Iterator[EntryPoint]:
    """Yield the entry points of every package whose own can be read."""
    from importlib.metadata import distributions  # noqa: PLC0415  # as above

    for package in distributions():
        try:
            yield from package.entry_points
        except Exception as exc:  # noqa: BLE001  # as above
            told = f"the entry points of a package in {package.locate_file('')} cannot be read: {exc}"
            if told not in _told:
                _told.add(told)
                log.warning("%s", " ".join(told.split()))

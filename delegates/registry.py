"""Name → delegate, imported on demand. Other packages add theirs through the entry-point group `edged.delegates`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from delegates.base import Delegate

GROUP = "edged.delegates"
BUILT_IN = {"cpu": "delegates.cpu:Cpu"}


def names() -> tuple[str, ...]:
    """Return every delegate that can be named in a configuration, the built-in ones first."""
    return (*BUILT_IN, *(name for name in _foreign() if name not in BUILT_IN))


def create(name: str, options: Mapping[str, Any] | None = None) -> Delegate:
    """Construct a delegate. Raises KeyError for an unknown name, ValueError for an unknown option."""
    target = BUILT_IN.get(name) or _foreign().get(name)
    if target is None:
        msg = f"unknown delegate {name!r} (known: {', '.join(names())})"
        raise KeyError(msg)
    module, _, attribute = target.partition(":")
    delegate: Delegate = getattr(import_module(module), attribute)(options)
    return delegate


def _foreign() -> dict[str, str]:
    # Imported here: it reads the metadata of every installed package, and `cpu` never needs it.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return {entry.name: entry.value for entry in entry_points(group=GROUP)}

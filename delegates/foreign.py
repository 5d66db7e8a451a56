"""A delegate that another package brings: its Python may raise anything, and then costs that delegate alone.

Whatever it says of itself, it runs code that is not ours, and so lives in a process of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any, Literal

from delegates.base import BOTH, DEFAULT, Delegate, Opening, Probe


@dataclass(frozen=True)
class Foreign:
    """What the package said of it when it was made. name: of its entry point. broken: why it is of no use, "" if it is.

    delegate: the package's own object, None where it is broken.
    """

    name: str
    runtimes: frozenset[str] = BOTH
    api: Literal["interpreter", "compiled_model"] = "interpreter"
    caches: bool = False
    note: str = ""
    broken: str = ""
    delegate: Delegate | None = None
    isolated: bool = True

    def probe(self) -> Probe:
        """Ask the package; what it raises is the reason."""
        fix = f"mend or remove the package that brings {self.name}"
        if self.delegate is None:
            return Probe(available=False, reason=self.broken, fix=fix)
        try:
            return _plain(self.delegate.probe())
        except KeyboardInterrupt:
            raise
        except BaseException as exc:  # noqa: BLE001  # code of others, which may even raise SystemExit
            return Probe(available=False, reason=f"its probe failed: {_why(exc)}", fix=fix)

    def open(self, module: ModuleType, how: Opening = DEFAULT) -> Mapping[str, Any]:
        """See `Delegate.open`. Raises ValueError when it is broken, and whatever the package does."""
        if self.delegate is None:
            raise ValueError(self.broken)
        return self.delegate.open(module, how)


def made(entry: EntryPoint, options: Mapping[str, Any] | None) -> Foreign:
    """Import and construct it. Raises ValueError when it does not take the options; whatever else makes it broken."""
    try:
        make = entry.load()
    except KeyboardInterrupt:
        raise
    except BaseException as exc:  # noqa: BLE001  # as in `probe`
        return Foreign(entry.name, broken=f"{entry.value} cannot be loaded: {_why(exc)}")
    try:
        return _checked(entry.name, make(options))
    except KeyboardInterrupt:
        raise
    except BaseException as exc:
        if options and isinstance(exc, ValueError):
            raise
        return Foreign(entry.name, broken=f"{entry.value} makes no delegate: {_why(exc)}")


def _checked(name: str, delegate: Any) -> Foreign:
    """Return what it says of itself. Raises TypeError where that is not what a delegate says."""
    if not (callable(delegate.probe) and callable(delegate.open)):
        raise TypeError("probe and open must be functions")
    runtimes, api, note = frozenset(delegate.runtimes), delegate.api, delegate.note
    if not runtimes <= BOTH:
        raise TypeError(f"runtimes must be of {', '.join(sorted(BOTH))}")
    if api not in ("interpreter", "compiled_model"):
        raise TypeError(f"api is {api!r}")
    return Foreign(name, runtimes, api, bool(delegate.caches), str(note), delegate=delegate)


def _plain(found: Probe) -> Probe:
    """Return it with the types that it should have. Raises whatever an object does that is no Probe."""
    told = asdict(found)
    needs = tuple(map(str, told.pop("needs")))
    texts = {key: " ".join(str(value).split()) for key, value in told.items() if key != "available"}
    return Probe(available=bool(found.available), needs=needs, **texts)


def _why(exc: BaseException) -> str:
    said = " ".join(str(exc).split())
    # The words of these say it all.
    return said if said and isinstance(exc, ImportError | ValueError) else f"{type(exc).__name__}: {said}".rstrip(": ")

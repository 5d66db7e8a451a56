"""A delegate in a shared library: what every library-based one shares, and `external`, which takes any library.

Options of `external`: `library`, an absolute path or a bare name for the system's search path; `options`, what the
library is told. A value that holds `{cache}` names the directory that is kept for the compiled form of the model; it
is left out where none is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal

from delegates.base import BOTH, DEFAULT, Opening, Probe
from delegates.sharedlibrary import SharedLibrary

CACHE = "{cache}"
# How the note of a delegate begins that no machine of its makers could run.
UNMEASURED = "documented, not measured"


class LibraryDelegate:
    """A delegate in a library. note: what a person should know of it, "" for nothing.

    libraries: file names, the likeliest first. values: the library's options. install: how to get the library.
    """

    isolated: ClassVar[bool] = True
    api: ClassVar[Literal["interpreter", "compiled_model"]] = "interpreter"
    runtimes: ClassVar[frozenset[str]] = BOTH
    note: str = ""

    def __init__(self, name: str, libraries: Sequence[str], values: Mapping[str, str], install: str = "") -> None:
        self.name, self._libraries, self._values, self._install = name, tuple(libraries), dict(values), install

    @property
    def libraries(self) -> tuple[str, ...]:
        """The names or paths by which the library is looked for, the first that is there taken."""
        return self._libraries

    @property
    def caches(self) -> bool:
        """Whether an option tells the library where to keep the compiled form."""
        return any(CACHE in value for value in self._values.values())

    def probe(self) -> Probe:
        """Open the library and look for its device. Call it in a child process: the library's code runs."""
        try:
            library = SharedLibrary(self._libraries)
        except (OSError, ValueError) as exc:
            return Probe(available=False, reason=_line(exc), fix=self._install)
        found = Probe(available=True, library=library.path, version=library.version)
        try:
            library.require_delegate()
            return self.look(library, found)
        except (OSError, ValueError) as exc:
            return replace(found, available=False, reason=_line(exc), fix=self._install)

    def look(self, library: SharedLibrary, found: Probe) -> Probe:  # noqa: ARG002  # for those that know their device
        """Return `found` with the version and the device, or with why there is none. Raises OSError or ValueError."""
        return found

    def open(self, module: ModuleType, how: Opening = DEFAULT) -> Mapping[str, Any]:
        """Load the library and construct the delegate.

        The runtime is handed only a library that has been looked into: one that it cannot load makes it complain on
        standard error as well. Raises OSError when the library cannot be loaded, ValueError when it is no delegate or
        refuses.
        """
        library = SharedLibrary(self._libraries)
        library.require_delegate()
        try:
            delegate = module.load_delegate(library.path, self.told(how.cache))
        except ValueError as exc:
            # The first line of the runtime's text is its own; the library's words follow, if it has any.
            said = " ".join(str(exc).partition("\n")[2].split())
            raise ValueError(said or "its library refused, and gave no reason") from exc
        return {"experimental_delegates": [delegate]}

    def told(self, cache: Path | None) -> dict[str, str]:
        """Return the options that the library gets."""
        kept = {key: value for key, value in self._values.items() if cache is not None or CACHE not in value}
        return {key: value.replace(CACHE, str(cache)) for key, value in kept.items()}


class External(LibraryDelegate):
    """Any library that keeps TFLite's interface of external delegates."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        given = dict(options or {})
        library = path_or_name("external", given.pop("library", None))
        values = texts("external", given.pop("options", None))
        refuse("external", given, ("library", "options"))
        name = Path(library).name
        super().__init__(
            f"external:{name}", [library], values, f"install the package that brings {name}, or mend its path"
        )


def path_or_name(name: str, library: object) -> str:
    """Return the library as it was given. Raises ValueError where it is neither an absolute path nor a bare name."""
    if not isinstance(library, str) or not library:
        msg = f"{name}: library must name a file, e.g. {{{name}: {{library: libvx_delegate.so}}}}"
        raise ValueError(msg)
    if "/" in library and not library.startswith("/"):
        msg = f"{name}: library {library!r} must be an absolute path, or a bare file name"
        raise ValueError(msg)
    return library


def texts(name: str, options: object) -> dict[str, str]:
    """Return what a library is told: all text, true and false in small letters. Raises ValueError for other kinds."""
    if not isinstance(options, Mapping | None):
        msg = f"{name}: options must be a mapping of names to values"
        raise ValueError(msg)  # noqa: TRY004  # a person's mistake in a configuration, like the others
    return {str(key): _text(name, key, value) for key, value in (options or {}).items()}


def _text(name: str, key: object, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    msg = f"{name}: option {key!r} must be text, a number, true or false"
    raise ValueError(msg)


def refuse(name: str, left: Iterable[object], known: Sequence[str]) -> None:
    """Raise ValueError, by name, for the first option that is not known."""
    for key in sorted(set(map(str, left)) - set(known)):
        msg = f"{name}: unknown option {key!r} (known: {', '.join(known)})"
        raise ValueError(msg)


def _line(exc: BaseException) -> str:
    return " ".join(str(exc).split()) or type(exc).__name__

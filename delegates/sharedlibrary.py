"""A shared library that may hold a delegate: found, opened and looked into, with one line that says why it cannot be.

Opening runs the library's constructors, which can crash or hang: do it in a process that may be lost.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

# The two functions of an external delegate:
# https://github.com/tensorflow/tensorflow/blob/master/tensorflow/lite/delegates/external/README.md
CREATE, DESTROY = "tflite_plugin_create_delegate", "tflite_plugin_destroy_delegate"
# The only symbol of one made for TFLite's newer interface of stable delegates, which no Python runtime can use.
STABLE = "TFL_TheStableDelegate"

_RTLD_DI_LINKMAP = 2
_MISSING = re.compile(r"(?:Error loading shared library )?([^\s:]+): (?:cannot open shared object file: )?No such file")
_VERSION = re.compile(r"\.so\.([0-9][0-9A-Za-z.]*)$")


class SharedLibrary:
    """An open library. path: of its file, links resolved."""

    def __init__(self, names: Sequence[str]) -> None:
        """Open the first of `names` that is there: an absolute path, or a bare name for the system's search path.

        Raises OSError, one line, with the reason of the first: no such file, no library, a library that it needs is
        missing.
        """
        self._handle = _open_first(names)
        self.path = _path(self._handle)

    @property
    def version(self) -> str:
        """What the file name tells: `1.0` of `libedgetpu.so.1.0`; "" where it tells nothing."""
        found = _VERSION.search(Path(self.path).name)
        return found[1] if found else ""

    def has(self, symbol: str) -> bool:
        """Whether it exports this symbol."""
        return hasattr(self._handle, symbol)

    def require_delegate(self) -> None:
        """Raise ValueError, one line, where it is no external delegate."""
        missing = [symbol for symbol in (CREATE, DESTROY) if not self.has(symbol)]
        if not missing:
            return
        other = (
            f", only {STABLE}, the interface of stable delegates, which Python runtimes lack"
            if self.has(STABLE)
            else ""
        )
        msg = f"{self.path} is no TFLite delegate: it has no {missing[0]}{other}"
        raise ValueError(msg)

    def text(self, function: str) -> str:
        """Return what a C function without arguments that returns `const char*` says; "" where it is not there."""
        if not self.has(function):
            return ""
        call = getattr(self._handle, function)
        call.argtypes, call.restype = [], ctypes.c_char_p
        said = call()
        return said.decode(errors="replace") if said else ""


def _open_first(names: Sequence[str]) -> ctypes.CDLL:
    reasons = {}
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as exc:
            reasons[name] = _why(name, str(exc))
    # One that is there and broken tells more than those that are not there.
    broken = [why for name, why in reasons.items() if why != _not_found(name)]
    raise OSError([*broken, *reasons.values()][0])


def _not_found(name: str) -> str:
    return f"{name} is not there" if "/" in name else f"{name} is not found on this system"


def _why(name: str, said: str) -> str:
    """Put the loader's words into a sentence about `name`; they name the file that was missing or bad."""
    missing = _MISSING.search(said)
    if missing and missing[1] != name:
        return f"{name} needs {missing[1]}, which is not found on this system"
    if missing:
        return _not_found(name)
    what = " ".join(said.split()).removeprefix(f"{name}: ")
    return f"{name} cannot be loaded as a library: {what}"


class _LinkMap(ctypes.Structure):
    """The beginning of the loader's own record of a library: link.h, struct link_map."""

    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]


def _path(handle: ctypes.CDLL) -> str:
    """Return the file that the loader opened, by dlinfo(3); the name as it was given where that is not told."""
    found = ctypes.POINTER(_LinkMap)()
    with suppress(AttributeError, OSError):
        dlinfo = ctypes.CDLL(None).dlinfo
        dlinfo.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
        if dlinfo(handle._handle, _RTLD_DI_LINKMAP, ctypes.byref(found)) == 0 and found.contents.name:  # noqa: SLF001
            return str(Path(found.contents.name.decode(errors="surrogateescape")).resolve())
    return str(handle._name)  # noqa: SLF001  # ctypes documents both, as they are

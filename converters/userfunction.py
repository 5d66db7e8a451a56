"""Samples from a function of the user's, `module:function`: whatever goes wrong in it is told with its file and line.

It runs in the child process, with the caller's working directory in front of `sys.path`. What it prints goes where the
child's output goes, and how long it may take is the child's limit.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from edged.errors import BadDataError, EdgedError

_OURS = Path(__file__).parent
_LIBRARY = Path(sysconfig.get_path("stdlib"))
_INSTALLED = frozenset({"site-packages", "dist-packages"})


@contextmanager
def blamed(source: str, cwd: Path) -> Iterator[None]:
    """Make whatever the user's code raises a BadDataError of one line that names its file, below `cwd`, and its line.

    Ours pass as they are.
    """
    try:
        yield
    except EdgedError:
        raise
    # A user's own code may raise anything, and may try to end the process: both are mistakes in it, told as one line.
    except (Exception, SystemExit) as exc:
        raise BadDataError(source, f"raised {_told(exc)}", _place(exc, cwd)) from exc


def samples(source: str, cwd: Path) -> Iterator[Any]:
    """Import the function, call it and return an iterator over what it yields.

    Raises BadDataError where there is no such function, or where it returns nothing to iterate over; and whatever the
    user's code raises: see `blamed`.
    """
    made = _function(source, cwd)()
    # The keys of a mapping are no samples; neither are the letters of a text.
    if isinstance(made, Iterable) and not isinstance(made, (Mapping, str, bytes)):
        return iter(made)
    raise BadDataError(source, f"returned {_kind(made)}, not samples", "yield one sample after the other")


def _function(source: str, cwd: Path) -> Callable[[], object]:
    module, _, name = source.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), name)):
        stem = Path(module).name.strip(".").removesuffix(".py")
        advice = f"{stem}:{name}" if stem.isidentifier() and name.isidentifier() else "module:function"
        raise BadDataError(source, "names no function of a module", f"like {advice}, with the module's file in {cwd}")
    os.chdir(cwd)
    sys.path.insert(0, str(cwd))
    try:
        found = import_module(module)
    except ModuleNotFoundError as exc:
        if exc.name is None or not f"{module}.".startswith(f"{exc.name}."):
            raise  # something that the module itself imports
        raise BadDataError(source, f"cannot be imported: {exc}", f"looked in {cwd} and the installed packages") from exc
    function = getattr(found, name, None)
    if function is None:
        raise BadDataError(source, f"module {module!r} has no {name!r}")
    if not callable(function):
        raise BadDataError(source, f"is {_kind(function)}, not a function")
    made: Callable[[], object] = function
    return made


def _kind(value: object) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"


def _told(exc: BaseException) -> str:
    """Return the class and the first line of what was raised."""
    said = exc.msg if isinstance(exc, SyntaxError) else str(exc)
    first = next(iter(said.strip().splitlines()), "")
    return f"{type(exc).__name__}: {first}" if first else type(exc).__name__


def _place(exc: BaseException, cwd: Path) -> str:
    """Return `file.py line N`: of a syntax error its own, else the line of the user's that was being run."""
    if isinstance(exc, SyntaxError) and exc.filename and Path(exc.filename).is_file():
        return f"{_short(exc.filename, cwd)} line {exc.lineno}"
    frames = [
        frame for frame in traceback.extract_tb(exc.__traceback__) if not Path(frame.filename).is_relative_to(_OURS)
    ]
    # What raised may be numpy, or Python's own library: the line that called it is the one to mend.
    written = [frame for frame in frames if _is_written(frame.filename)]
    last = (written or frames)[-1:]
    return f"{_short(last[0].filename, cwd)} line {last[0].lineno}" if last else ""


def _is_written(filename: str) -> bool:
    path = Path(filename)
    return path.is_file() and not path.is_relative_to(_LIBRARY) and _INSTALLED.isdisjoint(path.parts)


def _short(filename: str, cwd: Path) -> str:
    path = Path(filename)
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else filename

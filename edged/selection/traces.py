"""What shows of delegates and their drivers on this machine: files and nodes are looked at, nothing is opened or run.

Of a device: that its node is there, and whether this user may open it. Of a driver that a file describes: that file and
the library that it names, by size and time. Of the environment: the variables that `delegates.places` lists.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from delegates import devices, drivers
from delegates.places import Places

PATH = "LD_LIBRARY_PATH"
# The loader's own list of libraries, which ldconfig(8) makes: among other things their paths, each ended by a NUL.
_CACHE = "etc/ld.so.cache"


def traces(places: Iterable[Places], environment: Mapping[str, str] = os.environ, root: Path = devices.ROOT) -> str:
    """Return a text that changes with the devices, drivers and variables of these places; root: another for tests."""
    rows = list(places)
    nodes = devices.nodes(sorted({node for row in rows for node in row.nodes}), root)
    # A USB device has another node each time it is plugged in, so these are told without their names.
    usb = sorted(f"usb {_access(node)}" for node in devices.usb(frozenset().union(*(row.usb for row in rows)), root))
    kinds = sorted({kind for row in rows for kind in row.drivers})
    described = (text for kind in kinds for text in _described(kind, environment, root))
    shown = [f"{devices.shown(node, root)} {_access(node)}" for node in nodes]
    return "; ".join([*shown, *usb, *described, *variables(rows, environment)])


def variables(places: Iterable[Places], environment: Mapping[str, str]) -> list[str]:
    """Return those of the environment that these places name, `NAME=value`."""
    patterns = {pattern for row in places for pattern in row.variables}
    named = (name for name in environment if any(fnmatchcase(name, pattern) for pattern in patterns))
    return [f"{name}={environment[name]}" for name in sorted(named)]


def stamp(path: str) -> str:
    """Return path, size and time of change of a file, links resolved; "" for "", and that it is gone."""
    if not path:
        return ""
    try:
        found = os.stat(path)  # noqa: PTH116  # one system call
    except OSError:
        return f"{path} (gone)"
    return f"{os.path.realpath(path)} {found.st_size} {found.st_mtime_ns}"


def library_folders(environment: Mapping[str, str] = os.environ, root: Path = devices.ROOT) -> list[str]:
    """Return where the system looks for libraries, the first first: as the environment and Debian name them."""
    kind = os.uname().machine
    own = sorted(path for path in root.glob("usr/lib/*-linux-*") if path.name.startswith(kind[:3]))
    usual = [root / name for name in ("usr/local/lib", *map(str, own), "usr/lib64", "usr/lib", "lib64", "lib")]
    return [*filter(None, environment.get(PATH, "").split(os.pathsep)), *map(str, usual)]


def libraries(
    names: Iterable[str], environment: Mapping[str, str] = os.environ, root: Path = devices.ROOT
) -> list[str]:
    """Return the stamps of all files that the system's loader could find by these bare names; nothing is loaded.

    Not only of the one that it would take: which that is follows from the variables, and from what there is.
    """
    asked = list(names)
    if not asked:
        return []
    paths = [os.path.join(folder, name) for name in asked for folder in library_folders(environment, root)]  # noqa: PTH118
    paths += _listed(asked, root)
    return sorted({stamp(path) for path in paths if os.path.exists(path)})  # noqa: PTH110  # one system call


def _listed(names: Sequence[str], root: Path) -> list[str]:
    """Return the paths in the loader's list that end with one of these names."""
    try:
        cache = (root / _CACHE).read_bytes()
    except OSError:  # not every C library has one
        return []
    wanted = tuple(b"/" + os.fsencode(name) for name in names)
    return [os.fsdecode(text) for text in cache.split(b"\0") if text.endswith(wanted)]


def _access(node: Path) -> str:
    return "open" if devices.may_open(node) else "shut"


def _described(kind: str, environment: Mapping[str, str], root: Path) -> Iterator[str]:
    for file in drivers.KINDS[kind](root, environment):
        yield f"{stamp(str(file))}: {stamp(_found(drivers.library(file), file, environment, root))}"


def _found(library: str, file: Path, environment: Mapping[str, str], root: Path) -> str:
    """Return the path of a library that a driver's description names: a bare name is the system's to find."""
    if "/" in library or not library:
        return library and str(file.parent / library)
    found = (path for path in (Path(folder) / library for folder in library_folders(environment, root)))
    return next((str(path) for path in found if path.exists()), library)

"""A bundle put where the person wants it: nothing half written, nothing lost that is no bundle.

What is at the output is looked at before the work, and again at the last moment: minutes lie between. Even then nothing
is renamed over: a bundle to be replaced is moved aside first, and moved back whatever happens.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from converters import disk
from edged import bundle
from edged.bundle import Manifest
from edged.errors import BadDataError, UsageError

# What tells one state of a bundle on disk from another: name, inode, bytes, time of the last change.
_State = list[tuple[str, int, int, int]]


def check_output(path: Path, *, force: bool) -> None:
    """Raise UsageError unless a bundle can be put at the absolute `path`, in directories yet to be made if need be.

    force: one that is there may be replaced, and only a bundle.
    """
    if path.name in ("", ".."):
        raise UsageError("-o", f"{path} names no bundle", "DIRECTORY/NAME or DIRECTORY/NAME.tar")
    check_names(path, "-o")
    there = next(parent for parent in path.parents if os.path.lexists(parent))
    if not there.is_dir():
        raise UsageError("-o", f"{there} is no directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError("-o", f"{there} cannot be written to")
    if other := bundle_around(path):
        raise UsageError("-o", f"{path} lies inside the bundle {other}")
    if not os.path.lexists(path):
        return
    if not force:
        raise UsageError("-o", f"{path} exists", "--force replaces it")
    _check_replaceable(path)


def check_names(path: Path, flag: str) -> None:
    """Raise UsageError when a part of `path`, or the whole of it, is longer than the file system takes."""
    there = next(parent for parent in (path, *path.parents) if os.path.exists(parent))  # noqa: PTH110  # Path raises
    most = os.pathconf(there, "PC_NAME_MAX")
    for part in path.parts:
        if (size := len(os.fsencode(part))) > most:
            raise UsageError(flag, f"{part[:12]}…{part[-16:]} is a name of {size} bytes, {most} is the most")
    # Some room is left for the names of the files in it.
    most = os.pathconf(there, "PC_PATH_MAX") - 64
    if (size := len(os.fsencode(path))) > most:
        raise UsageError(flag, f"is a path of {size} bytes, {most} is the most")


def bundle_around(path: Path) -> Path | None:
    """Return the bundle, an open directory, in which `path` lies or would lie."""
    within = path.parent.resolve()
    for folder in (within, *within.parents):
        if all((folder / name).is_file() for name in (bundle.MANIFEST, bundle.MODEL)):
            return folder
    return None


def _check_replaceable(path: Path) -> None:
    if os.path.ismount(path):
        raise UsageError("-o", f"{path} is a mount point, which cannot be replaced", "name a bundle inside it")
    try:
        found = bundle.read(path)
    except BadDataError as exc:
        raise UsageError("-o", f"{path} exists and is no bundle, so --force leaves it alone", exc.what) from exc
    if found.unlisted:
        names = ", ".join(found.unlisted[:3])
        raise UsageError("-o", f"{path} holds what is no part of the bundle: {names}", "move it away first")


def write(path: Path, made: Manifest, files: Mapping[str, bytes], *, force: bool) -> None:
    """Put the bundle at `path`: written beside it, then renamed. Missing directories above it are made.

    force: a bundle that is there is replaced; it is back in its place if anything goes wrong, an interruption too.
    Raises UsageError as check_output, UnavailableError when it cannot be written.
    """
    check_output(path, force=force)
    with disk.told(f"-o {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".edged-") as beside:
            fresh = Path(beside) / ("new.tar" if path.name.endswith(".tar") else "new")
            bundle.write(fresh, made, files)
            if force and os.path.lexists(path):
                _replace(fresh, path)
            else:
                _put(fresh, path)


def _replace(fresh: Path, path: Path) -> None:
    before, new = _state(path), fresh.lstat().st_ino
    check_output(path, force=True)
    # Not in a folder that is removed come what may: whatever fails, the old bundle is still somewhere.
    aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f"{path.name[:32]}-old-"))
    old = aside / path.name
    try:
        path.rename(old)
        _check_same(before, old, path)
        _put(fresh, path)
    finally:
        if os.path.lexists(old) and not (os.path.lexists(path) and path.lstat().st_ino == new):
            _put_back(old, path)
        shutil.rmtree(aside, ignore_errors=True)


def _check_same(before: _State, old: Path, path: Path) -> None:
    if _state(old) != before:
        raise UsageError("-o", f"{path} was changed meanwhile, and is left as it is", "convert again")


def _put_back(old: Path, path: Path) -> None:
    try:
        _put(old, path)
    except (OSError, UsageError) as exc:
        raise UsageError("-o", f"{path} was taken meanwhile", f"the bundle that was there is {old}") from exc


def _state(path: Path) -> _State:
    inside = sorted(path.iterdir()) if path.is_dir() and not path.is_symlink() else []
    looked = [(file.name, file.lstat()) for file in inside]
    state = [(name, at.st_ino, at.st_size, at.st_mtime_ns) for name, at in looked]
    own = path.lstat()
    return [("", own.st_ino, 0, 0), *state] if inside else [("", own.st_ino, own.st_size, own.st_mtime_ns)]


def _put(fresh: Path, path: Path) -> None:
    """Rename, and replace nothing. Raises UsageError when something is there."""
    try:
        if fresh.is_symlink() or not fresh.is_dir():
            _put_file(fresh, path)
        else:
            _put_directory(fresh, path)
    except (FileExistsError, NotADirectoryError) as exc:
        raise UsageError("-o", f"{path} has appeared meanwhile, and is left as it is", "convert again") from exc


def _put_directory(fresh: Path, path: Path) -> None:
    # An empty directory of our own takes the name: what somebody else makes there fails, or makes the rename fail.
    path.mkdir()
    try:
        fresh.rename(path)
    finally:
        with suppress(OSError):  # not empty: it is the new bundle, or somebody has put something into it
            path.rmdir()


def _put_file(fresh: Path, path: Path) -> None:
    try:
        path.hardlink_to(fresh)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        path.touch(exist_ok=False)
        fresh.replace(path)

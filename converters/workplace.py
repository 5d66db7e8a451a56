"""The folder in which one conversion works, removed at its end, or at the next start where it was killed.

Each has a file that its process keeps locked: the kernel lets go of the lock when the process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from converters import disk
from edged.clock import wall_s

_PREFIX, _LOCK = "edged-convert-", "lock"
# One that is this young may be about to be locked.
_YOUNG_S = 60.0


@contextmanager
def made() -> Iterator[Path]:
    """Make the folder, below TMPDIR; it is gone afterwards. Raises UnavailableError when there is no room for it."""
    with disk.told("TMPDIR", "name a directory with room for a few models"):
        parent = Path(tempfile.gettempdir())
    _sweep(parent)
    where = f"TMPDIR, {parent}"
    with (
        disk.room(where, "name a directory with room for a few models"),
        tempfile.TemporaryDirectory(dir=parent, prefix=_PREFIX) as folder,
        (Path(folder) / _LOCK).open("w") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(folder) / "work"


def _sweep(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # not ours to read, just gone, or its process lives and holds the lock
            found = folder.lstat()
            if found.st_uid != os.geteuid() or wall_s() - found.st_mtime < _YOUNG_S:
                continue
            with (folder / _LOCK).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)

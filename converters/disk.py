"""What the file system refuses, told with the place where it happened: a full disk is no fault of edged."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edged.errors import UnavailableError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
_PROBE = 1 << 20


@contextmanager
def told(where: str, hint: str = "") -> Iterator[None]:
    """Make whatever the file system refuses an UnavailableError that begins with `where`."""
    try:
        yield
    except OSError as exc:
        raise UnavailableError(where, exc.strerror or str(exc), hint) from exc


@contextmanager
def room(where: str, hint: str = "") -> Iterator[None]:
    """Make a full disk, and only that, an UnavailableError that begins with `where`."""
    try:
        yield
    except OSError as exc:
        if exc.errno not in FULL:
            raise
        raise UnavailableError(where, exc.strerror or str(exc), hint) from exc


def check_room(folder: Path) -> None:
    """Raise OSError when `folder` takes no MiB any more: a process that died there most likely found it full."""
    probe = folder / f".room.{os.getpid()}"
    try:
        probe.write_bytes(bytes(_PROBE))
    except OSError as exc:
        if exc.errno in FULL:
            raise
    finally:
        with suppress(OSError):
            probe.unlink()

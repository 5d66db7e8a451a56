"""Files that appear whole or not at all, whenever the power goes."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from pathlib import Path
from typing import IO

# What a killed process left half written is removed by a later write.
_LEFT_S = 600.0
MOST_OF_A_LINE = 64 * 1024  # bytes: what MQTT can carry as a password


def opened(path: Path) -> IO[bytes]:
    """Open a file for reading. Raises OSError, also for what is no regular file: a named pipe would be waited for."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no regular file")
    return os.fdopen(handle, "rb")


def read(path: Path, most: int) -> str:
    """Return the text of a file.

    Raises OSError, also for what is no regular file (a named pipe would be waited for without end) or is larger than
    `most` bytes; UnicodeDecodeError (a ValueError) for what is no UTF-8.
    """
    with opened(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most} bytes")
    return data.decode()


def first_line(path: Path) -> str:
    """Return the first line of a file, a password.

    Raises OSError as `read` does, ValueError when the line is empty or no UTF-8; neither repeats what is in the file.
    """
    try:
        lines = read(path, MOST_OF_A_LINE).splitlines()
    except UnicodeDecodeError:
        # Not as the cause: its text repeats a byte of what may be the password.
        raise ValueError("not UTF-8 text") from None
    if not lines or not lines[0]:
        raise ValueError("the first line is empty")
    return lines[0]


def write(path: Path, text: str) -> None:
    """Write a text in place of what is there: after a power cut there is the old file or the new one.

    Raises OSError; nothing is left of a write that failed. Two processes may write the same file at once: the later
    one's stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    _clear(path)


def _clear(path: Path) -> None:
    """Remove the parts that processes left which were killed in writing this file."""
    with contextlib.suppress(OSError):
        oldest = path.lstat().st_mtime - _LEFT_S
        for part in path.parent.iterdir():
            ours = part.name.startswith(f"{path.name}.") and part.suffix == ".part"
            if ours and part.lstat().st_mtime < oldest:
                part.unlink()


def remove(path: Path) -> None:
    """Remove a file, or a directory with all in it, if it is there; whatever cannot be removed stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        path.unlink()

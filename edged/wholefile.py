"""Files that appear whole or not at all, whenever the power goes."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read(path: Path, most: int) -> str:
    """Return the text of a file.

    Raises OSError, also for what is no regular file (a named pipe would be waited for without end) or is larger than
    `most` bytes; UnicodeDecodeError (a ValueError) for what is no UTF-8.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most} bytes")
    return data.decode()


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

"""Names and first bytes by which files are told apart."""

from __future__ import annotations

import stat
from pathlib import Path

# The file identifier of TFLite's schema, and where it stands: after the root table's offset.
TFLITE, TFLITE_AT = b"TFL3", 4
TFLITE_HEAD = TFLITE_AT + len(TFLITE)
HDF5 = b"\x89HDF\r\n\x1a\n"
# One of them stands at the top of a SavedModel's directory.
SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt", "saved_model.cpb")
_SPECIAL = (
    (stat.S_ISLNK, "is a link that leads to no file"),
    (stat.S_ISFIFO, "is a named pipe, not a file"),
    (stat.S_ISSOCK, "is a socket, not a file"),
    (stat.S_ISCHR, "is a device, not a file"),
    (stat.S_ISBLK, "is a device, not a file"),
)


def is_tflite(head: bytes) -> bool:
    """Whether these are the first bytes of a .tflite model."""
    return head[TFLITE_AT : TFLITE_AT + len(TFLITE)] == TFLITE


def special(path: Path) -> str:
    """Say what lies under a path where that is neither a file nor a directory; empty also where nothing does.

    Opening such a thing may wait for ever, and reading it may never end. Raises OSError when it cannot be looked at.
    """
    if path.is_file() or path.is_dir():
        return ""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    return next((what for test, what in _SPECIAL if test(mode)), "is no file")


def is_saved_model(path: Path) -> bool:
    """Whether a directory is a SavedModel, as far as its files' names tell."""
    return any((path / name).is_file() for name in SAVED_MODEL)

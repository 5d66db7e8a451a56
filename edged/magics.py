"""Names and first bytes by which files are told apart."""

from __future__ import annotations

from pathlib import Path

# The file identifier of TFLite's schema, and where it stands: after the root table's offset.
TFLITE, TFLITE_AT = b"TFL3", 4
HDF5 = b"\x89HDF\r\n\x1a\n"
# One of them stands at the top of a SavedModel's directory.
SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt", "saved_model.cpb")


def is_tflite(head: bytes) -> bool:
    """Whether these are the first bytes of a .tflite model."""
    return head[TFLITE_AT : TFLITE_AT + len(TFLITE)] == TFLITE


def is_saved_model(path: Path) -> bool:
    """Whether a directory is a SavedModel, as far as its files' names tell."""
    return any((path / name).is_file() for name in SAVED_MODEL)

"""What lies under a path, by its name and first bytes: a model, a bundle, or what a person took for one."""

from __future__ import annotations

from pathlib import Path

from edged.bundle import MANIFEST
from edged.errors import BadDataError

# The file identifier of TFLite's schema, after the root table's offset.
_MODEL = (4, b"TFL3")
# The magic of POSIX ustar and of GNU tar.
_TAR = (257, b"ustar")
_HEAD = 512
_KNOWN = (
    (b"\x93NUMPY", "is a NumPy array"),
    (b"PK\x03\x04", "is a zip file (.npz, .keras)"),
    (b"\x89HDF", "is an HDF5 file (.h5)"),
    (b"\x1f\x8b", "is compressed with gzip"),
    (b"\x7fELF", "is a program or library"),
)
_WANTED = "a bundle is a directory or .tar made by `edged convert`"
_SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt", "saved_model.cpb")


def is_model(path: Path) -> bool:
    """Whether `path` is to be read as a .tflite model (True) or as a bundle (False).

    Raises BadDataError, saying what it is, for what is plainly neither; OSError when it cannot be read.
    """
    if path.is_dir():
        _refuse_saved_model(path)
        return False
    if not path.is_file():  # the reader of bundles has the words for what is not there
        return False
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if path.suffix == ".tflite" or _has(head, *_MODEL):
        return True
    if path.suffix == ".tar" or _has(head, *_TAR):
        return False
    raise BadDataError(str(path), f"{_kind(path, head)}, neither a bundle nor a .tflite model", _hint(path))


def _has(head: bytes, at: int, magic: bytes) -> bool:
    return head[at : at + len(magic)] == magic


def _kind(path: Path, head: bytes) -> str:
    if path.name in (MANIFEST, *_SAVED_MODEL):
        return "is one file of several"
    return next((kind for magic, kind in _KNOWN if head.startswith(magic)), "is empty" if not head else "is some file")


def _hint(path: Path) -> str:
    return f"give its directory, {path.parent}" if path.name in (MANIFEST, *_SAVED_MODEL) else _WANTED


def _refuse_saved_model(path: Path) -> None:
    if not (path / MANIFEST).exists() and any((path / name).is_file() for name in _SAVED_MODEL):
        convert = f"`edged convert {path} -o BUNDLE --name NAME --version 1` makes a bundle of it"
        raise BadDataError(str(path), "is a TensorFlow SavedModel, neither a bundle nor a .tflite model", convert)

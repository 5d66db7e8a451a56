"""What lies under a path, by its name and first bytes: a model, a bundle, or what a person took for one."""

from __future__ import annotations

from pathlib import Path

from edged import magics
from edged.bundle import MANIFEST
from edged.errors import BadDataError

# The magic of POSIX ustar and of GNU tar.
_TAR, _TAR_AT = b"ustar", 257
_HEAD = 512
_KNOWN = (
    (b"\x93NUMPY", "is a NumPy array"),
    (b"PK\x03\x04", "is a zip file (.npz, .keras)"),
    (magics.HDF5, "is an HDF5 file (.h5)"),
    (b"\x1f\x8b", "is compressed with gzip"),
    (b"\x7fELF", "is a program or library"),
)
_WANTED = "a bundle is a directory or .tar made by `edged convert`"


def is_model(path: Path) -> bool:
    """Whether `path` is to be read as a .tflite model (True) or as a bundle (False).

    Raises BadDataError, saying what it is, for what is plainly neither; OSError when it cannot be read.
    """
    if path.is_dir():
        _refuse_saved_model(path)
        return False
    if kind := magics.special(path):
        raise BadDataError(str(path), f"{kind}: neither a bundle nor a .tflite model", _WANTED)
    if not path.is_file():  # the reader of bundles has the words for what is not there
        return False
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if path.suffix == ".tflite" or magics.is_tflite(head):
        return True
    if path.suffix == ".tar" or head[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR:
        return False
    raise BadDataError(str(path), f"{_kind(path, head)}, neither a bundle nor a .tflite model", _hint(path))


def _kind(path: Path, head: bytes) -> str:
    if path.name in (MANIFEST, *magics.SAVED_MODEL):
        return "is one file of several"
    return next((kind for magic, kind in _KNOWN if head.startswith(magic)), "is empty" if not head else "is some file")


def _hint(path: Path) -> str:
    return f"give its directory, {path.parent}" if path.name in (MANIFEST, *magics.SAVED_MODEL) else _WANTED


def _refuse_saved_model(path: Path) -> None:
    if not (path / MANIFEST).exists() and magics.is_saved_model(path):
        convert = f"`edged convert {path} -o BUNDLE --name NAME --version 1` makes a bundle of it"
        raise BadDataError(str(path), "is a TensorFlow SavedModel, neither a bundle nor a .tflite model", convert)

"""What was given to be converted: a SavedModel, a version directory of TensorFlow Serving, a Keras file, or neither.

No TensorFlow is needed here, so that a wrong path costs a moment and not the seconds that TensorFlow takes to start.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from edged import magics
from edged.errors import BadDataError

SAVED_MODEL, KERAS, HDF5 = "SavedModel", "Keras file", "Keras HDF5 file"

_HDF5_SUFFIXES = (".h5", ".hdf5")
# What stands at the top of a .keras file, beside its weights.
_KERAS_PARTS = frozenset({"config.json", "metadata.json"})
_EXPORT = "make a SavedModel with `model.export(DIRECTORY)`"
_OTHERS: Mapping[str, tuple[str, str]] = {
    ".tflite": ("is converted already", "see it with `edged inspect`"),
    ".pb": ("is a frozen graph, without signatures", "give the SavedModel that it was made of"),
    ".ckpt": ("is a checkpoint, weights without a model", _EXPORT),
    ".onnx": ("is an ONNX file", "give the SavedModel that it was made of"),
    ".pt": ("is a PyTorch file", ""),
    ".pth": ("is a PyTorch file", ""),
    ".tar": ("is an archive", "unpack it, then give the directory in it that holds saved_model.pb"),
    ".tgz": ("is an archive", "unpack it, then give the directory in it that holds saved_model.pb"),
    ".gz": ("is an archive", "unpack it, then give the directory in it that holds saved_model.pb"),
}


@dataclass(frozen=True)
class Given:
    """A model to convert. path: where it is, a version directory resolved. shown: the end of it, for the report.

    kind: SAVED_MODEL, KERAS or HDF5. notes: what was chosen among what is there.
    """

    path: Path
    shown: str
    kind: str
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """The bytes of the file, or of all files in the directory."""
        return size(self.path)


def find(path: Path) -> Given:
    """Return what `path` is.

    Of version directories (`1`, `2`, …) the highest number is taken, as TensorFlow Serving does.
    Raises BadDataError, saying what to give instead, when it is nothing that can be converted.
    """
    try:
        return _find(path)
    except OSError as exc:
        raise BadDataError(str(path), f"cannot be read: {exc.strerror or exc}") from exc


def _find(path: Path) -> Given:
    if not path.exists():
        raise BadDataError(str(path), "no such SavedModel")
    if path.is_file():
        return Given(path, path.name, _file_kind(path))
    if magics.is_saved_model(path):
        return Given(path, path.name, SAVED_MODEL)
    return _version(path, sorted(p.name for p in path.iterdir() if magics.is_saved_model(p)))


def size(path: Path) -> int:
    """Return the bytes of a file, or of all files below a directory."""
    return sum(p.stat().st_size for p in (path, *path.rglob("*")) if p.is_file())


def _version(path: Path, inside: Sequence[str]) -> Given:
    versions = sorted(filter(str.isdecimal, inside), key=int)
    if versions:
        newest, others = versions[-1], ", ".join(versions[:-1])
        notes = (f"{path.name}: version {newest} is taken, the highest; also there: {others}",) if others else ()
        return Given(path / newest, f"{path.name}/{newest}", SAVED_MODEL, notes)
    if inside:
        advice = f"give {path / inside[0]}" if len(inside) == 1 else "give one of them"
        raise BadDataError(str(path), f"holds SavedModels ({', '.join(inside)}) but is none itself", advice)
    raise _no_model(path, {p.name for p in path.iterdir()})


def _no_model(path: Path, names: set[str]) -> BadDataError:
    if names >= _KERAS_PARTS:
        return BadDataError(str(path), "is an unpacked Keras file", "give the .keras file")
    if "checkpoint" in names or any(name.endswith(".index") for name in names):
        return BadDataError(str(path), "holds a checkpoint, weights without a model", _EXPORT)
    what = f"is no SavedModel: no {magics.SAVED_MODEL[0]} in it"
    return BadDataError(str(path), what, "the directory that tf.saved_model.save wrote")


def _file_kind(path: Path) -> str:
    """Return KERAS or HDF5 by what the file holds; raises BadDataError for any other file."""
    if path.name in magics.SAVED_MODEL:
        raise BadDataError(str(path), "is a file inside a SavedModel", f"give its directory, {path.parent}")
    with path.open("rb") as file:
        hdf5 = file.read(len(magics.HDF5)) == magics.HDF5
    if hdf5:
        return _hdf5(path)
    if zipfile.is_zipfile(path):
        return _zip(path)
    suffix = path.suffix.lower()
    if suffix in (".keras", *_HDF5_SUFFIXES):
        raise BadDataError(str(path), f"is named {suffix} but is no Keras file", _EXPORT)
    raise BadDataError(str(path), *_OTHERS.get(suffix, ("is no SavedModel directory and no Keras file", "")))


def _hdf5(path: Path) -> str:
    name = path.name.lower()
    if name.endswith(tuple(f".weights{suffix}" for suffix in _HDF5_SUFFIXES)):
        raise weights_only(path)
    if not name.endswith(_HDF5_SUFFIXES):
        raise BadDataError(str(path), "is an HDF5 file by another name", f"rename it to {path.stem}.h5")
    return HDF5


def weights_only(path: Path) -> BadDataError:
    """Return the error for a file that `save_weights` wrote."""
    return BadDataError(str(path), "holds weights alone, not a model", f"load them into the model, then {_EXPORT}")


def _zip(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as file:
            names = file.namelist()
    except zipfile.BadZipFile as exc:
        raise BadDataError(str(path), f"cannot be read as a zip file: {exc}") from exc
    if not _KERAS_PARTS.issubset(names):
        found = _models_in(names)
        advice = f"unpack it, then give {found[0]}" if found else ""
        raise BadDataError(str(path), f"is a zip file that holds {', '.join(found) or 'no model'}", advice)
    if path.suffix.lower() != ".keras":
        raise BadDataError(str(path), "is a Keras file by another name", f"rename it to {path.stem}.keras")
    return KERAS


def _models_in(names: Iterable[str]) -> list[str]:
    """Return the Keras files and SavedModel directories among the names in an archive."""
    paths = [PurePosixPath(name) for name in sorted(names)]
    models = [str(p.parent) for p in paths if p.name in magics.SAVED_MODEL]
    return models + [str(p) for p in paths if p.suffix.lower() in (".keras", *_HDF5_SUFFIXES)]

"""A .keras or .h5 file to a SavedModel. Runs in the child process that has imported TensorFlow.

Nothing of the file is run but the layers of Keras itself: code that lies in a file (Lambda layers) is refused, whoever
would load it.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from converters import front
from converters.front import Given
from edged.errors import BadDataError, UnavailableError
from edged.shown import first_line

# What Keras raises for files that it does not understand.
_FAULTS = (ValueError, TypeError, KeyError, AttributeError, ImportError, NotImplementedError, OSError, RuntimeError)
_UNKNOWN = re.compile(r"(?:Unknown \w+:|Could not locate (?:class|function)) '([^']+)'")
_EXPORT = "export it where it was made: model.export(DIRECTORY)"
_KERAS_3 = 3


class _Config(NamedTuple):
    """A model's description in its file. version: of the Keras that wrote it, "" where it is not told."""

    layers: Any
    version: str

    @property
    def is_old(self) -> bool:
        """Whether it is of Keras 2 or before."""
        major = self.version.partition(".")[0]
        return not major.isdecimal() or int(major) < _KERAS_3


def export(given: Given, folder: Path) -> Path:
    """Return the directory, below `folder`, of a SavedModel made from a Keras file.

    Raises BadDataError for what Keras cannot load or export, UnavailableError for what only Keras 2 can.
    """
    config = _config(given)
    _refuse_code(config.layers, given.path)
    path = folder / "exported"
    model = _load(given.path, config)
    try:
        model.export(str(path))
    except _FAULTS as exc:
        raise BadDataError(str(given.path), f"cannot be exported: {first_line(exc)}", _EXPORT) from exc
    return path


def _config(given: Given) -> _Config:
    try:
        return _hdf5_config(given.path) if given.kind == front.HDF5 else _keras_config(given.path)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as exc:
        raise BadDataError(str(given.path), f"cannot be read as a Keras file: {first_line(exc)}") from exc


def _keras_config(path: Path) -> _Config:
    with zipfile.ZipFile(path) as file:
        layers, metadata = (json.loads(file.read(name)) for name in ("config.json", "metadata.json"))
    return _Config(layers, str(metadata.get("keras_version", "")))


def _hdf5_config(path: Path) -> _Config:
    h5py = import_module("h5py")  # comes with Keras
    with h5py.File(path, "r") as file:
        text, version = file.attrs.get("model_config"), file.attrs.get("keras_version", "")
    if text is None:
        raise front.weights_only(path)
    # Old writers of the format left bytes where new ones leave text.
    return _Config(json.loads(text), version.decode() if isinstance(version, bytes) else str(version))


def _refuse_code(layers: Any, path: Path) -> None:
    for layer in _objects(layers):
        if layer.get("class_name") == "Lambda":
            config = layer.get("config")
            name = config.get("name", "") if isinstance(config, dict) else ""
            what = f"holds the Lambda layer {name!r}, code in a file, which is not run"
            raise BadDataError(str(path), what, _EXPORT)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every JSON object in `value`, at any depth."""
    if isinstance(value, dict):
        yield value
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in inside:
        yield from _objects(item)


def _load(path: Path, config: _Config) -> Any:
    """Load with Keras 3, and what is older and unknown to it with tf_keras."""
    keras = import_module("keras")
    try:
        return keras.models.load_model(str(path), compile=False, safe_mode=True)
    except _FAULTS as exc:
        if not config.is_old:
            raise _unloadable(path, exc) from exc
        return _load_keras2(path, config.version or "2 or older", exc, keras.__version__)


def _load_keras2(path: Path, version: str, reason: Exception, ours: str) -> Any:
    try:
        keras2 = import_module("tf_keras")
    except ImportError as exc:
        what = f"was saved by Keras {version}, which Keras {ours} cannot read: {_reason(reason)}"
        raise UnavailableError(str(path), what, f"pip install tf_keras, or {_EXPORT}") from exc
    try:
        return keras2.models.load_model(str(path), compile=False)
    except _FAULTS as exc:
        raise _unloadable(path, exc) from exc


def _unloadable(path: Path, exc: Exception) -> BadDataError:
    return BadDataError(str(path), f"cannot be loaded: {_reason(exc)}", _EXPORT)


def _reason(exc: Exception) -> str:
    unknown = _UNKNOWN.findall(str(exc))
    if unknown:
        return f"{unknown[-1]!r} is no class of Keras: only the code that made the model knows it"
    return first_line(exc)

"""Finding the one function to convert in a SavedModel: tag set, signature, shapes. No guess that could surprise.

`check_path` needs no TensorFlow; the rest runs in the child process that has imported it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from converters.options import Options
from converters.samples import InputInfo
from edged.checks import hint
from edged.errors import BadDataError, UnavailableError, UsageError

DEFAULT_SIGNATURE = "serving_default"
DEFAULT_TAGS = frozenset({"serve"})
# Bookkeeping of TensorFlow itself, never what a person wants served.
_INTERNAL = frozenset({"__saved_model_init_op", "__saved_model_train_op"})
_FILES = ("saved_model.pb", "saved_model.pbtxt", "saved_model.cpb")
_KERAS_HINT = "make one with `model.export(DIRECTORY)`"


def check_path(path: Path) -> None:
    """Raise BadDataError, saying what to give instead, unless `path` is a SavedModel directory."""
    where = str(path)
    if not path.exists():
        raise BadDataError(where, "no such SavedModel")
    if path.is_file():
        raise BadDataError(where, _file_kind(path), _file_hint(path))
    if any((path / name).is_file() for name in _FILES):
        return
    inside = sorted(p.name for p in path.iterdir() if any((p / name).is_file() for name in _FILES))
    if inside:
        versions = any(name.isdigit() for name in inside)
        one = max(filter(str.isdigit, inside), key=int) if versions else inside[0]
        advice = f"give {path / one}" if versions or len(inside) == 1 else "give one of them"
        raise BadDataError(where, f"holds SavedModels ({', '.join(inside)}) but is none itself", advice)
    raise BadDataError(where, f"is no SavedModel: no {_FILES[0]} in it", "the directory that tf.saved_model.save wrote")


def _file_kind(path: Path) -> str:
    kinds = {".keras": "a Keras file", ".h5": "a Keras HDF5 file", ".hdf5": "a Keras HDF5 file", ".tflite": "converted"}
    if path.name in _FILES:
        return "is a file inside a SavedModel"
    kind = kinds.get(path.suffix.lower(), "a file")
    return f"is {kind}, not a SavedModel directory"


def _file_hint(path: Path) -> str:
    if path.name in _FILES:
        return f"give its directory, {path.parent}"
    return _KERAS_HINT if path.suffix.lower() in {".keras", ".h5", ".hdf5"} else ""


def size(path: Path) -> int:
    """Return the bytes of all files below `path`."""
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())


@dataclass(frozen=True)
class Loaded:
    """A signature with pinned shapes. `function` takes and returns tensors by name; `concrete` is its traced form.

    root: the loaded object, which holds the variables. outputs: name → numpy dtype.
    """

    key: str
    tags: tuple[str, ...]
    root: Any
    concrete: Any
    inputs: tuple[InputInfo, ...]
    outputs: Mapping[str, str]

    def __call__(self, sample: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """Run one sample in TensorFlow."""
        import tensorflow as tf  # noqa: PLC0415  # slow to import, and only for a child process

        answer = self.concrete(**{name: tf.constant(value) for name, value in sample.items()})
        return {name: np.asarray(value) for name, value in answer.items()}


def load(options: Options) -> Loaded:
    """Load the SavedModel, choose its tag set and signature, pin every shape.

    Raises BadDataError (nothing to choose from, an unusable input) or UsageError (a flag is needed, or names
    something that is not there); each lists what exists.
    """
    graphs = _graphs(options.model)
    where = str(options.model)
    tags = choose_tags(graphs, options.tags, where)
    keys = graphs[tags]
    key = choose_signature(list(keys), options.signature, where)
    refuse_unusable(keys[key].inputs, f"{where}, signature {key!r}")
    root = _load(options.model, tags)
    function = root.signatures[key]
    concrete, inputs = _pin(function, options, f"{where}, signature {key!r}")
    outputs = {name: np.dtype(o.dtype.as_numpy_dtype).name for name, o in sorted(concrete.structured_outputs.items())}
    return Loaded(key, tuple(sorted(tags)), root, concrete, inputs, outputs)


def _graphs(path: Path) -> dict[frozenset[str], dict[str, Any]]:
    """Return tag set → signature key → SignatureDef, read without running anything of the model."""
    from tensorflow.python.saved_model import loader_impl  # noqa: PLC0415  # child process only

    try:
        parsed = loader_impl.parse_saved_model(str(path))
    except OSError as exc:
        raise BadDataError(str(path), f"cannot be read as a SavedModel: {exc}") from exc
    return {
        frozenset(graph.meta_info_def.tags): {
            key: signature for key, signature in sorted(graph.signature_def.items()) if key not in _INTERNAL
        }
        for graph in parsed.meta_graphs
    }


def choose_tags(known: Iterable[frozenset[str]], asked: str, where: str) -> frozenset[str]:
    """Return the tag set asked for (`a,b`), or `serve`; raises UsageError listing the sets there are."""
    sets = list(known)
    wanted = frozenset(filter(None, asked.split(","))) if asked else DEFAULT_TAGS
    if wanted in sets:
        return wanted
    listed = "; ".join(",".join(sorted(tags)) or "(empty)" for tags in sets)
    raise UsageError(where, f"no tag set {','.join(sorted(wanted))!r}; it has: {listed}", "choose one with --tags")


def choose_signature(known: Sequence[str], asked: str, where: str) -> str:
    """Return the signature asked for, `serving_default`, or the only one; raises an error listing what there is."""
    if not known:
        raise BadDataError(where, "has no signature", "save it with signatures=..., or `model.export(DIRECTORY)`")
    listed = ", ".join(known)
    if asked:
        if asked in known:
            return asked
        raise UsageError(where, f"no signature {asked!r}{hint(asked, known)}; it has: {listed}")
    if DEFAULT_SIGNATURE in known:
        return DEFAULT_SIGNATURE
    if len(known) == 1:
        return known[0]
    raise UsageError(where, f"has several signatures: {listed}", "choose one with --signature")


def refuse_unusable(inputs: Mapping[str, Any], where: str) -> None:
    """Raise BadDataError for an input that no TFLite request can carry (text, resources) or for none at all."""
    from tensorflow import dtypes  # noqa: PLC0415  # child process only

    for name, info in sorted(inputs.items()):
        dtype = dtypes.as_dtype(info.dtype)
        if dtype in (dtypes.string, dtypes.resource, dtypes.variant):
            raise BadDataError(
                where, f"input {name!r} is of dtype {dtype.name}", "choose a signature of numbers, or export one"
            )
    if not inputs:
        raise BadDataError(where, "takes no input")


def _load(path: Path, tags: frozenset[str]) -> Any:
    import tensorflow as tf  # noqa: PLC0415  # child process only

    def attempt() -> Any:
        return tf.saved_model.load(str(path), tags=sorted(tags))

    try:
        return attempt()
    except AttributeError as exc:
        if "add_slot" not in str(exc):
            raise
        return _load_keras2(attempt, path)


def _load_keras2(attempt: Callable[[], Any], path: Path) -> Any:
    """Load what Keras 2 saved with its optimizer: only its own classes know the optimizer's slots."""
    try:
        import_module("tf_keras")
    except ImportError as exc:
        what = "was saved by Keras 2 with its optimizer, which Keras 3 cannot load"
        raise UnavailableError(str(path), what, "pip install tf_keras") from exc
    return attempt()


def _pin(function: Any, options: Options, where: str) -> tuple[Any, tuple[InputInfo, ...]]:
    import tensorflow as tf  # noqa: PLC0415  # child process only

    specs = dict(sorted(function.structured_input_signature[1].items()))
    dims = {name: None if s.shape.rank is None else tuple(s.shape.as_list()) for name, s in specs.items()}
    shapes = pin_shapes(dims, options.batch, options.shapes, where)
    # Pinned, because a dynamic batch costs extra ops, keeps delegates away and breaks recurrent layers.
    pinned = {name: tf.TensorSpec(shapes[name], spec.dtype, name=name) for name, spec in specs.items()}
    # Called by a lambda: the function itself keeps its own, unpinned shapes.
    concrete = tf.function(lambda **tensors: function(**tensors)).get_concrete_function(**pinned)  # noqa: PLW0108
    inputs = tuple(
        InputInfo(name, np.dtype(spec.dtype.as_numpy_dtype).name, shapes[name]) for name, spec in specs.items()
    )
    return concrete, inputs


Dims = tuple["int | None", ...]


def pin_shapes(
    dims: Mapping[str, Dims | None], batch: int, given: Mapping[str, tuple[int, ...]], where: str
) -> dict[str, tuple[int, ...]]:
    """Return a full shape for every input: `given` ones as they are, else with the first unknown dimension as batch.

    Raises UsageError for a shape that contradicts the model, names no input, or is missing.
    """
    for name in given:
        if name not in dims:
            raise UsageError("--shape", f"no input {name!r}{hint(name, dims)}; it has: {', '.join(dims)}")
    shapes = {name: _pinned(name, known, batch, given.get(name), where) for name, known in dims.items()}
    batched = any(known is None or (known and known[0] is None) for known in dims.values())
    if batch != 1 and not batched:
        raise UsageError("--batch", f"no input has a free first dimension: {_listed(dims)}")
    return shapes


def _pinned(name: str, known: Dims | None, batch: int, given: tuple[int, ...] | None, where: str) -> tuple[int, ...]:
    if given is not None:
        if known is not None and (
            len(known) != len(given) or any(a not in (None, b) for a, b in zip(known, given, strict=True))
        ):
            raise UsageError("--shape", f"{name}={list(given)} does not fit the model's {_shape_text(known)}")
        return given
    if known is not None:
        full = tuple(batch if i == 0 and size is None else size for i, size in enumerate(known))
        if all(size is not None for size in full):
            return tuple(int(size) for size in full if size is not None)
    example = (
        "1,…"
        if known is None
        else ",".join(str(s if s is not None else (batch, 64)[i > 0]) for i, s in enumerate(known))
    )
    raise UsageError(where, f"input {name!r} has the open shape {_shape_text(known)}", f"--shape {name}={example}")


def _shape_text(known: Dims | None) -> str:
    return "[…]" if known is None else "[" + ", ".join("?" if size is None else str(size) for size in known) + "]"


def _listed(dims: Mapping[str, Dims | None]) -> str:
    return ", ".join(f"{name} {_shape_text(known)}" for name, known in dims.items())

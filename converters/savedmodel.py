"""The one function to convert of what was given: tag set, signature, shapes. No guess that could surprise.

`load` runs in the child process that has imported TensorFlow; the choices need none. It saves the signature again with
pinned shapes, for the converter: that finds every variable of what was *loaded*, while of a Keras 3 model saved by
`tf.saved_model.save` it finds none and writes a model without weights
(https://github.com/keras-team/keras/issues/19108).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from converters import finite, front, kerasfile, loader, shapes
from converters.front import Given
from converters.loader import MetaGraph
from converters.options import Options
from converters.report import Source
from converters.samples import InputInfo
from converters.shapes import Asked, Shapes
from edged.checks import hint
from edged.errors import BadDataError, UsageError

DEFAULT_SIGNATURE = "serving_default"
DEFAULT_TAGS = frozenset({"serve"})
# What TensorFlow takes as the name of an op; the converter loses an input of any other name.
_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_./>-]*", re.ASCII)
_OPEN = "the batch stays open: a delegate that wants fixed sizes may leave more of the model to the CPU"


@dataclass(frozen=True)
class Loaded:
    """A signature with pinned shapes. It is called with arrays by input name; `concrete` is its traced form.

    root: the object that holds the variables. inputs: with the shape of one sample, batch included, also where the
    traced batch is open. outputs: name → numpy dtype. open_outputs: those with a dimension that TensorFlow cannot tell
    before it runs. batch_of_one: whether every open batch is now 1.
    pinned: the directory of the SavedModel saved again, None where that cannot be. notes: for a person.
    """

    key: str
    tags: tuple[str, ...]
    root: Any
    concrete: Any
    inputs: tuple[InputInfo, ...]
    outputs: Mapping[str, str]
    open_outputs: tuple[str, ...]
    batch_of_one: bool
    pinned: Path | None
    source: Source
    notes: tuple[str, ...]

    def __call__(self, sample: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """Run one sample in TensorFlow."""
        import tensorflow as tf  # noqa: PLC0415  # slow to import, and only for a child process

        answer = self.concrete(**{name: tf.constant(value) for name, value in sample.items()})
        return {name: np.asarray(value) for name, value in answer.items()}


def load(options: Options, folder: Path) -> Loaded:
    """Load the model, choose its tag set and signature, pin every shape. `folder` is for files on the way.

    Raises BadDataError (nothing to choose from, an input or weight that cannot be used), UsageError (a flag is needed,
    or names something that is not there) or UnavailableError (a package is needed); each lists what exists.
    """
    given, where = front.find(options.model), str(options.model)
    path = given.path if given.kind == front.SAVED_MODEL else kerasfile.export(given, folder)
    graphs = loader.metagraphs(path, where)
    graph = graphs[choose_tags(graphs, options.tags, where)]
    key = choose_signature(list(graph.signatures), options.signature, where)
    refuse_unusable(graph.signatures, key, f"{where}, signature {key!r}")
    root, call = loader.function(path, graph, key, where)
    finite.check_weights(getattr(call, "variables", ()), where)
    specs = _specs(graph.signatures[key].inputs)
    _check_input_names(specs, f"{where}, signature {key!r}")
    asked = Asked(options.batch, options.shapes, options.dynamic_batch)
    fixed = shapes.pin({name: _dims(spec.shape) for name, spec in specs.items()}, asked, f"{where}, signature {key!r}")
    concrete = _trace(call, specs, fixed)
    made = {name: _dims(spec.shape) for name, spec in sorted(concrete.structured_outputs.items())}
    _check_outputs(made, f"{where}, signature {key!r}")
    return Loaded(
        key=key,
        tags=tuple(sorted(graph.tags)),
        root=root,
        concrete=concrete,
        inputs=tuple(InputInfo(name, _dtype(spec), fixed.fed[name]) for name, spec in specs.items()),
        outputs={name: _dtype(spec) for name, spec in sorted(concrete.structured_outputs.items())},
        open_outputs=tuple(name for name, dims in made.items() if dims is None or None in dims),
        batch_of_one=fixed.batch_of_one,
        # Before anything runs: a model with state is converted with the state it was saved with.
        pinned=_save(root, key, concrete, folder / "pinned"),
        source=_source(given, graphs, graph, key, fixed),
        notes=(*given.notes, *((_OPEN,) if options.dynamic_batch else ()), *finite.notes(concrete, given.shown)),
    )


def _source(
    given: Given, graphs: Mapping[frozenset[str], MetaGraph], graph: MetaGraph, key: str, fixed: Shapes
) -> Source:
    kind = f"{given.kind} of TensorFlow 1" if graph.version == 1 else given.kind
    return Source(
        path=given.shown,
        kind=kind,
        size=given.size,
        signature=key,
        signatures=tuple(graph.signatures),
        tags=tuple(sorted(graph.tags)),
        tag_sets=tuple(sorted(map(_tags_text, graphs))),
        pinned=fixed.pinned,
    )


def choose_tags(known: Iterable[frozenset[str]], asked: str, where: str) -> frozenset[str]:
    """Return the tag set asked for (`a,b`; `,` for the empty one), or `serve`.

    Raises UsageError listing the sets there are.
    """
    sets = list(known)
    wanted = frozenset(filter(None, asked.split(","))) if asked else DEFAULT_TAGS
    if wanted in sets:
        return wanted
    listed = "; ".join(sorted(map(_tags_text, sets)))
    raise UsageError(where, f"no tag set {','.join(sorted(wanted))!r}; it has: {listed}", "choose one with --tags")


def _tags_text(tags: frozenset[str]) -> str:
    return ",".join(sorted(tags)) or ", (the empty set)"


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


def refuse_unusable(signatures: Mapping[str, Any], key: str, where: str) -> None:
    """Raise BadDataError for a signature with an input or output that is no array of numbers, or without inputs.

    The error names the signatures that would do. signatures: key → SignatureDef.
    """
    what = _unusable(signatures[key])
    if not what:
        return
    others = [f"--signature {other}" for other in signatures if not _unusable(signatures[other])]
    advice = " or ".join(others) if others else "export a signature that takes and gives numbers alone"
    raise BadDataError(where, what, advice)


def _unusable(signature: Any) -> str:
    from tensorflow import dtypes  # noqa: PLC0415  # child process only

    if not signature.inputs:
        return "takes no input"
    if not signature.outputs:
        return "has no output"
    odd = (dtypes.string, dtypes.resource, dtypes.variant)
    for side, tensors in (("input", signature.inputs), ("output", signature.outputs)):
        for name in sorted(tensors):
            dtype = dtypes.as_dtype(tensors[name].dtype)
            if dtype in odd:
                told = "only a server with TensorFlow can serve it"
                return f"{side} {name!r} is of dtype {dtype.name}, no numbers: {told}"
    return ""


def _check_input_names(names: Iterable[str], where: str) -> None:
    for name in names:
        if name == "self" or not _NAME.fullmatch(name):
            what = f"TensorFlow cannot convert an input named {name!r}"
            raise BadDataError(where, what, "rename it in the signature: letters, digits, _ and -, and not `self`")


def _check_outputs(outputs: Mapping[str, shapes.Dims | None], where: str) -> None:
    for name, dims in outputs.items():
        if dims is not None and 0 in dims:
            shown = ", ".join("?" if size is None else str(size) for size in dims)
            what = f"output {name!r} of shape [{shown}] holds no value"
            raise BadDataError(where, what, "leave it out of the signature")


def _specs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return name → tf.TensorSpec of a SignatureDef's inputs."""
    import tensorflow as tf  # noqa: PLC0415  # child process only

    return {
        name: tf.TensorSpec(tf.TensorShape(info.tensor_shape), tf.as_dtype(info.dtype), name=name)
        for name, info in sorted(inputs.items())
    }


def _dims(shape: Any) -> shapes.Dims | None:
    return None if shape.rank is None else tuple(shape.as_list())


def _dtype(spec: Any) -> str:
    return np.dtype(spec.dtype.as_numpy_dtype).name


def _trace(call: loader.Call, specs: Mapping[str, Any], fixed: Shapes) -> Any:
    import tensorflow as tf  # noqa: PLC0415  # child process only

    traced = {name: tf.TensorSpec(fixed.traced[name], spec.dtype, name=name) for name, spec in specs.items()}
    # Called by a lambda: the function itself keeps its own, unpinned shapes.
    return tf.function(lambda **tensors: call(**tensors)).get_concrete_function(**traced)  # noqa: PLW0108


def _save(root: Any, key: str, concrete: Any, path: Path) -> Path | None:
    import tensorflow as tf  # noqa: PLC0415  # child process only

    try:
        tf.saved_model.save(root, str(path), signatures={key: concrete})
    except (AssertionError, ValueError, TypeError, AttributeError, KeyError):
        # Some objects (of older TensorFlow, or half restored) cannot be saved again; their graph can still be frozen.
        return None
    return path

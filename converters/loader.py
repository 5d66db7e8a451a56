"""Loading what a SavedModel holds, of any age. Runs in the child process that has imported TensorFlow.

`metagraphs` reads without running anything; `function` gives one signature as something to call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edged.errors import BadDataError
from edged.shown import first_line

# Bookkeeping of TensorFlow itself, never what a person wants served.
_INTERNAL = frozenset({"__saved_model_init_op", "__saved_model_train_op"})
# Variables that are values and not handles: TensorFlow 2 runs them, and can neither save nor convert them.
_REFERENCES = frozenset({"Variable", "VariableV2", "AutoReloadVariable"})
# What TensorFlow raises for files that it cannot load, beside its own errors.
_FAULTS = (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, RuntimeError)
_UNKNOWN_OP = re.compile(r"Op type not registered '([^']+)'")

Call = Callable[..., Mapping[str, Any]]


@dataclass(frozen=True)
class MetaGraph:
    """One tag set of a SavedModel: signature key → SignatureDef.

    version: of TensorFlow's format, 1 or 2. references: whether its variables are those of the first TensorFlow.
    """

    tags: frozenset[str]
    signatures: Mapping[str, Any]
    version: int
    references: bool


def metagraphs(path: Path, where: str) -> dict[frozenset[str], MetaGraph]:
    """Return tag set → what it holds. Raises BadDataError for a damaged file."""
    from tensorflow.python.saved_model import loader_impl  # noqa: PLC0415  # child process only

    try:
        parsed = loader_impl.parse_saved_model(str(path))
    except OSError as exc:
        raise BadDataError(where, f"cannot be read as a SavedModel: {first_line(exc)}") from exc
    found = [_metagraph(graph) for graph in parsed.meta_graphs]
    if not found:
        raise BadDataError(where, "holds no graph")
    return {graph.tags: graph for graph in found}


def _metagraph(proto: Any) -> MetaGraph:
    signatures = {key: proto.signature_def[key] for key in sorted(proto.signature_def) if key not in _INTERNAL}
    ops = {node.op for node in proto.graph_def.node}
    version = 2 if proto.HasField("object_graph_def") else 1
    return MetaGraph(frozenset(proto.meta_info_def.tags), signatures, version, not _REFERENCES.isdisjoint(ops))


def function(path: Path, graph: MetaGraph, key: str, where: str) -> tuple[Any, Call]:
    """Return the object that holds the variables, and the signature: tensors by name in, tensors by name out.

    Raises BadDataError when TensorFlow cannot load it.
    """
    import tensorflow as tf  # noqa: PLC0415  # child process only

    try:
        if graph.references:
            return tf.Module(), _frozen(path, graph, key)
        root = _load(path, graph.tags)
        return root, root.signatures[key]
    except (tf.errors.OpError, *_FAULTS) as exc:
        unknown = _UNKNOWN_OP.findall(str(exc))
        if unknown:
            raise BadDataError(where, f"needs the op {unknown[0]!r}, which this TensorFlow does not have") from exc
        raise BadDataError(where, f"cannot be loaded: {first_line(exc)}") from exc


def _load(path: Path, tags: frozenset[str]) -> Any:
    import tensorflow as tf  # noqa: PLC0415  # child process only

    try:
        return tf.saved_model.load(str(path), tags=sorted(tags))
    except AttributeError as exc:
        if "add_slot" not in str(exc):
            raise
    _register_optimizer()
    return tf.saved_model.load(str(path), tags=sorted(tags))


def _register_optimizer() -> None:
    """Make TensorFlow restore an optimizer of Keras 2 as one that only keeps its slots.

    Keras 2 registers a class for this when it is imported; serving needs no more of it than a place for the values.
    """
    import tensorflow as tf  # noqa: PLC0415  # child process only

    class Slots(tf.__internal__.tracking.AutoTrackable):  # type: ignore[misc]  # TensorFlow has no types
        def add_slot(self, var: Any, slot_name: str) -> Any:
            return tf.Variable(tf.zeros_like(var), trainable=False, name=slot_name)

    internal = tf.__internal__.saved_model.load
    # The numbers are those that Keras 2 writes and asks for.
    version = internal.VersionedTypeRegistration(
        object_factory=lambda _: Slots(), version=2, min_producer_version=1, min_consumer_version=1
    )
    internal.register_revived_type("optimizer", lambda made: isinstance(made, Slots), versions=[version])


def _frozen(path: Path, graph: MetaGraph, key: str) -> Call:
    """Return a signature of TensorFlow 1 whose variables have become constants."""
    import tensorflow as tf  # noqa: PLC0415  # child process only

    v1, signature = tf.compat.v1, graph.signatures[key]
    inputs = {name: info.name for name, info in sorted(signature.inputs.items())}
    outputs = {name: info.name for name, info in sorted(signature.outputs.items())}
    with v1.Session(graph=tf.Graph()) as session:
        v1.saved_model.loader.load(session, sorted(graph.tags), str(path))
        nodes = sorted({tensor.partition(":")[0] for tensor in outputs.values()})
        constants = v1.graph_util.convert_variables_to_constants(session, session.graph.as_graph_def(), nodes)

    def call(**tensors: Any) -> dict[str, Any]:
        given = {inputs[name]: tensor for name, tensor in tensors.items()}
        found = tf.graph_util.import_graph_def(constants, given, list(outputs.values()), name="")
        return dict(zip(outputs, found, strict=True))

    return call

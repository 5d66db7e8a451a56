"""What each op of a model file works on: whole numbers, real numbers, or both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from edged.engines.tflite_file import Graph, ModelFile, Op, Tensor

Kind = Literal["int8", "int16", "float", "hybrid", "other"]

FLOATS = frozenset({"float16", "float32", "float64", "bfloat16"})
# One byte or less for each value.
NARROW = frozenset({"int8", "uint8", "int4", "uint4", "int2"})
# What is only read is a constant.
_ASSIGN = ("ASSIGN_VARIABLE", "FlexAssign")
# They cross the border between the kinds, and belong to neither side of it.
_BORDER = frozenset({"QUANTIZE", "DEQUANTIZE"})
# They ask for a tensor's shape alone.
_SHAPES = frozenset({"RANK", "SHAPE"})
# They compute nothing themselves: the ops of their bodies are counted.
_CONTROL = frozenset({"CALL", "CALL_ONCE", "IF", "STABLEHLO_CASE", "STABLEHLO_COMPOSITE", "STABLEHLO_WHILE", "WHILE"})


@dataclass(frozen=True)
class Node:
    """One op of the main graph. tensor: the name of its first output.

    kind: `int8`, `int16`: it works on quantized values of 8 or 16 bits; `float`: it touches a float tensor; `hybrid`:
    so it does, with weights of 8 bits; `other`: neither (shapes, indices, control flow), or a change between the kinds.
    """

    index: int
    op: str
    version: int
    kind: Kind
    custom: bool
    tensor: str


def nodes(graph: Graph) -> tuple[Node, ...]:
    """Return the ops of a graph, in order."""
    return tuple(
        Node(
            index,
            op.name,
            op.version,
            _kind(op, graph),
            op.custom,
            next((t.name for t in _tensors(op.outputs, graph)), ""),
        )
        for index, op in enumerate(graph.ops)
    )


def kinds(model: ModelFile) -> Mapping[str, int]:
    """Count the ops of all graphs, bodies of loops included, by kind; every kind has an entry."""
    found: Counter[str] = Counter({"int8": 0, "int16": 0, "float": 0, "hybrid": 0, "other": 0})
    found.update(kind for _, kind in every_op(model))
    return dict(found)


def float_ops(model: ModelFile) -> tuple[str, ...]:
    """Return the names of the ops of all graphs that work on real numbers."""
    return tuple(sorted({name for name, kind in every_op(model) if kind in ("float", "hybrid")}))


def integer_share(counts: Mapping[str, int]) -> float:
    """Return the share of integer ops among those that compute; 1 where none does."""
    integer = counts["int8"] + counts["int16"]
    total = integer + counts["float"] + counts["hybrid"]
    return integer / total if total else 1.0


def custom_ops(model: ModelFile, *, flex: bool) -> tuple[str, ...]:
    """Return the names of the ops that a runtime does not bring along: TensorFlow's own (flex), or the others."""
    names = {op.name for graph in model.graphs for op in graph.ops if op.custom and op.flex is flex}
    return tuple(sorted(names))


def counts(model: ModelFile) -> Mapping[str, int]:
    """Count the ops of all graphs, bodies of loops included, by name."""
    return dict(sorted(Counter(op.name for graph in model.graphs for op in graph.ops).items()))


def stateful(model: ModelFile) -> bool:
    """Whether an answer may depend on earlier requests: an op writes a variable, or has a tensor that outlives a run.

    What a CALL_ONCE runs gives variables their first values and is no state.
    """
    first = {op.once for graph in model.graphs for op in graph.ops if op.once >= 0}
    return any(_writes(op, graph) for at, graph in enumerate(model.graphs) if at not in first for op in graph.ops)


def _writes(op: Op, graph: Graph) -> bool:
    return op.name.startswith(_ASSIGN) or any(t.variable for t in _tensors((*op.inputs, *op.outputs), graph))


def constants(model: ModelFile) -> Iterator[Tensor]:
    """Yield every constant; bytes that several tensors share belong to the first of them."""
    seen: set[int] = set()
    for graph in model.graphs:
        for tensor in graph.tensors:
            if tensor.data and id(tensor.data) not in seen:
                seen.add(id(tensor.data))
                yield tensor


def dtypes(model: ModelFile) -> Mapping[str, tuple[int, int]]:
    """Return dtype → (tensors, bytes of constants), of all graphs."""
    tensors = Counter(tensor.dtype for graph in model.graphs for tensor in graph.tensors)
    sizes: Counter[str] = Counter()
    for tensor in constants(model):
        sizes[tensor.dtype] += len(tensor.data)
    return {dtype: (count, sizes[dtype]) for dtype, count in sorted(tensors.items())}


def every_op(model: ModelFile) -> Iterator[tuple[str, Kind]]:
    """Yield the name and kind of every op of all graphs, in order."""
    for graph in model.graphs:
        for op in graph.ops:
            yield op.name, _kind(op, graph)


def _kind(op: Op, graph: Graph) -> Kind:
    if op.name in _BORDER | _CONTROL | _SHAPES:
        return "other"
    inputs, outputs = list(_tensors(op.inputs, graph)), list(_tensors(op.outputs, graph))
    if any(tensor.dtype in FLOATS for tensor in inputs + outputs):
        return "hybrid" if any(_narrow_weight(tensor) for tensor in inputs) else "float"
    # The answer decides: the weights of 16-bit arithmetic have 8 bits, the inner state of an 8-bit LSTM 16.
    quantized = _quantized(outputs) or _quantized(inputs)
    if quantized & NARROW:
        return "int8"
    return "int16" if "int16" in quantized else "other"


def _quantized(tensors: list[Tensor]) -> set[str]:
    return {tensor.dtype for tensor in tensors if tensor.scales}


def _narrow_weight(tensor: Tensor) -> bool:
    return bool(tensor.data and tensor.scales) and tensor.dtype in NARROW


def _tensors(indices: tuple[int, ...], graph: Graph) -> Iterator[Tensor]:
    return (graph.tensors[index] for index in indices if index >= 0)

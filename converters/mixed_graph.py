"""The layers of a float .tflite: what a search may keep float, in the order they run.

A layer is an op that computes, with the ops behind it that only move data (reshape, pad, concatenate): to quantize the
one and not the other gains nothing. What moves data before any op computes belongs to the layer that reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from edged.engines.tflite_file import Graph

# They copy values, at one scale: no arithmetic of their own.
_MOVING = frozenset(
    {
        "RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE", "PAD", "MIRROR_PAD", "SLICE", "STRIDED_SLICE", "SPLIT",
        "SPLIT_V", "PACK", "UNPACK", "CONCATENATION", "GATHER", "GATHER_ND", "TILE", "BROADCAST_TO",
        "SPACE_TO_DEPTH", "DEPTH_TO_SPACE", "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND", "REVERSE_V2",
        "RESIZE_NEAREST_NEIGHBOR", "MAX_POOL_2D",
    }
)  # fmt: skip
_FLOAT = "float32"


@dataclass(frozen=True)
class Layer:
    """name: its op's output tensor, shortened. op: builtin name. outputs: of every op of the layer, in full.

    several: its ops that have more than one output, which the converter does not know by name. weights: its float
    constants, tensor index → bytes. near: the layers that it reads from or that read it.
    """

    name: str
    op: str
    outputs: tuple[str, ...]
    several: frozenset[str] = frozenset()
    weights: dict[int, int] = field(default_factory=dict)
    near: frozenset[int] = frozenset()


@dataclass
class _Draft:
    op: int
    members: list[int]


def layers(graph: Graph) -> tuple[Layer, ...]:
    """Return the layers of a graph. Ops that touch no real numbers (shapes, indices) are in none of them."""
    drafts = _grouped(graph)
    owner = {member: number for number, draft in enumerate(drafts) for member in draft.members}
    near = _neighbours(graph, owner, len(drafts))
    return tuple(_layer(graph, draft, near[number]) for number, draft in enumerate(drafts))


def _layer(graph: Graph, draft: _Draft, near: frozenset[int]) -> Layer:
    op, tensors = graph.ops[draft.op], graph.tensors
    members = [graph.ops[member] for member in sorted(draft.members)]
    outputs = tuple(tensors[i].name for member in members for i in member.outputs)
    several = frozenset(member.name for member in members if len(member.outputs) > 1)
    inputs = sorted({i for member in members for i in member.inputs if i >= 0})
    weights = {i: len(tensors[i].data) for i in inputs if tensors[i].dtype == _FLOAT and tensors[i].data}
    # The converter joins the names of everything that it fused; the first says enough.
    return Layer(tensors[op.outputs[0]].name.split(";")[0], op.name, outputs, several, weights, near)


def _grouped(graph: Graph) -> list[_Draft]:
    maker = {tensor: index for index, op in enumerate(graph.ops) for tensor in op.outputs}
    of: dict[int, _Draft] = {}
    drafts: list[_Draft] = []
    leading: list[int] = []
    for index, op in enumerate(graph.ops):
        if not _computes_float(graph, index):
            continue
        before = [of[maker[i]] for i in op.inputs if maker.get(i) in of]
        if op.name in _MOVING and before:
            of[index] = max(before, key=lambda draft: draft.op)
        elif op.name in _MOVING:
            leading.append(index)
            continue
        else:
            of[index] = _Draft(index, [])
            drafts.append(of[index])
        of[index].members.append(index)
    _join_leading(graph, leading, of, drafts)
    return drafts


def _join_leading(graph: Graph, leading: Sequence[int], of: dict[int, _Draft], drafts: list[_Draft]) -> None:
    """Give ops that move an input's data to the first layer that reads them; backwards, for they may be chained."""
    reading = _readers(graph)
    for index in reversed(leading):
        readers = [of[reader] for reader in reading[index] if reader in of]
        if readers:
            of[index] = min(readers, key=lambda draft: draft.op)
        else:
            of[index] = _Draft(index, [])
            drafts.insert(0, of[index])
        of[index].members.append(index)


def _readers(graph: Graph) -> list[list[int]]:
    """Return for every op the ops that read what it makes, in the order they run."""
    maker = {tensor: index for index, op in enumerate(graph.ops) for tensor in op.outputs}
    readers: list[list[int]] = [[] for _ in graph.ops]
    for index, op in enumerate(graph.ops):
        for made in sorted({maker[tensor] for tensor in op.inputs if tensor in maker}):
            readers[made].append(index)
    return readers


def _computes_float(graph: Graph, op: int) -> bool:
    touched = [i for i in (*graph.ops[op].inputs, *graph.ops[op].outputs) if i >= 0]
    return any(graph.tensors[i].dtype == _FLOAT and not graph.tensors[i].data for i in touched)


def _neighbours(graph: Graph, owner: dict[int, int], count: int) -> list[frozenset[int]]:
    near: list[set[int]] = [set() for _ in range(count)]
    reading = _readers(graph)
    for index, number in owner.items():
        for reader in reading[index]:
            other = owner.get(reader, number)
            if other != number:
                near[number].add(other)
                near[other].add(number)
    return [frozenset(numbers) for numbers in near]


def closed(floats: frozenset[int], known: Sequence[Layer]) -> frozenset[int]:
    """Return `floats` and the layers without weights that stand between float layers only.

    To quantize those would save no byte, and cost a conversion there and back.
    """
    found, seen = set(floats), set(floats)
    for number, layer in enumerate(known):
        if layer.weights or number in seen:
            continue
        island, shore = _island(number, floats, known)
        seen |= island
        if shore and shore <= floats:
            found |= island
    return frozenset(found)


def _island(start: int, floats: frozenset[int], known: Sequence[Layer]) -> tuple[set[int], set[int]]:
    """Return the int8 layers without weights around `start`, and the layers around those."""
    island, shore, todo = {start}, set[int](), [start]
    while todo:
        for other in known[todo.pop()].near - island:
            if known[other].weights or other in floats:
                shore.add(other)
            else:
                island.add(other)
                todo.append(other)
    return island, shore


def float_bytes(numbers: Sequence[int], known: Sequence[Layer]) -> int:
    """Return the bytes of the float constants of some layers; one that several of them share counts once."""
    return sum({tensor: size for number in numbers for tensor, size in known[number].weights.items()}.values())


def described(numbers: Sequence[int], known: Sequence[Layer]) -> tuple[str, str]:
    """Return a name and the ops of consecutive layers, for a table."""
    first, last = known[numbers[0]], known[numbers[-1]]
    if len(numbers) == 1:
        return first.name, first.op
    ops = Counter(known[number].op for number in numbers)
    names = f"{first.name} … {last.name} ({len(numbers)} layers)"
    return names, ", ".join(f"{count}x {op}" if count > 1 else op for op, count in sorted(ops.items()))

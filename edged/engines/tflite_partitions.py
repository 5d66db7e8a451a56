"""Which ops of a model's main graph a delegate runs, and in how many pieces (partitions).

Measured: read from an interpreter that has allocated its tensors. Told ahead: the rule by which TFLite cuts a graph.
Bodies of WHILE, IF and CALL_ONCE are graphs of their own and are not looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import accumulate, pairwise
from typing import Any

from edged.engines import tflite_delegated
from edged.engines.tflite_delegated import Node
from edged.engines.tflite_file import Graph, Op

CPU, UNTOLD = -1, -2
_LEFT_OUT = -1
_BRANCHING = frozenset({"IF", "WHILE", "CALL_ONCE"})


def partitions(interpreter: Any, graph: Graph) -> tuple[tuple[int, ...], int]:
    """Return for every op of the main graph the number of the partition that took it, and how many there are.

    -1 stands for the CPU, -2 for an op that a partition may hold or not: the runtime does not tell.
    interpreter: of either runtime, with any delegates, after allocate_tensors and without preserve_all_tensors, which
    turns delegation off or cuts it op by op. graph: the main graph of the same file.
    Raises ValueError when the runtime lists other ops than the file.
    """
    nodes = tflite_delegated.listed(interpreter)
    own = tflite_delegated.own(nodes)
    if len(own) != len(graph.ops) or not all(_same(nodes[place], op) for place, op in zip(own, graph.ops, strict=True)):
        raise ValueError("the runtime lists other ops than the file holds")
    taken = tflite_delegated.taken(nodes)
    told = dict.fromkeys(tflite_delegated.untold(nodes, taken, set(graph.outputs)), UNTOLD) | taken
    return tuple(told.get(place, CPU) for place in own), len(tflite_delegated.delegates(nodes))


def _same(node: Node, op: Op) -> bool:
    # The runtimes put -1 for outputs of a WHILE that nobody reads.
    outputs = list(map(int, node["outputs"]))
    return len(outputs) == len(op.outputs) and all(
        a in {_LEFT_OUT, b} for a, b in zip(outputs, op.outputs, strict=True)
    )


def cut(graph: Graph, wanted: Sequence[bool]) -> tuple[int, ...]:
    """Return the partitions that TFLite forms of the ops a delegate wants: per op a number, or -1.

    The rule is that of PartitionGraphIntoIndependentNodeSubsets in tensorflow/lite/graph_info.cc: of the ops whose
    inputs are there, the first decides whether the next piece is the delegate's; every op that is ready and of that
    kind joins it, later ones too. Ops with side effects keep their order.
    """
    waiting, taken, number = _Waiting(graph, wanted), [CPU] * len(graph.ops), 0
    # Ops that wait for each other, which no converter writes, stay on the CPU.
    while piece := waiting.piece():
        if wanted[piece[0]]:
            for index in piece:
                taken[index] = number
            number += 1
    return tuple(taken)


def cut_in_order(wanted: Sequence[bool]) -> tuple[int, ...]:
    """Return the partitions of a compiler that cuts the list of ops as it stands: every run is one."""
    starts = accumulate(now and not before for before, now in pairwise((False, *wanted)))
    return tuple(count - 1 if now else CPU for count, now in zip(starts, wanted, strict=True))


class _Waiting:
    """Tells which ops are ready: their inputs are there, and the op with side effects before them has run.

    Each op is touched once for each op it waits for, however many pieces there are.
    """

    def __init__(self, graph: Graph, wanted: Sequence[bool]) -> None:
        self._wanted = wanted
        maker = {tensor: index for index, op in enumerate(graph.ops) for tensor in op.outputs}
        waits = [{maker[tensor] for tensor in op.inputs if tensor in maker} for op in graph.ops]
        for earlier, later in pairwise(index for index, op in enumerate(graph.ops) if _has_effects(graph, op)):
            waits[later].add(earlier)
        self._left = [len(before) for before in waits]
        self._freed: dict[int, list[int]] = defaultdict(list)
        for index, before in enumerate(waits):
            for earlier in before:
                self._freed[earlier].append(index)
        self._ready: dict[bool, list[int]] = {True: [], False: []}  # heaps, for the ops run in the file's order
        for index, count in enumerate(self._left):
            if not count:
                heappush(self._ready[wanted[index]], index)

    def piece(self) -> list[int]:
        """Return the ops of the next piece, in the order they run: all of one kind. Empty at the end."""
        ready = min(filter(None, self._ready.values()), key=lambda heap: heap[0], default=[])
        piece: list[int] = []
        while ready:
            index = heappop(ready)
            piece.append(index)
            for later in self._freed[index]:
                self._left[later] -= 1
                if not self._left[later]:
                    heappush(self._ready[self._wanted[later]], later)
        return piece


def _has_effects(graph: Graph, op: Op) -> bool:
    touched = (graph.tensors[tensor].dtype for tensor in (*op.inputs, *op.outputs) if tensor >= 0)
    return op.name in _BRANCHING or "resource" in touched

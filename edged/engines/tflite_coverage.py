"""How much of a model file each delegate takes by its documented op table: no runtime and no device is needed.

Of the file only the main graph is looked at. What is told is an upper bound: see `delegates.optables`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from delegates.optables import OpFacts, Table, Tensor, accepts
from delegates.optables_devices import ARMNN, EDGETPU, ETHOS_U, GPU, NEUTRON, VX
from delegates.optables_litert import GPU as LITERT_GPU
from delegates.optables_litert import NEURON, OPENVINO, QNN, XNNPACK_LITERT, XNNPACK_TFLITE
from edged.engines.tflite_file import Graph, ModelFile
from edged.engines.tflite_partitions import CPU, cut, cut_in_order

TABLES: tuple[Table, ...] = (GPU, LITERT_GPU, EDGETPU, ETHOS_U, VX, NEUTRON, QNN, ARMNN, NEURON, OPENVINO)
# XNNPACK by its document, for a runtime (by package name) that is not here to be measured.
XNNPACK = {"ai-edge-litert": XNNPACK_LITERT, "tflite-runtime": XNNPACK_TFLITE}

_PAST = {"first": "after the first op that it refuses", "largest": "outside the largest partition"}


@dataclass(frozen=True)
class Covered:
    """What one table says of one graph. refused: per op why the CPU keeps it, "" where the delegate takes it.

    partition: per op the number of its partition, or -1.
    """

    table: Table
    names: tuple[str, ...]
    refused: tuple[str, ...]
    partition: tuple[int, ...]

    @property
    def taken(self) -> int:
        """How many ops the delegate takes."""
        return sum(number != CPU for number in self.partition)

    @property
    def partitions(self) -> int:
        """How many pieces they form."""
        return len(set(self.partition) - {CPU})

    @property
    def refusals(self) -> tuple[tuple[str, int, str], ...]:
        """Op, count, reason; the most frequent first, ties in the graph's order."""
        counts = Counter((name, why) for name, why in zip(self.names, self.refused, strict=True) if why)
        return tuple((name, count, why) for (name, why), count in counts.most_common())


def covered(model: ModelFile, table: Table) -> Covered:
    """Apply a table to the main graph."""
    graph = model.graphs[0]
    refused = [accepts(table, op) for op in facts(graph)]
    wanted = [not why for why in refused]
    partition = _kept(table, cut_in_order(wanted) if table.in_order else cut(graph, wanted))
    for index, number in enumerate(partition):
        if number == CPU and not refused[index]:
            refused[index] = _PAST[table.keep]
    return Covered(table, tuple(op.name for op in graph.ops), tuple(refused), partition)


def facts(graph: Graph) -> list[OpFacts]:
    """Return what a table may ask about each op."""
    flowing = {t for op in graph.ops for t in op.outputs} | set(graph.inputs)
    tensors = [
        Tensor(t.dtype, t.signature or t.shape, constant=number not in flowing and not t.variable)
        for number, t in enumerate(graph.tensors)
    ]
    return [
        OpFacts(
            op.name,
            [tensors[t] if t >= 0 else None for t in op.inputs],
            [tensors[t] for t in op.outputs if t >= 0],
            custom=op.custom,
            activation=op.activation,
        )
        for op in graph.ops
    ]


def _kept(table: Table, partition: Sequence[int]) -> tuple[int, ...]:
    """Keep the partitions that the delegate takes, numbered again from 0."""
    sizes = Counter(number for number in partition if number != CPU)
    order = list(sizes) if table.keep == "first" else [number for number, _ in sizes.most_common()]
    kept = sorted(order[: table.most or None])
    return tuple(kept.index(number) if number in kept else CPU for number in partition)

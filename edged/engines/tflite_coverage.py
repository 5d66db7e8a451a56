"""How much of a model file each delegate takes, and how that is known.

XNNPACK is measured on the runtimes that are installed. What is not here is told by its documented op table, which gives
an upper bound: see `delegates.oprules`. Of the file only the main graph is looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from delegates.oprules import OpFacts, Table, Tensor, accepts
from delegates.optables import TABLES
from edged.engines import tflite_runtime
from edged.engines.tflite_file import Graph, ModelFile
from edged.engines.tflite_partitions import CPU, UNTOLD, cut, cut_in_order
from edged.engines.tflite_tried import Tried

Known = Literal["measured", "documented"]

XNNPACK = "xnnpack"

_PAST = {"first": "after the first op that it refuses", "largest": "outside the largest partition"}
# Models of the field have some thousands; a file made to do harm may have millions.
_MOST_LINKS = 50_000
# How the reason of a row begins that says nothing of the delegate.
NOT_TOLD = "not told"
_RUNTIMES = {table.document: table.runtime for table in TABLES}


@dataclass(frozen=True)
class Refusal:
    """Ops that a delegate leaves to the CPU: the op's name, how many of them, and why where that is known."""

    op: str
    count: int
    reason: str = ""


@dataclass(frozen=True)
class Coverage:
    """How much of the main graph a delegate takes.

    how: `measured` by loading the model on a runtime here, or `documented`: what the delegate's table of ops tells,
    which is an upper bound. source: that runtime with its version, or the document's title, edition and address.
    taken, total: ops; see `bound`. partitions: pieces that the delegate takes, each in one call.
    refused: what it leaves, the most frequent first, an op once for every reason; measured ones have none.
    partition: for every op of the main graph in order, the number of its partition, -1 for the CPU, -2 where a runtime
    does not tell which of the two; empty where the delegate cannot serve at all, and `reason` says why.
    """

    delegate: str
    how: Known
    source: str
    taken: int
    total: int
    partitions: int
    refused: tuple[Refusal, ...] = ()
    partition: tuple[int, ...] = ()
    reason: str = ""

    @property
    def runtime(self) -> str:
        """The package name of the runtime that brings the delegate along, "" where none does."""
        return self.source.partition(" ")[0] if self.how == "measured" else _RUNTIMES.get(self.source, "")

    @property
    def bound(self) -> Literal["", "at least", "at most"]:
        """What stands before `taken`: a document tells the most, a runtime that does not name every op the least."""
        if self.how == "documented":
            return "at most" if self.taken else ""
        return "at least" if UNTOLD in self.partition or len(_pieces(self.partition)) < self.partitions else ""

    @property
    def name(self) -> str:
        """What tells this row from all others: `edgetpu`, `xnnpack (ai-edge-litert 2.3.0)`."""
        which = self.source if self.how == "measured" else self.runtime
        return f"{self.delegate} ({which})" if which else self.delegate


def names() -> tuple[str, ...]:
    """Return every delegate of which something can be told, sorted."""
    return tuple(sorted({table.name for table in TABLES}))


def rows(model: ModelFile, runtimes: Iterable[Tried]) -> tuple[Coverage, ...]:
    """Return a row of each delegate: XNNPACK of each runtime first, those that were tried before those that are absent.

    runtimes: what became of the file on the runtimes that are installed.
    """
    return (*(of_runtime(model, one) for one in runtimes), *documented(model))


def of_runtime(model: ModelFile, tried: Tried) -> Coverage:
    """Return what a runtime's XNNPACK takes: measured, or by its document where the runtime cannot tell."""
    if tried.partition is not None:
        return from_partition(model.graphs[0], tried.name, tried.partition, tried.pieces)
    if tried.loads is False:
        return Coverage(XNNPACK, "measured", tried.name, 0, len(model.graphs[0].ops), 0, reason=tried.reason)
    return next(by_table(model, table) for table in TABLES if table.runtime == tried.runtime)


def documented(model: ModelFile) -> tuple[Coverage, ...]:
    """Return what each delegate takes by its document, XNNPACK only of the runtimes that are not installed."""
    here = {runtime.name for runtime in tflite_runtime.RUNTIMES if runtime.installed}
    return tuple(by_table(model, table) for table in TABLES if table.runtime not in here)


def without_use(rows: Iterable[Coverage], delegate: str, runtimes: Collection[str] = ()) -> tuple[Coverage, ...]:
    """Return the rows by which a delegate takes nothing of the model; empty where it is of use.

    runtimes: package names. On each of them that brings the delegate along it must take something. Where none does, or
    none is named, one row is enough: of what was measured, and only where nothing was, of what is documented.
    """
    told = [row for row in rows if row.delegate == delegate]
    if named := [row for row in told if row.runtime in runtimes]:
        return tuple(row for row in named if not _of_use(row))
    known = [row for row in told if row.how == "measured"] or told
    return () if any(map(_of_use, known)) else tuple(known)


def _of_use(row: Coverage) -> bool:
    return row.taken > 0 or not row.total or row.reason.startswith(NOT_TOLD)


def from_partition(graph: Graph, runtime: str, partition: Sequence[int], pieces: int = 0) -> Coverage:
    """Return what XNNPACK takes by the partition of each op. runtime: with its version.

    pieces: how many partitions there are, where some hold none of the ops that are told: each has at least one.
    """
    left = [(op.name, "") for op, number in zip(graph.ops, partition, strict=True) if number == CPU]
    told = _coverage(XNNPACK, "measured", runtime, partition, left)
    more = max(0, pieces - told.partitions)
    taken = sum(number >= 0 for number in partition) + more
    return replace(told, taken=taken, partitions=told.partitions + more)


def by_table(model: ModelFile, table: Table) -> Coverage:
    """Apply a table to the main graph; one that is too large for that has a row that says so."""
    graph = model.graphs[0]
    if _links(graph) > _MOST_LINKS:
        reason = f"{NOT_TOLD}: its table is not held against more than {_MOST_LINKS} tensors and ends of ops"
        return Coverage(table.name, "documented", table.document, 0, len(graph.ops), 0, reason=reason)
    why = [accepts(table, op) for op in facts(graph)]
    wanted = [not reason for reason in why]
    partition = _kept(table, cut_in_order(wanted) if table.in_order else cut(graph, wanted))
    left = [
        (op.name, reason or _PAST[table.keep])
        for op, reason, number in zip(graph.ops, why, partition, strict=True)
        if number == CPU
    ]
    covered = _coverage(table.name, "documented", table.document, partition, left)
    if covered.taken or not covered.refused:
        return covered
    first = covered.refused[0]
    return replace(covered, partition=(), reason=f"takes no op; {first.op}: {first.reason}")


def _coverage(
    delegate: str, how: Known, source: str, partition: Sequence[int], left: Sequence[tuple[str, str]]
) -> Coverage:
    refused = tuple(Refusal(op, count, reason) for (op, reason), count in Counter(left).most_common())
    pieces, total = len(_pieces(partition)), len(partition)
    return Coverage(delegate, how, source, total - len(left), total, pieces, refused, tuple(partition))


def _pieces(partition: Sequence[int]) -> set[int]:
    return set(partition) - {CPU, UNTOLD}


def _links(graph: Graph) -> int:
    return len(graph.tensors) + sum(len(op.inputs) + len(op.outputs) for op in graph.ops)


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
    kept = {number: place for place, number in enumerate(sorted(order[: table.most or None]))}
    return tuple(kept.get(number, CPU) for number in partition)

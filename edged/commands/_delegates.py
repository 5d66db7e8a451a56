"""How much of a model each delegate takes: XNNPACK as measured by the runtimes here, the others by their documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from delegates.optables import Table
from edged.commands._runtimes import Tried
from edged.engines import tflite_coverage, tflite_runtime
from edged.engines.tflite_file import ModelFile
from edged.engines.tflite_partitions import CPU

_SHOWN = 3  # refusals in a row of the table; `--json` has them all


def facts(model: ModelFile, runtimes: tuple[Tried, ...]) -> Iterator[dict[str, Any]]:
    """Yield for each delegate how many ops of the main graph it takes, and how that is known.

    `{"delegate", "how": "measured" or "documented", "source", "taken", "total", "partitions", "refused": [{"op",
    "count", "reason"}]}`. What a document tells is an upper bound.
    """
    ops = [op.name for op in model.graphs[0].ops]
    yield from (_measured(one, ops) for one in runtimes if one.partition is not None)
    absent = [tflite_coverage.XNNPACK[one.name] for one in tflite_runtime.RUNTIMES if not one.installed]
    yield from (_documented(model, table) for table in (*absent, *tflite_coverage.TABLES))


def _measured(one: Tried, ops: list[str]) -> dict[str, Any]:
    partition = one.partition or ()
    left = Counter(op for op, number in zip(ops, partition, strict=True) if number == CPU)
    return {
        "delegate": "xnnpack",
        "how": "measured",
        "source": one.runtime,
        "taken": len(ops) - left.total(),
        "total": len(ops),
        "partitions": len(set(partition) - {CPU}),
        "refused": [{"op": op, "count": count, "reason": ""} for op, count in left.most_common()],
    }


def _documented(model: ModelFile, table: Table) -> dict[str, Any]:
    covered = tflite_coverage.covered(model, table)
    return {
        "delegate": table.name,
        "how": "documented",
        "source": f"{table.title}, {table.edition}: {table.source}",
        "taken": covered.taken,
        "total": len(covered.partition),
        "partitions": covered.partitions,
        "refused": [{"op": op, "count": count, "reason": reason} for op, count, reason in covered.refusals],
    }


def row(facts: dict[str, Any]) -> list[str]:
    """Return the table row of one delegate."""
    if facts["how"] == "measured":
        name, amount = f"{facts['delegate']} ({facts['source']}, measured)", ""
    else:
        name, amount = f"{facts['delegate']} (documented)", "at most " * bool(facts["taken"])
    amount += f"{facts['taken']} of {facts['total']} ops"
    if facts["taken"]:
        amount += f" in {facts['partitions']} partition{'s' * (facts['partitions'] > 1)}"
    return ["delegate", f"{name}: {amount}{_left(facts['refused'])}"]


def _left(refused: list[dict[str, Any]]) -> str:
    if not refused:
        return ""
    shown = ", ".join(map(_refusal, refused[:_SHOWN]))
    return f"; not {shown}{', …' * (len(refused) > _SHOWN)}"


def _refusal(refusal: dict[str, Any]) -> str:
    return f"{refusal['op']} {refusal['count']}" + (f" ({refusal['reason']})" if refusal["reason"] else "")

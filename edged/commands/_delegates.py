"""How much of a model each delegate takes, as facts for a program and rows for a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from delegates.compiledops import COMPILED_OPS
from edged.engines import tflite_coverage
from edged.engines.tflite_file import ModelFile
from edged.engines.tflite_tried import Tried
from edged.shown import WORDS, clipped

_SHOWN = 3  # refusals in a row of the table; `--json` has them all


def facts(model: ModelFile, runtimes: tuple[Tried, ...]) -> Iterator[dict[str, Any]]:
    """Yield for each delegate how many ops of the main graph it takes, and how that is known.

    `{"name", "delegate", "how": "measured", "documented" or "compiled", "source", "taken", "total", "partitions",
    "refused": [{"op", "count", "reason"}], "reason", "bound": "at most", "at least" or ""}`. Of a compiled model only
    the delegate is told which it was compiled for: tables of ops say nothing of it.
    """
    if made := list(_compiled(model)):
        yield from made
        return
    for row in tflite_coverage.rows(model, runtimes):
        told = asdict(row)
        del told["partition"]  # by op, and the ops are not listed one by one
        yield {"name": row.name, **told, "bound": row.bound}


def compiled_ops(model: ModelFile) -> list[dict[str, str]]:
    """Return the custom ops that are an accelerator's own code: `{"op", "delegate", "accelerator"}`, by name."""
    names = sorted({op.name for graph in model.graphs for op in graph.ops if op.custom and op.name in COMPILED_OPS})
    return [
        {"op": name, "delegate": COMPILED_OPS[name].delegate, "accelerator": COMPILED_OPS[name].accelerator}
        for name in names
    ]


def _compiled(model: ModelFile) -> Iterator[dict[str, Any]]:
    ops = model.graphs[0].ops
    for made in compiled_ops(model):
        name = made["op"]
        left = Counter(op.name for op in ops if op.name != name)
        yield {
            "name": made["delegate"],
            "delegate": made["delegate"],
            "how": "compiled",
            "source": COMPILED_OPS[name].source,
            "taken": len(ops) - left.total(),
            "total": len(ops),
            "partitions": len(ops) - left.total(),
            "refused": [{"op": op, "count": count, "reason": ""} for op, count in left.most_common()],
            "reason": "",
            "bound": "",
        }


def row(facts: dict[str, Any]) -> list[str]:
    """Return the table row of one delegate."""
    amount = f"{facts['bound']} {facts['taken']} of {facts['total']} ops".lstrip()
    if facts["taken"]:
        amount += f" in {facts['partitions']} partition{'s' * (facts['partitions'] > 1)}"
    told = facts["reason"] if facts["reason"].startswith(tflite_coverage.NOT_TOLD) else f"{amount}{_left(facts)}"
    how = "what it is compiled for" if facts["how"] == "compiled" else facts["how"]
    return ["delegate", f"{facts['name']}, {how}: {told}"]


def _left(facts: dict[str, Any]) -> str:
    refused = facts["refused"]
    if not refused:
        return f"; {clipped(facts['reason'], WORDS)}" * bool(facts["reason"])
    shown = ", ".join(map(_refusal, refused[:_SHOWN]))
    return f"; not {shown}{', …' * (len(refused) > _SHOWN)}"


def _refusal(refusal: dict[str, Any]) -> str:
    return f"{clipped(refusal['op'])} {refusal['count']}" + (f" ({refusal['reason']})" if refusal["reason"] else "")

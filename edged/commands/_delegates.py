"""How much of a model each delegate takes, as facts for a program and rows for a person."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from edged.engines import tflite_coverage
from edged.engines.tflite_file import ModelFile
from edged.engines.tflite_tried import Tried
from edged.shown import WORDS, clipped

_SHOWN = 3  # refusals in a row of the table; `--json` has them all


def facts(model: ModelFile, runtimes: tuple[Tried, ...]) -> Iterator[dict[str, Any]]:
    """Yield for each delegate how many ops of the main graph it takes, and how that is known.

    `{"name", "delegate", "how": "measured" or "documented", "source", "taken", "total", "partitions", "refused":
    [{"op", "count", "reason"}], "reason", "bound": "at most", "at least" or ""}`.
    """
    for row in tflite_coverage.rows(model, runtimes):
        told = asdict(row)
        del told["partition"]  # by op, and the ops are not listed one by one
        yield {"name": row.name, **told, "bound": row.bound}


def row(facts: dict[str, Any]) -> list[str]:
    """Return the table row of one delegate."""
    amount = f"{facts['bound']} {facts['taken']} of {facts['total']} ops".lstrip()
    if facts["taken"]:
        amount += f" in {facts['partitions']} partition{'s' * (facts['partitions'] > 1)}"
    told = facts["reason"] if facts["reason"].startswith(tflite_coverage.NOT_TOLD) else f"{amount}{_left(facts)}"
    return ["delegate", f"{facts['name']}, {facts['how']}: {told}"]


def _left(facts: dict[str, Any]) -> str:
    refused = facts["refused"]
    if not refused:
        return f"; {clipped(facts['reason'], WORDS)}" * bool(facts["reason"])
    shown = ", ".join(map(_refusal, refused[:_SHOWN]))
    return f"; not {shown}{', …' * (len(refused) > _SHOWN)}"


def _refusal(refusal: dict[str, Any]) -> str:
    return f"{clipped(refusal['op'])} {refusal['count']}" + (f" ({refusal['reason']})" if refusal["reason"] else "")

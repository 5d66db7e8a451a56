"""What a device counts itself, and what of it belongs to a run: the difference of two of its metrics messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edged.client.untrusted import mapping, number, parse_object, text, whole
from edged.contract import METRICS_FORMAT
from edged.latency import Histogram
from edged.request import STAGES, Buffer

_MAX_INTERVAL_S = 86_400.0


@dataclass(frozen=True)
class Told:
    """One metrics message. received_ns: monotonic ns here. models, process: as in the message."""

    boot: str
    received_ns: int
    interval_s: float
    models: Mapping[str, Any]
    process: Mapping[str, Any]


def read(payload: Buffer, received_ns: int) -> Told | None:
    """Read a metrics message; None when it is none, or of another format."""
    document = parse_object(payload)
    if document is None or document.get("format") != METRICS_FORMAT:
        return None
    return Told(
        boot=text(document.get("boot")),
        received_ns=received_ns,
        interval_s=number(document.get("interval_s"), _MAX_INTERVAL_S) or 0.0,
        models=mapping(document.get("models")),
        process=mapping(document.get("process")),
    )


@dataclass(frozen=True)
class Difference:
    """What a device counted between two messages. stages: by name, and `total`. cpu_s: its processor time."""

    requests: int
    stages: Mapping[str, Histogram]
    cpu_s: float | None


def difference(before: Told | None, after: Told | None, model: str) -> Difference | str:
    """Return what came between the two, or why that cannot be told."""
    if before is None or after is None or after.received_ns <= before.received_ns:
        return "the device published no metrics before and after the run"
    if before.boot != after.boot:
        return "the device was started anew during the run"
    later, earlier = (mapping(told.models.get(model)) for told in (after, before))
    try:
        stages = {name: _since(later, earlier, name) for name in (*STAGES, "total")}
    except ValueError as error:
        return f"the device's histograms cannot be used: {error}"
    counts = [whole(mapping(body.get("since_start")).get("requests")) or 0 for body in (later, earlier)]
    times = [number(told.process.get("cpu_s")) for told in (after, before)]
    spent = None if times[0] is None or times[1] is None else times[0] - times[1]
    return Difference(counts[0] - counts[1], stages, spent)


def _since(later: Mapping[str, Any], earlier: Mapping[str, Any], stage: str) -> Histogram:
    after, before = (_histogram(mapping(body.get("histograms")).get(stage)) for body in (later, earlier))
    return after.since(before)


def _histogram(value: object) -> Histogram:
    return Histogram.decode(value if isinstance(value, str) else "")  # what is no text is refused like an empty one

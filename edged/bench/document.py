"""What a run came to, as JSON: the one form that the table, the page and the comparison read.

Times in milliseconds, whatever the name ends in. A distribution has its percentiles and, as `histogram`, all of it in
the encoding of `edged.latency`, so that two runs can be compared beyond the percentiles that are written out.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edged.bench.metrics import Difference
from edged.bench.plan import Case, OpenLoad, SparseLoad
from edged.bench.process import Sample
from edged.bench.tally import Tally
from edged.clock import NS_PER_MS, NS_PER_S
from edged.errors import BadDataError
from edged.latency import FEW, Histogram

FORMAT = 1
# In the folder of a run.
NAME = "bench.json"
Doc = dict[str, Any]

PERCENTILES = (("p50_ms", 50), ("p90_ms", 90), ("p99_ms", 99), ("p999_ms", 99.9))
# Without these it is no document, or no run, that can be compared.
_WHOLE = {"host", "target", "command", "ts", "knee", "interrupted", "runs"}
_COMPARED = {
    "label", "model", "payload_bytes", "codec", "qos", "load", "deadline_ms", "seconds", "warmup_s", "warmup_requests",
    "ok_per_s", "latency",
}  # fmt: skip
_MINUTE_S = 60.0
# From here on what was late was late because of the generator: so much of the latency, and more than a hiccup.
_LATE_SHARE, _LATE_NS = 0.2, NS_PER_MS
# Devices subscribe at QoS 1, so a broker hands them no more.
_TO_THE_BROKER = 2
# A device that did so many times more than was asked here has other requesters.
_OTHERS = 1.05


def distribution(histogram: Histogram) -> Doc:
    """Return {n, p50_ms, p90_ms, p99_ms, p999_ms, max_ms, mean_ms, histogram}; None for what an empty one lacks."""
    count = histogram.count
    found = {
        name: _ms(ns)
        for (name, _), ns in zip(PERCENTILES, histogram.percentiles(q for _, q in PERCENTILES), strict=True)
    }
    mean = histogram.sum_ns / count if count else None
    return {
        "n": count, **found, "max_ms": _ms(histogram.max_ns if count else None), "mean_ms": _ms(mean),
        "histogram": histogram.encode(),
    }  # fmt: skip


def _ms(ns: float | None) -> float | None:
    return None if ns is None else round(ns / NS_PER_MS, 4)


def of_case(case: Case, tally: Tally, seconds: float, *, interrupted: bool) -> Doc:
    """Return what a case came to. seconds: how long it was measured, less than the plan where it was interrupted."""
    asked, counts = case.question, tally.counts
    took_s = max(seconds, (tally.last_ns - tally.begin_ns) / NS_PER_S if tally.last_ns else 0.0)
    found = {
        "label": case.label, "parts": list(case.parts), "model": asked.model, "qos": asked.qos,
        "deadline_ms": asked.deadline_ms, "payload_bytes": len(asked.encoded.payload), "codec": asked.encoded.codec,
        "load": {"kind": case.load.kind, **dataclasses.asdict(case.load)},
        "seconds": round(seconds, 3), "warmup_s": case.span.warmup_s, "warmup_requests": case.span.warmup_requests,
        "interrupted": interrupted, **dataclasses.asdict(counts) | {"errors": dict(counts.errors)},
        "sent_per_s": round(counts.asked / seconds, 3) if seconds else 0.0,
        "ok_per_s": round(counts.ok / took_s, 3) if took_s else 0.0,
        "latency": distribution(tally.latency), "late_sends": distribution(tally.lateness),
        "followers": distribution(tally.followers) if isinstance(case.load, SparseLoad) else None,
        "slot_s": tally.slot_ns / NS_PER_S, "timeline": list(_timeline(tally)), "minutes": _minutes(tally, seconds),
    }  # fmt: skip
    return found | {"notes": list(_notes(case, tally, interrupted=interrupted))}


def _timeline(tally: Tally) -> Iterator[Doc]:
    for at_s, slot in tally.slots():
        p50, p99 = slot.latency.percentiles((50, 99))
        largest = slot.latency.max_ns if p50 is not None else None
        yield {
            "at_s": at_s, "n": slot.latency.count, "p50_ms": _ms(p50), "p99_ms": _ms(p99), "max_ms": _ms(largest),
            "errors": slot.errors, "missing": slot.missing,
        }  # fmt: skip


def _minutes(tally: Tally, seconds: float) -> Doc | None:
    """Return the first and the last minute of a run that has two of them, or a little more than a minute each."""
    if seconds < 2 * _MINUTE_S:
        return None
    slot_s = tally.slot_ns / NS_PER_S
    length = math.ceil(_MINUTE_S / slot_s) * slot_s
    first, last = tally.between(0.0, length), tally.between(seconds - length, seconds)
    return {"first": distribution(first), "last": distribution(last)}


def _notes(case: Case, tally: Tally, *, interrupted: bool) -> Iterator[str]:
    if interrupted:
        yield "interrupted: these are the figures until then"
    late, p99 = tally.lateness.percentile(99) or 0, tally.latency.percentile(99) or 0
    if late > max(_LATE_NS, _LATE_SHARE * p99) and isinstance(case.load, OpenLoad):
        yield "this generator was late itself: see how late it sent, and what else runs on this machine"
    if case.question.qos == _TO_THE_BROKER:
        yield "QoS 2 between this requester and the broker only: an edged device takes requests and answers at QoS 1"
    if case.load.kind == "closed":
        yield "closed loop: a stall holds back the next requests too, and so hides from the percentiles"
    if 0 < tally.latency.count < FEW:
        yield f"fewer than {FEW} latencies: the P99 is their largest"


def stages(found: Difference | str, latency: Histogram, sent: int) -> Doc:
    """Return the time in the device by stage, and what is left of the mean: the network, the broker, this client.

    sent: how many requests were, the warm-up's too, for the device counts them as well.
    """
    if isinstance(found, str):
        return {"why_not": found}
    total, seen = found.stages["total"], latency.count
    here = latency.sum_ns / seen if seen else None
    cpu_s = found.cpu_s / found.requests if found.cpu_s and found.requests else None
    there = total.sum_ns / total.count if total.count else None
    return {
        "requests": found.requests,
        "others": found.requests > _OTHERS * sent,
        "stages": {name: distribution(histogram) for name, histogram in found.stages.items()},
        "rest_ms": None if here is None or there is None else _ms(max(0.0, here - there)),
        "cpu_ms_per_request": None if cpu_s is None else round(1000 * cpu_s, 4),
    }  # fmt: skip


def drift(samples: list[Sample]) -> Doc:
    """Return the samples of the device's process, and each figure's first and last."""
    names = ("rss_bytes", "threads", "descriptors")
    told = {name: [sample[name] for sample in samples if sample.get(name) is not None] for name in names}
    return {"samples": samples, "ends": {name: [values[0], values[-1]] for name, values in told.items() if values}}


def load(path: Path) -> Doc:
    """Read a run that was written earlier: the file, or the folder that has it. Raises BadDataError when it is none."""
    if path.is_dir():
        if not (path / NAME).exists():
            raise BadDataError(str(path), f"is a folder without a {NAME}", "`edged bench -o FOLDER` writes one")
        path /= NAME
    try:
        found = json.loads(path.read_bytes())
        whole = isinstance(found, dict) and found["format"] == FORMAT and found.keys() >= _WHOLE and bool(found["runs"])
        latencies = [_latency(run) for run in found["runs"]] if whole else []
    except OSError as error:
        raise BadDataError(str(path), f"cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadDataError(str(path), "is not what `edged bench -o` writes") from error
    if not latencies:
        raise BadDataError(str(path), f"is not what `edged bench -o` writes, format {FORMAT}")
    return dict(found)


def _latency(run: Doc) -> Histogram:
    """Return a run's latencies. Raises KeyError for a run that lacks what a comparison asks for."""
    if missing := _COMPARED - run.keys():
        raise KeyError(*missing)
    return Histogram.decode(run["latency"]["histogram"])

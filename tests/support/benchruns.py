"""Documents of `edged bench` of devices whose latencies are known, made by its own counting without a run."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from edged.bench import document, host
from edged.bench.metrics import Difference
from edged.bench.plan import Case, ClosedLoad, Load, OpenLoad, Span, SparseLoad
from edged.bench.tally import Tally
from edged.bench.target import Question
from edged.client.payloads import Encoded
from edged.latency import Histogram
from edged.request import STAGES

MIB = 1024 * 1024


def _tally(load: Load, seconds: float, scale: float, rng: np.random.Generator) -> Tally:
    tally = Tally(seconds)
    tally.begin(0)
    rate = load.rate if isinstance(load, OpenLoad) else 1 / load.every_s if isinstance(load, SparseLoad) else 150
    for due in np.arange(0, seconds, 1 / rate):
        due_ns = int(due * 1e9)
        tally.asked(due_ns, due_ns + (40_000_000 if rate == 100 else 20_000))
        latency = scale * rng.lognormal(0, 0.4) * 1e6 * (1 + rate / 100)
        tally.answered(due_ns, due_ns + int(latency), "", follows=False)
        for _ in range(load.followers if isinstance(load, SparseLoad) else 0):
            tally.asked(due_ns, due_ns)
            tally.answered(due_ns, due_ns + int(latency / 3), "", follows=True)
    return tally


def _device(scale: float, requests: int, rng: np.random.Generator) -> Difference:
    shares = dict(zip(STAGES, (0.03, 0.2, 0.05, 0.5, 0.03, 0.05), strict=True)) | {"total": 0.86}
    found = {}
    for name, share in shares.items():
        found[name] = Histogram()
        for value in rng.lognormal(0, 0.3, 200) * 1e6 * share * scale:
            found[name].record(int(value))
    return Difference(requests, found, requests * 0.0007)


def run(load: Load, seconds: float, *, model: str = "har", scale: float = 1.0) -> dict[str, Any]:
    """One run's document."""
    rng = np.random.default_rng(5)
    tally = _tally(load, seconds, scale, rng)
    case = Case(Question(model, Encoded("raw", bytes(64)), 0, 1000), load, Span(seconds, 1.0))
    found = document.of_case(case, tally, seconds, interrupted=False)
    found["stages"] = document.stages(_device(scale, tally.counts.asked, rng), tally.latency, tally.counts.asked)
    return found | {"process": document.drift([])}


def _whole(runs: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    about = {
        "device": "press-07",
        "broker": "127.0.0.1:1883",
        "transport": "mqtt",
        "protocol": "MQTT 5",
        "state": "ready",
    }
    models = {
        name: {"version": 3, "runtime": "ai-edge-litert", "delegate": "cpu"} for name in {r["model"] for r in runs}
    }
    return {
        "format": document.FORMAT, "tool": "edged bench", "ts": 1_764_540_000.0,
        "command": "edged bench --device press-07",
        "host": host.facts(), "target": about | {"models": models}, "pid": None, "interrupted": False, "knee": None,
        "runs": runs, "max_p99_ms": None, "failures": [], **more,
    }  # fmt: skip


def single() -> dict[str, Any]:
    """One run at one rate."""
    return _whole([run(OpenLoad(200), 20.0)])


def sweep(*, scale: float = 1.0, model: str = "har") -> dict[str, Any]:
    """Three rates; in the second the generator was late."""
    return _whole([run(OpenLoad(rate), 4.0, scale=scale, model=model) for rate in (50, 100, 200)])


def soak() -> dict[str, Any]:
    """A quarter of an hour, with a process that was looked at."""
    found = run(OpenLoad(20), 900.0)
    samples = [
        {"at_s": 10.0 * i, "rss_bytes": int((10 + 2 * i / 90) * MIB), "threads": 7, "descriptors": 20 + (i > 45)}
        for i in range(91)
    ]
    return _whole([found | {"process": document.drift(samples)}])  # type: ignore[arg-type]


def sparse() -> dict[str, Any]:
    """A request now and then."""
    return _whole([run(SparseLoad(10.0), 600.0)])


def knee() -> dict[str, Any]:
    """A search that found 100 a second."""
    found = {
        "rate": 100.0, "at_least": False, "p99_bound_ms": 20.0, "confirmations": 2, "saturation_per_s": 150.0,
        "above": 105.0, "why": "P99 50 ms",
        "tried": [{"rate": rate, "why": "P99 50 ms" * (rate > 100)} for rate in (82, 105, 100, 100, 100, 55)],
    }  # fmt: skip
    loads: list[Load] = [*(OpenLoad(rate) for rate in (82, 105, 100, 100, 100, 55)), ClosedLoad(16)]
    return _whole([run(load, 3.0) for load in loads], knee=found)


def bad() -> dict[str, Any]:
    """A device that lost, doubled and refused requests, under a long name, on a machine of long names."""
    found = run(OpenLoad(50), 6.0, model="a-model-with-quite-a-long-name-" * 3)
    found |= {"missing": 7, "doubled": 2, "late": 3, "errors": dict(Counter(RESOURCE_EXHAUSTED=1200, UNAVAILABLE=3))}
    found["stages"] = {"why_not": "the device was started anew during the run"}
    found["notes"] = ["fewer than 100 latencies: the P99 is their largest"]
    for point in found["timeline"][2:4]:
        point["missing"] = 3
    return _whole([found], failures=[f"{found['label']}: 7 requests without an answer"], max_p99_ms=5.0)


ALL = {"single": single, "sweep": sweep, "soak": soak, "sparse": sparse, "knee": knee, "bad": bad}

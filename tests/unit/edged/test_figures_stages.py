"""The seven histograms of a model: which marks make which stage."""

from __future__ import annotations

import pytest

from edged.figures import StageLatency
from edged.latency import Histogram
from edged.request import STAGES, Request


def request(**marks: int) -> Request:
    made = Request(
        "m", b"", codec="raw", reply_codec="raw", received_ns=1000, deadline_ns=10**9, respond=lambda *_: None
    )
    for name, ns in marks.items():
        setattr(made, name, ns)
    return made


def test_each_stage_is_the_time_between_two_marks() -> None:
    """The seven histograms hold the differences of consecutive marks, and the total from first to last."""
    latency = StageLatency()
    marks = {
        "admitted_ns": 2_000,
        "started_ns": 4_000,
        "decoded_ns": 7_000,
        "inferred_ns": 12_000,
        "encoded_ns": 18_000,
    }
    latency.record(request(**marks), 26_000)
    spent = {name: histogram.sum_ns for name, histogram in latency.snapshot().items()}
    assert spent == dict(zip(STAGES, (1_000, 2_000, 3_000, 5_000, 6_000, 8_000), strict=True)) | {"total": 25_000}


def test_a_stage_that_was_not_reached_is_not_recorded() -> None:
    """A request that failed in decode counts where it was, and in the total; `record_total` counts there alone."""
    latency = StageLatency()
    latency.record(request(admitted_ns=2_000, started_ns=3_000), 9_000)
    latency.record_total(5_000)
    counts = {name: histogram.count for name, histogram in latency.snapshot().items()}
    assert counts == dict.fromkeys(STAGES, 0) | {"receive": 1, "queue": 1, "total": 2}


def test_every_record_and_snapshot_holds_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Histogram` is not thread-safe: nothing may touch one while another thread can."""
    held: list[bool] = []
    for name in ("record", "copy"):
        original = getattr(Histogram, name)
        monkeypatch.setattr(
            Histogram, name, lambda *args, of=original: (held.append(latency._lock.locked()), of(*args))[1]
        )
    latency = StageLatency()
    latency.record(request(admitted_ns=2_000), 9_000)
    latency.record_total(5_000)
    snapshot = latency.snapshot()
    assert held == [True] * (2 + 1 + len(snapshot))
    latency.record_total(5_000)
    assert snapshot["total"].count == 2

"""Counts and latencies of one model: cumulative, by outcome, and differences that are exact."""

from __future__ import annotations

import threading

import pytest

from edged.errors import Code, RequestError
from edged.figures import Counts, ModelFigures
from edged.request import Reply, Request

MS = 1_000_000


def answered(figures: ModelFigures, *codes: Code | None) -> None:
    """A request for each code came and was answered with it; None is a good answer."""
    for code in codes:
        figures.arrived()
        figures.answered(Reply(b"", "x") if code is None else Reply.failure(RequestError(code, "told")))


def request(total_ms: int) -> tuple[Request, int]:
    """A request of so many ms, of which inference took all but two, and when its answer was sent."""
    made = Request("m", b"", codec="raw", reply_codec="raw", received_ns=1, deadline_ns=2, respond=lambda *_: None)
    sent = 1 + total_ms * MS
    made.admitted_ns = made.started_ns = made.decoded_ns = 1 + MS
    made.inferred_ns = made.encoded_ns = sent - MS
    return made, sent


def test_answers_are_counted_by_outcome() -> None:
    """A good answer, and each error by its code; what came is counted whatever became of it."""
    figures = ModelFigures()
    answered(figures, None, None, Code.INTERNAL, Code.DEADLINE_EXCEEDED, Code.INTERNAL)
    figures.arrived()
    assert figures.counts() == Counts(6, 2, {"INTERNAL": 2, "DEADLINE_EXCEEDED": 1})  # type: ignore[arg-type]


def test_a_snapshot_does_not_change() -> None:
    """What was published stays what it was."""
    figures = ModelFigures()
    answered(figures, Code.INTERNAL)
    before = figures.snapshot()
    answered(figures, None, Code.INTERNAL)
    figures.sent(*request(10))
    assert (before.counts.requests, before.counts.ok, before.counts.errors["INTERNAL"]) == (1, 0, 1)
    assert before.histograms["total"].count == 0


def test_a_difference_holds_only_what_came_since() -> None:
    """Counts, codes and every stage; a code without news is not listed."""
    figures = ModelFigures()
    answered(figures, None, Code.INTERNAL)
    for _ in range(3):
        figures.sent(*request(100))
    earlier = figures.snapshot()
    answered(figures, None, None, Code.UNAVAILABLE)
    for _ in range(2):
        figures.sent(*request(20))
    told = figures.snapshot().since(earlier).summary()
    assert (told["requests"], told["ok"], told["errors"]) == (3, 2, {"UNAVAILABLE": 1})
    latency = told["latency"]
    assert isinstance(latency, dict)
    assert (latency["total"]["n"], latency["infer"]["n"]) == (2, 2)
    # 20 ms in all, 18 of them inference; a bucket is at most 1/128 off.
    assert latency["total"]["p50_us"] == pytest.approx(20_000, rel=1 / 128)
    assert latency["infer"]["p50_us"] == pytest.approx(18_000, rel=1 / 128)


def test_without_an_earlier_snapshot_everything_is_new() -> None:
    """The first interval begins at the start."""
    figures = ModelFigures()
    answered(figures, None)
    snapshot = figures.snapshot()
    assert snapshot.since(None) is snapshot


def test_no_count_is_lost_between_threads() -> None:
    """Network, worker and sweeper all answer."""
    figures = ModelFigures()
    threads = [threading.Thread(target=answered, args=(figures, *([None, Code.INTERNAL] * 500))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = figures.counts()
    assert (found.requests, found.ok, found.errors["INTERNAL"]) == (4000, 2000, 2000)

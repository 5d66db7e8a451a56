"""The verdict: a good run passes, and each thing that can go wrong alone fails it with its reason."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from converters.demo import verdict
from converters.demo.verdict import Figures, Stream

WAY = {
    "n": 1000,
    "right": 1000,
    "different": 0,
    "errors": {},
    "p50_us": 1000.0,
    "p90_us": 2000.0,
    "p99_us": 3000.0,
    "max_us": 4000.0,
}
STAGE = {"n": 2000, "p50_us": 100.0, "p90_us": 200.0, "p99_us": 300.0, "max_us": 400.0}


def good() -> Figures:
    return Figures(
        wanted=1000,
        expected_requests=1000,
        stream=Stream(expected=1000, answered=1000, right=1000),
        ways={"MQTT 5, raw": dict(WAY), "MQTT 3.1.1, JSON": dict(WAY)},
        latency={"queue": dict(STAGE), "total": dict(STAGE)},
    )


def test_a_good_run_passes() -> None:
    """No fault is found where there is none, and the praise gives the figures."""
    assert verdict.faults(good()) == []
    assert verdict.as_json(good())["verdict"] == "PASS"
    assert "1000 sensor windows and 2000 requests" in verdict.praise(good())
    assert "P99 0.30 ms" in verdict.praise(good())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"answered": 999, "right": 999}, "1 of 1000 sensor windows without an answer"),
        ({"errors": {"INTERNAL": 2}}, "error answers to sensors: 2 INTERNAL"),
        ({"unexpected": 3}, "3 answers to no window"),
        ({"right": 949}, "accuracy 0.949 on the sensor windows"),
    ],
)
def test_each_fault_of_the_stream_fails(change: dict[str, Any], reason: str) -> None:
    """Missing, error, unexpected and wrong answers are each enough, and named."""
    figures = good()
    figures.stream = dataclasses.replace(figures.stream, **change)
    (found,) = verdict.faults(figures)
    assert found.startswith(reason)
    assert verdict.as_json(figures)["verdict"] == "FAIL"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"errors": {"DEADLINE_EXCEEDED": 1}, "n": 1000}, "MQTT 5, raw: requests failed: 1 DEADLINE_EXCEEDED"),
        ({"different": 5}, "MQTT 5, raw: 5 answers differ"),
        ({"right": 900}, "MQTT 5, raw: accuracy 0.900"),
    ],
)
def test_each_fault_of_a_way_of_asking_fails(change: dict[str, Any], reason: str) -> None:
    """A failed request, an answer unlike the others' and a wrong one are each enough, and named."""
    figures = good()
    figures.ways = {**figures.ways, "MQTT 5, raw": {**WAY, **change}}
    figures.expected_requests = 1000
    assert any(found.startswith(reason) for found in verdict.faults(figures))


def test_the_accuracy_wanted_is_enough() -> None:
    """The limit itself passes."""
    figures = good()
    figures.stream.right = 950
    assert verdict.faults(figures) == []


def test_requests_never_sent_fail() -> None:
    """A client that ended early is told from one that asked everything."""
    figures = good()
    figures.expected_requests = 1040
    assert verdict.faults(figures)[0] == "MQTT 5, raw: 40 of 1040 requests not sent"


@pytest.mark.parametrize("empty", ["ways", "latency"])
def test_nothing_measured_is_a_failure(empty: str) -> None:
    """An empty table is no proof."""
    figures = good()
    setattr(figures, empty, {})
    assert len(verdict.faults(figures)) == 1


def test_percentiles_of_too_few_samples_fail() -> None:
    """Each stage and each way of asking must have the samples that were wanted."""
    figures = good()
    figures.latency = {"total": {**STAGE, "n": 999}}
    assert verdict.faults(figures) == ["too few samples: 999 of 1000 for the percentiles of `total`"]


def test_nothing_at_all_fails_without_dividing_by_zero() -> None:
    """A run in which nothing came back gives reasons, not a traceback."""
    nothing = Figures(
        wanted=10, expected_requests=10, stream=Stream(expected=10), ways={"x": {**WAY, "n": 0, "right": 0}}
    )
    assert len(verdict.faults(nothing)) == 6

"""The figures of a demo, and the one question put to them: was everything right?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# The float model is right on all 40 test recordings; two of them wrong would be .95.
MIN_ACCURACY = 0.95


@dataclass
class Stream:
    """The sensors' side. errors: error code → count; unexpected: answers nobody asked for, or a second time."""

    expected: int = 0
    answered: int = 0
    right: int = 0
    unexpected: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    samples: int = 0
    dropped: int = 0
    held: int = 0

    @property
    def accuracy(self) -> float:
        """Right answers of all answers; 0 when there are none."""
        return self.right / self.answered if self.answered else 0.0


@dataclass
class Figures:
    """Everything the demo measured.

    wanted: the least number of samples under each percentile. expected_requests: per way of asking.
    ways: name → the facts of `requests.Tally`. latency: stage → {n, p50_us, p90_us, p99_us, max_us}, from the daemon.
    """

    wanted: int
    expected_requests: int
    stream: Stream = field(default_factory=Stream)
    ways: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    latency: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


def faults(figures: Figures) -> list[str]:
    """Every reason why the demo did not pass; empty when all was right."""
    return [*_stream(figures.stream), *_requests(figures), *_samples(figures)]


def _stream(stream: Stream) -> Iterator[str]:
    if stream.answered < stream.expected:
        yield f"{stream.expected - stream.answered} of {stream.expected} sensor windows without an answer"
    if stream.errors:
        yield f"error answers to sensors: {_counts(stream.errors)}"
    if stream.unexpected:
        yield f"{stream.unexpected} answers to no window, or to one for the second time"
    if stream.accuracy < MIN_ACCURACY:
        yield f"accuracy {stream.accuracy:.3f} on the sensor windows, at least {MIN_ACCURACY} wanted"


def _requests(figures: Figures) -> Iterator[str]:
    if not figures.ways:
        yield "no request was answered"
    for name, way in figures.ways.items():
        lost = figures.expected_requests - way["n"] - sum(way["errors"].values())
        accuracy = way["right"] / way["n"] if way["n"] else 0.0
        if lost:
            yield f"{name}: {lost} of {figures.expected_requests} requests not sent"
        if way["errors"]:
            yield f"{name}: requests failed: {_counts(way['errors'])}"
        if way["different"]:
            yield f"{name}: {way['different']} answers differ from those of the first way"
        if accuracy < MIN_ACCURACY:
            yield f"{name}: accuracy {accuracy:.3f}, at least {MIN_ACCURACY} wanted"


def _samples(figures: Figures) -> Iterator[str]:
    if not figures.latency:
        yield "the daemon published no latency"
    for stage, row in figures.latency.items():
        if row["n"] < figures.wanted:
            yield f"too few samples: {row['n']} of {figures.wanted} for the percentiles of `{stage}`"
    for name, way in figures.ways.items():
        if way["n"] < figures.wanted:
            yield f"too few samples: {way['n']} of {figures.wanted} for the percentiles of {name}"


def praise(figures: Figures) -> str:
    """Return the one line that says what was right."""
    stream, asked = figures.stream, sum(way["n"] for way in figures.ways.values())
    return (
        f"{stream.answered} sensor windows and {asked} requests answered, none missing, "
        f"accuracy {stream.accuracy:.3f}, P99 {figures.latency['total']['p99_us'] / 1000:.2f} ms in the daemon"
    )


def _counts(errors: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {code}" for code, count in sorted(errors.items()))


def as_json(figures: Figures) -> dict[str, Any]:
    """Return the figures as one JSON object."""
    found = faults(figures)
    return {
        "verdict": "FAIL" if found else "PASS",
        "faults": found,
        **figures.facts,
        "seconds": round(figures.seconds, 2),
        "wanted_samples": figures.wanted,
        "stream": {**vars(figures.stream), "accuracy": figures.stream.accuracy},
        "requests": dict(figures.ways),
        "latency": dict(figures.latency),
    }

"""What is run: cases, each one question under one load, and how long."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from edged.bench import arrivals
from edged.bench.target import Question
from edged.clock import NS_PER_S
from edged.shown import clipped, size

Arrivals = Literal["constant", "poisson"]


@dataclass(frozen=True)
class OpenLoad:
    """Requests by a schedule that waits for no answer; latency counts from the time the schedule says."""

    rate: float
    arrivals: Arrivals = "constant"
    seed: int = 0
    kind = "open"

    @property
    def label(self) -> str:
        """`100/s`, `100/s poisson`."""
        return f"{self.rate:g}/s" + (" poisson" if self.arrivals == "poisson" else "")

    def offsets(self) -> Iterator[int]:
        """Yield when each is due, ns from the start."""
        return arrivals.poisson(self.rate, self.seed) if self.arrivals == "poisson" else arrivals.constant(self.rate)


@dataclass(frozen=True)
class ClosedLoad:
    """`concurrency` requesters, each sends when it has its answer: finds the saturation, hides stalls."""

    concurrency: int
    kind = "closed"

    @property
    def label(self) -> str:
        """`closed, 4 in flight`."""
        return f"closed, {self.concurrency} in flight"


@dataclass(frozen=True)
class SparseLoad:
    """One request every `every_s` seconds, and `followers` more, each sent when the one before has its answer."""

    every_s: float
    followers: int = 10
    kind = "sparse"

    @property
    def label(self) -> str:
        """`every 10 s`."""
        return f"every {self.every_s:g} s"

    def offsets(self) -> Iterator[int]:
        """Yield when each first request is due: an interval is waited out before the first one, too."""
        return (int(i * self.every_s * NS_PER_S) for i in itertools.count(1))


Load = OpenLoad | ClosedLoad | SparseLoad


@dataclass(frozen=True)
class Span:
    """How long a case runs: until `warmup_s` and `warmup_requests` are over it does not count, then for `seconds`."""

    seconds: float
    warmup_s: float = 0.0
    warmup_requests: int = 0


@dataclass(frozen=True)
class Case:
    """One question under one load."""

    question: Question
    load: Load
    span: Span

    @property
    def parts(self) -> tuple[str, ...]:
        """What tells it from the others: `har`, `64 B`, `QoS 1`, `100/s`."""
        asked = self.question
        return clipped(asked.model), size(len(asked.encoded.payload)), f"QoS {asked.qos}", self.load.label

    @property
    def label(self) -> str:
        """All of `parts`."""
        return ", ".join(self.parts)


def matrix(questions: Sequence[Question], loads: Sequence[Load], span: Span) -> list[Case]:
    """Return every question under every load, the loads of a question one after the other."""
    return [Case(question, load, span) for question in questions for load in loads]


def at_rate(case: Case, rate: float) -> Case:
    """Return the same case with an open load at another rate."""
    if not isinstance(case.load, OpenLoad):
        raise TypeError(case.load)
    return replace(case, load=replace(case.load, rate=rate))

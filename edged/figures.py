"""What one model has done since start: answers by outcome, and the latency of each stage."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from edged.latency import Histogram, summary
from edged.request import STAGES, Reply, Request


@dataclass
class Counts:
    """Cumulative counters of one model: requests that came, and answers by outcome."""

    requests: int = 0
    ok: int = 0
    errors: Counter[str] = field(default_factory=Counter)

    def copy(self) -> Counts:
        """Return a snapshot."""
        return Counts(self.requests, self.ok, Counter(self.errors))

    def since(self, earlier: Counts) -> Counts:
        """Return the difference to an earlier snapshot."""
        return Counts(self.requests - earlier.requests, self.ok - earlier.ok, self.errors - earlier.errors)


class StageLatency:
    """Where a request's time goes: one histogram a stage and one of the total. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stages = {name: Histogram() for name in (*STAGES, "total")}
        self._total = self._stages["total"].record
        self._records = [self._stages[name].record for name in STAGES]

    def record(self, request: Request, sent_ns: int) -> None:
        """Count a request whose reply's last byte left at `sent_ns`; a stage it did not reach is not counted."""
        begin = received_ns = request.received_ns
        ends = (
            request.admitted_ns, request.started_ns, request.decoded_ns, request.inferred_ns, request.encoded_ns,
            sent_ns,
        )  # fmt: skip
        with self._lock:
            for record, end in zip(self._records, ends):  # noqa: B905  # strict costs, and both are as long as STAGES
                if begin and end:
                    record(end - begin)
                begin = end
            self._total(sent_ns - received_ns)

    def record_total(self, ns: int) -> None:
        """Count a request that was answered without reaching the worker."""
        with self._lock:
            self._total(ns)

    def snapshot(self) -> dict[str, Histogram]:
        """Return copies of the histograms by stage name, all taken at one moment."""
        with self._lock:
            return {name: histogram.copy() for name, histogram in self._stages.items()}


class ModelFigures:
    """Counts and latencies of one model; every thread that answers reports here."""

    def __init__(self) -> None:
        self.latency = StageLatency()
        self._counts = Counts()
        self._lock = threading.Lock()

    def arrived(self) -> None:
        """Count one request for this model, whatever becomes of it."""
        with self._lock:
            self._counts.requests += 1

    def answered(self, reply: Reply) -> None:
        """Count one answer by its outcome."""
        with self._lock:
            if reply.error is None:
                self._counts.ok += 1
            else:
                self._counts.errors[reply.error.code.value] += 1

    def sent(self, request: Request, sent_ns: int) -> None:
        """Record the latency of a request whose answer's last byte was handed on at `sent_ns`."""
        self.latency.record(request, sent_ns)

    def missed(self, request: Request, sent_ns: int) -> None:
        """Record the total alone, of a request that was answered at its deadline."""
        self.latency.record_total(sent_ns - request.received_ns)

    def counts(self) -> Counts:
        """Return a snapshot of the counters."""
        with self._lock:
            return self._counts.copy()

    def snapshot(self) -> Snapshot:
        """Return counters and histograms of now."""
        return Snapshot(self.counts(), self.latency.snapshot())


@dataclass(frozen=True)
class Snapshot:
    """Counters and histograms (by stage) at one moment, or the difference of two."""

    counts: Counts
    histograms: Mapping[str, Histogram]

    def since(self, earlier: Snapshot | None) -> Snapshot:
        """Return what came after `earlier` (everything when there is none)."""
        if earlier is None:
            return self
        stages = {name: histogram.since(earlier.histograms[name]) for name, histogram in self.histograms.items()}
        return Snapshot(self.counts.since(earlier.counts), stages)

    def summary(self) -> dict[str, object]:
        """Return {requests, ok, errors, latency: {stage: percentiles}} as published in metrics."""
        return {
            "requests": self.counts.requests,
            "ok": self.counts.ok,
            "errors": dict(self.counts.errors),
            "latency": {name: summary(histogram) for name, histogram in self.histograms.items()},
        }

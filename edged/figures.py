"""What one model has done since start: answers by outcome, and the latency of each stage."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from edged.latency import Histogram, StageLatency, summary
from edged.request import Reply, Request


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

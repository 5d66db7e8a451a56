"""A device's metrics message, read without trust: what is missing or wrong in it is None or absent, never an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from edged.client.status import MAX_MODELS
from edged.client.untrusted import mapping, number, parse_object, text, whole
from edged.contract import METRICS_FORMAT
from edged.latency import FEW, Histogram
from edged.request import STAGES, Buffer

# Beyond these a figure is no figure: it would only break the table it stands in.
_MAX_INTERVAL_S = 86_400.0
_MAX_BYTES = 2.0**50
_MAX_US = 1e12
_MAX_CODES = 32


@dataclass(frozen=True)
class Percentiles:
    """Latency of `n` requests, microseconds."""

    n: int = 0
    p50_us: float | None = None
    p90_us: float | None = None
    p99_us: float | None = None
    p999_us: float | None = None
    max_us: float | None = None

    @property
    def few(self) -> bool:
        """Whether there are too few samples for a percentile to mean much."""
        return self.n < FEW


@dataclass(frozen=True)
class Figures:
    """Counts and the latency by stage (`total` and the stages of a request)."""

    requests: int = 0
    ok: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    latency: Mapping[str, Percentiles] = field(default_factory=dict)

    @property
    def total(self) -> Percentiles:
        """Latency from the first byte in to the last byte out."""
        return self.latency.get("total", Percentiles())

    @property
    def failed(self) -> int:
        """Answers that were errors."""
        return sum(self.errors.values())


@dataclass(frozen=True)
class ModelMetrics:
    """One model. histogram: of the total since start, None when there is none that can be read.

    keys: that have a state, of a model that keeps one. per_inference: requests in one inference, the mean since start,
    of a model that gathers them. None for all others.
    """

    version: int | None
    runtime: str
    delegate: str
    queue_requests: int | None
    since_start: Figures
    interval: Figures
    histogram: Histogram | None
    keys: int | None = None
    per_inference: float | None = None


@dataclass(frozen=True)
class Metrics:
    """One message. interval_s: what `interval` figures cover. bad_histograms: how many could not be read.

    outbox_waiting: answers of streams that wait for the broker, outbox_bytes: on disk; None where nothing is kept.
    """

    boot: str
    seq: int
    interval_s: float
    rss_bytes: int | None
    models: Mapping[str, ModelMetrics]
    received_ns: int
    bad_histograms: int
    outbox_waiting: int | None = None
    outbox_bytes: int | None = None


def parse_metrics(payload: Buffer, received_ns: int) -> Metrics | None:
    """Read a metrics payload; None when it is none, or of another format."""
    document = parse_object(payload)
    if document is None or document.get("format") != METRICS_FORMAT:
        return None
    # Cut before anything is decoded: a histogram is many times as large as its text.
    found = dict(islice(mapping(document.get("models")).items(), MAX_MODELS))
    histograms = {name: mapping(mapping(body).get("histograms")).get("total") for name, body in found.items()}
    read = {name: _histogram(value) for name, value in histograms.items()}
    models = {name: _model(mapping(body), read[name]) for name, body in found.items()}
    outbox = mapping(mapping(document.get("transport")).get("outbox"))
    return Metrics(
        boot=text(document.get("boot")),
        seq=whole(document.get("seq")) or 0,
        interval_s=number(document.get("interval_s"), _MAX_INTERVAL_S) or 0.0,
        rss_bytes=whole(mapping(document.get("process")).get("rss_bytes"), _MAX_BYTES),
        models=models,
        received_ns=received_ns,
        bad_histograms=sum(value is not None and read[name] is None for name, value in histograms.items()),
        outbox_waiting=whole(outbox.get("waiting")),
        outbox_bytes=whole(outbox.get("bytes"), _MAX_BYTES),
    )


def _model(body: Mapping[str, Any], histogram: Histogram | None) -> ModelMetrics:
    return ModelMetrics(
        version=whole(body.get("version")),
        runtime=text(body.get("runtime")),
        delegate=text(body.get("delegate")),
        queue_requests=whole(mapping(body.get("queue")).get("requests")),
        since_start=_figures(mapping(body.get("since_start"))),
        interval=_figures(mapping(body.get("interval"))),
        histogram=histogram,
        keys=whole(mapping(body.get("keyed")).get("keys")),
        per_inference=_per_inference(mapping(body.get("batched"))),
    )


def _per_inference(batched: Mapping[str, Any]) -> float | None:
    requests, inferences = whole(batched.get("requests")), whole(batched.get("inferences"))
    return round(requests / inferences, 2) if requests is not None and inferences else None


def _figures(body: Mapping[str, Any]) -> Figures:
    told = islice(mapping(body.get("errors")).items(), _MAX_CODES)
    errors = {text(code): whole(count) or 0 for code, count in told}
    stages = mapping(body.get("latency"))
    latency = {stage: _percentiles(mapping(stages[stage])) for stage in (*STAGES, "total") if stage in stages}
    return Figures(whole(body.get("requests")) or 0, whole(body.get("ok")) or 0, errors, latency)


def _percentiles(body: Mapping[str, Any]) -> Percentiles:
    n = whole(body.get("n")) or 0
    *found, largest = (number(body.get(f"{name}_us"), _MAX_US) for name in ("p50", "p90", "p99", "p999", "max"))
    # Both come from bounds of buckets, where each is right within the bucket's width; of one value there is but one.
    p50, p90, p99, p999 = (_at_most(value, largest, alone=n == 1) for value in found)
    return Percentiles(n, p50, p90, p99, p999, largest)


def _at_most(value: float | None, largest: float | None, *, alone: bool) -> float | None:
    if value is None or largest is None:
        return value
    return largest if alone else min(value, largest)


def percentiles_of(histogram: Histogram) -> Percentiles:
    """The percentiles of a histogram, microseconds."""
    if histogram.count == 1:  # the sum is exact, the bounds of a difference are not
        return Percentiles(1, *[histogram.sum_ns / 1e3] * 5)
    p50, p90, p99, p999 = (histogram.percentile(q) for q in (50, 90, 99, 99.9))
    if p50 is None or p90 is None or p99 is None or p999 is None:
        return Percentiles()
    return Percentiles(histogram.count, p50 / 1e3, p90 / 1e3, p99 / 1e3, p999 / 1e3, histogram.max_ns / 1e3)


def _histogram(value: object) -> Histogram | None:
    if not isinstance(value, str):
        return None
    try:
        return Histogram.decode(value)
    except ValueError:
        return None

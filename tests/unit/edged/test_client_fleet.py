"""Devices, metrics and the fleet's percentiles from messages that no one can be trusted to have made well."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.client.fleet import DEFAULT_INTERVAL_S, STALE_INTERVALS, Fleet, last_interval, since_start
from edged.client.metrics import Percentiles, parse_metrics
from edged.client.status import parse_status
from edged.clock import NS_PER_S, now_ns
from edged.latency import Histogram
from edged.transports.base import Message

RNG = np.random.default_rng(7)


def encoded(values_ns):
    """The encoded histogram of these values."""
    histogram = Histogram()
    for value in values_ns:
        histogram.record(int(value))
    return histogram.encode()


def metrics(device="press-07", *, boot="b1", seq=1, models=None, **facts):
    """A metrics message as the daemon publishes it."""
    body = {
        "format": 1,
        "device": device,
        "boot": boot,
        "seq": seq,
        "ts": 1.7e9,
        "interval_s": 10.0,
        "models": models or {},
    }
    return Message(f"edged/v1/dev/{device}/metrics", json.dumps(body | facts).encode())


def status(device="press-07", *, retain=False, **facts):
    """A status message as the daemon publishes it."""
    return Message(f"edged/v1/dev/{device}/status", json.dumps(facts).encode(), retain=retain)


def _only(fleet):
    (device,) = fleet.snapshot()
    return device


def test_fleet_percentiles_are_those_of_all_values_together():
    """Merged histograms give the pooled values' percentiles (nearest rank) within 1 %; the mean of P99s would not."""
    quick, slow = RNG.gamma(2, 5e5, 9000).astype(int) + 1000, RNG.gamma(2, 2e7, 1000).astype(int) + 1000
    fleet = Fleet()
    fleet.take(metrics("a", models={"m": {"histograms": {"total": encoded(quick)}}}))
    fleet.take(metrics("b", models={"m": {"histograms": {"total": encoded(slow)}}}))
    found = since_start(fleet.snapshot())
    pooled = np.sort(np.concatenate([quick, slow])) / 1000
    assert (found.devices, found.latency.n) == (2, 10_000)
    for name, rank in (("p50_us", 5000), ("p90_us", 9000), ("p99_us", 9900), ("p999_us", 9990)):
        assert getattr(found.latency, name) == pytest.approx(pooled[rank - 1], rel=0.01)
    assert found.latency.max_us == pooled.max()


def test_last_interval_is_what_came_since_the_message_before():
    """Cumulative histograms are subtracted, per device and boot; one message alone has no interval."""
    old, new = RNG.integers(10**6, 10**7, 500), RNG.integers(10**8, 10**9, 300)
    fleet = Fleet()
    fleet.take(metrics(models={"m": {"histograms": {"total": encoded(old)}}}))
    assert last_interval(fleet.snapshot()).devices == 0
    fleet.take(metrics(seq=2, models={"m": {"histograms": {"total": encoded([*old, *new])}}}))
    found = last_interval(fleet.snapshot())
    assert (found.devices, found.latency.n) == (1, 300)
    assert found.latency.p50_us == pytest.approx(np.percentile(new, 50, method="inverted_cdf") / 1000, rel=0.01)
    fleet.take(metrics(boot="b2", seq=1, models={"m": {"histograms": {"total": encoded(old)}}}))
    assert last_interval(fleet.snapshot()).devices == 0


def test_histogram_that_went_back_counts_as_new():
    """A model loaded anew within one boot starts from nothing: what it has is the interval."""
    fleet = Fleet()
    fleet.take(metrics(models={"m": {"histograms": {"total": encoded([10**6] * 50)}}}))
    fleet.take(metrics(seq=2, models={"m": {"histograms": {"total": encoded([10**7] * 3)}}}))
    assert last_interval(fleet.snapshot()).latency.n == 3


def test_figures_are_read():
    """Each number of the documented payload ends in its place."""
    latency = {
        "total": {"n": 200, "p50_us": 1.5, "p90_us": 2, "p99_us": 3.5, "p999_us": 4, "max_us": 9},
        "queue": {"n": 1},
    }
    figures = {"requests": 210, "ok": 200, "errors": {"INVALID_ARGUMENT": 3, "UNAVAILABLE": 7}, "latency": latency}
    model = {
        "version": 4,
        "runtime": "r 1",
        "delegate": "cpu",
        "queue": {"requests": 2, "bytes": 9},
        "since_start": figures,
    }
    body = json.loads(metrics(models={"m": model}, process={"rss_bytes": 1000, "cpu_s": 1.0}).payload)
    found = parse_metrics(json.dumps(body).encode(), 5)
    read = found.models["m"]
    assert (found.boot, found.seq, found.interval_s, found.rss_bytes) == ("b1", 1, 10.0, 1000)
    assert (read.version, read.runtime, read.delegate, read.queue_requests) == (4, "r 1", "cpu", 2)
    assert (read.since_start.requests, read.since_start.ok, read.since_start.failed) == (210, 200, 10)
    assert read.since_start.total == Percentiles(200, 1.5, 2.0, 3.5, 4.0, 9.0)
    assert not read.since_start.total.few
    assert read.since_start.latency["queue"] == Percentiles(1)
    assert read.interval.total == Percentiles()


@pytest.mark.parametrize(
    "payload", [b"", b"\xff", b"[]", b"{}", b'{"format": 2}', b'{"format": true, "models": 3}', b"[" * 100_000]
)
def test_what_is_no_metrics_message_is_ignored_and_counted(payload):
    """Wrong bytes, shape or format number change nothing."""
    fleet = Fleet()
    fleet.take(Message("edged/v1/dev/press-07/metrics", payload))
    if payload != b'{"format": true, "models": 3}':
        assert fleet.ignored["metrics"] == 1
        assert fleet.snapshot() == []


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def _holed(draw, body):
    """A copy of a JSON document in which some values were replaced by anything."""
    if draw(st.integers(0, 9)) == 0:
        return draw(_JSON)
    if isinstance(body, dict):
        return {key: _holed(draw, value) for key, value in body.items()}
    return body


@st.composite
def _damaged(draw, body):
    return json.dumps(_holed(draw, body)).encode()


_FIGURES = {"requests": 1, "ok": 1, "errors": {"X": 1}, "latency": {"total": {"n": 1, "p50_us": 1, "p99_us": 2}}}
_MODEL = {
    "version": 1, "runtime": "r", "delegate": "d", "queue": {"requests": 0}, "since_start": _FIGURES,
    "interval": _FIGURES, "histograms": {"total": encoded([10**6])},
}  # fmt: skip
_METRICS = {"format": 1, "boot": "b", "seq": 1, "interval_s": 1.0, "process": {"rss_bytes": 1}, "models": {"m": _MODEL}}
_STATUS = {
    "state": "ready",
    "boot": "b",
    "seq": 1,
    "ts": 1.0,
    "version": "0",
    "reason": "",
    "models": {"m": {"state": "ready"}},
}


@given(_damaged(_METRICS), _damaged(_STATUS))
def test_damaged_messages_never_break_the_view(metrics_payload, status_payload):
    """Whatever stands in place of a number, a name or an object, the fleet takes it and the table can be drawn."""
    from edged.client.toptable import document, screen

    fleet = Fleet()
    fleet.take(Message("edged/v1/dev/d/metrics", metrics_payload))
    fleet.take(Message("edged/v1/dev/d/metrics", metrics_payload))
    fleet.take(Message("edged/v1/dev/d/status", status_payload))
    assert screen(fleet, now_ns(), stages=True, width=None)
    json.dumps(document(fleet, now_ns()))


def test_unreadable_histogram_costs_only_itself():
    """The figures beside it are shown, and it is counted."""
    fleet = Fleet()
    fleet.take(
        metrics(models={"m": {"version": 3, "histograms": {"total": "AAAA"}}, "n": {"histograms": {"total": 5}}})
    )
    assert _only(fleet).metrics.models["m"].version == 3
    assert fleet.ignored["histogram"] == 2
    assert since_start(fleet.snapshot()).devices == 0


def test_topics_that_are_none_of_ours_are_counted():
    """A message on another topic names no device."""
    fleet = Fleet()
    for topic in ("edged/v1/dev/a/b/status", "other", "edged/v2/dev/a/status"):
        fleet.take(Message(topic, b"{}"))
    assert fleet.ignored["topic"] == 3


def test_filters():
    """All devices by one wildcard, or the named ones alone."""
    assert Fleet().filters() == ["edged/v1/dev/+/status", "edged/v1/dev/+/metrics"]
    assert "edged/v1/dev/a/metrics" in Fleet(frozenset({"a"})).filters()
    assert len(Fleet(frozenset({"a", "b"})).filters()) == 4


@pytest.mark.parametrize("speaks", ["status", "metrics"])
def test_will_of_an_old_boot_is_ignored(speaks):
    """The current boot is the one that spoke last, by status or by metrics."""
    fleet = Fleet()
    fleet.take(status(state="ready", boot="old"))
    fleet.take(status(state="starting", boot="new") if speaks == "status" else metrics(boot="new"))
    fleet.take(status(state="lost", boot="gone"))
    assert fleet.ignored["old_will"] == 1
    assert _only(fleet).state in {"starting", "ready"}


def test_will_of_the_current_boot_counts():
    """A device that really died is lost."""
    fleet = Fleet()
    fleet.take(status(state="ready", boot="b1"))
    fleet.take(metrics(boot="b1"))
    fleet.take(status(state="lost", boot="b1"))
    assert _only(fleet).state == "lost"


def test_retained_will_is_overruled_by_metrics_of_another_boot():
    """A device that measures is not lost, whatever a will of before says."""
    fleet = Fleet()
    fleet.take(status(state="lost", boot="old", retain=True))
    assert _only(fleet).state == "lost"
    fleet.take(metrics(boot="new"))
    assert _only(fleet).state == "unknown"


def test_cleared_status_removes_the_device():
    """An empty retained status takes a device out of the fleet."""
    fleet = Fleet()
    fleet.take(status(state="stopped", boot="b"))
    fleet.take(Message("edged/v1/dev/press-07/status", b""))
    assert fleet.snapshot() == []
    assert not fleet.ignored


def test_retained_message_does_not_count_as_seen():
    """It may be of any age."""
    fleet = Fleet()
    fleet.take(status(state="ready", boot="b", retain=True))
    assert _only(fleet).seen_ns == 0
    fleet.take(metrics(boot="b"))
    assert _only(fleet).seen_ns > 0


def test_stale_is_three_intervals_without_metrics():
    """Judged by the interval that the device itself tells, else ten seconds; a stopped device is not expected."""
    fleet = Fleet()
    fleet.take(status(state="ready", boot="b"))
    device, now = _only(fleet), now_ns()
    limit_ns = int(STALE_INTERVALS * DEFAULT_INTERVAL_S * NS_PER_S)
    assert not device.stale(device.born_ns + limit_ns)
    assert device.stale(device.born_ns + limit_ns + 1)
    fleet.take(metrics(boot="b", interval_s=0.5))
    device = _only(fleet)
    assert device.stale(device.metrics.received_ns + 3 * NS_PER_S // 2 + 1)
    fleet.take(status(state="stopped", boot="b"))
    assert not _only(fleet).stale(now + 10**15)


def test_devices_are_bounded(monkeypatch):
    """A stranger's names cannot fill the memory; those known go on being updated."""
    monkeypatch.setattr("edged.client.fleet.MAX_DEVICES", 2)
    fleet = Fleet()
    for name in ("a", "b", "c", "a"):
        fleet.take(status(name, state="ready", boot=name))
    assert [device.name for device in fleet.snapshot()] == ["a", "b"]
    assert fleet.ignored["devices"] == 1


def test_control_characters_are_taken_out_of_what_is_shown():
    """A name or reason cannot move the cursor or clear the screen."""
    found = parse_status(json.dumps({"state": "ready", "boot": "a\x1b[2Jb\n", "reason": "\x9b\u202ex"}).encode(), 0)
    assert (found.boot, found.reason) == ("a[2Jb", "x")

"""What the device counted during a run: the difference of two of its messages."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

import pytest
from support.benchdevice import KnownDevice, connected, echo
from support.brokers import eventually

from edged.bench import document, metrics, process
from edged.bench.metrics import Difference, Told
from edged.errors import UnavailableError
from edged.latency import Histogram
from edged.request import STAGES


def told(values: list[int], at: int = 1, **changes: Any) -> Told:
    """A message of a device that served requests of so many ns in each stage."""
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    text = histogram.encode()
    model = {"since_start": {"requests": len(values)}, "histograms": dict.fromkeys((*STAGES, "total"), text)}
    body = {
        "format": 1, "boot": "b", "interval_s": 10, "models": {"m": model},
        "process": {"cpu_s": len(values), "rss_bytes": 5}, **changes,
    }  # fmt: skip
    found = metrics.read(json.dumps(body).encode(), at)
    assert found is not None
    return found


def test_what_came_between_is_told_by_stage() -> None:
    """Two requests of 2 ms after three of 1 ms: only the two are of the run."""
    before, after = told([1_000_000] * 3, 1), told([1_000_000] * 3 + [2_000_000] * 2, 2)
    found = metrics.difference(before, after, "m")
    assert isinstance(found, Difference)
    assert (found.requests, found.cpu_s) == (2, 2)
    assert found.stages.keys() == {*STAGES, "total"}
    assert (found.stages["infer"].count, found.stages["infer"].sum_ns) == (2, 4_000_000)


def test_why_it_cannot_be_told() -> None:
    """A device that was started anew, that says nothing, or whose figures are damaged: the reason is in words."""
    one, other = told([1000], 1), told([1000], 2, boot="c")
    assert metrics.difference(one, other, "m") == "the device was started anew during the run"
    for before, after in ((None, one), (one, None), (one, one)):
        assert "no metrics before and after" in str(metrics.difference(before, after, "m"))
    assert "cannot be used" in str(metrics.difference(one, told([2000], 2), "m"))
    assert "cannot be used" in str(metrics.difference(one, told([1000], 2, models={}), "m"))
    assert "cannot be used" in str(metrics.difference(one, told([1000], 2), "no such model"))


@pytest.mark.parametrize("payload", [b"", b"[]", b"{}", b'{"format": 2}', b"\xff", b"[" * 100_000])
def test_what_is_no_metrics_message_is_none(payload: bytes) -> None:
    """Whatever comes on that topic."""
    assert metrics.read(payload, 1) is None


def test_the_rest_is_what_the_device_did_not_have() -> None:
    """A mean of 5 ms here and 2 ms there leaves 3 ms for network and client; others' requests are noticed."""
    here = Histogram()
    here.record(5_000_000)
    found = metrics.difference(told([], 1), told([2_000_000] * 4, 2), "m")
    assert document.stages(found, here, 4)["rest_ms"] == 3
    assert [document.stages(found, here, sent)["others"] for sent in (4, 3)] == [False, True]
    assert document.stages(found, here, 4)["cpu_ms_per_request"] == 1000
    assert document.stages("no", here, 4) == {"why_not": "no"}


def test_a_device_tells_its_status_and_figures_while_it_answers() -> None:
    """The target keeps the last of both, and says nothing of a device that never spoke."""
    with KnownDevice(echo) as device, connected(device) as target:
        assert target.told() is None
        assert "state" not in target.facts()
        assert target.model("m") == {}
        status = {"state": "ready", "boot": "b", "version": "1", "models": {"m": {"inputs": [], "delegate": "cpu"}}}
        device.publish("status", json.dumps(status).encode(), retain=True)
        device.publish("metrics", b'{"format": 1, "boot": "b", "process": {"rss_bytes": 7, "threads": 3}}')
        eventually(lambda: target.told() is not None, "metrics")
        assert target.facts()["state"] == "ready"
        assert target.model("m")["delegate"] == "cpu"
        sampler = process.Sampler(target, None, 1.0)
        sampler.start()
        sampler.stop()
    # The same message is one sample, though it was looked at twice.
    assert [{k: s[k] for k in ("rss_bytes", "threads", "descriptors")} for s in sampler.samples] == [
        {"rss_bytes": 7, "threads": 3, "descriptors": None}
    ]


def test_a_process_of_this_machine_is_looked_at_itself() -> None:
    """Its memory, threads and descriptors are the system's; a process that is not there is refused before the run."""
    with KnownDevice(echo) as device, connected(device) as target:
        sampler = process.Sampler(target, os.getpid(), 1.0)
        sampler.start()
        sampler.stop()
        first, last = sampler.samples[0], sampler.samples[-1]
        # Runtimes and numpy have threads that Python does not know of.
        assert int(last["threads"] or 0) >= threading.active_count()
    assert first["rss_bytes"] == pytest.approx(last["rss_bytes"], rel=0.2)
    assert isinstance(last["descriptors"], int)
    assert last["descriptors"] > 2
    ends = document.drift(sampler.samples)["ends"]
    assert ends["threads"] == [first["threads"], last["threads"]]
    with pytest.raises(UnavailableError, match="there is no process 4194305 here"):
        process.exists(4_194_305)


def test_samples_of_a_run_of_hours_are_bounded() -> None:
    """A day has as many points as a minute has, within a factor."""
    with KnownDevice(echo) as device, connected(device) as target:
        assert process.Sampler(target, None, 60.0)._every_s == 1
        assert process.Sampler(target, None, 3600.0)._every_s == 12
        assert process.Sampler(target, None, 7 * 86_400.0)._every_s == 60

"""Runs against a device whose every delay is known: what the load tool says must be what was done to it."""

from __future__ import annotations

import json
import threading
import time

import pytest
from support import benchdevice
from support.benchdevice import KnownDevice, case, connected, echo, trials
from support.brokers import eventually
from support.fakedevice import answer

from edged.bench.document import Doc
from edged.bench.plan import Case, ClosedLoad, Load, OpenLoad, Span, SparseLoad
from edged.bench.trial import GRACE_MS
from edged.latency import Histogram
from edged.transports.base import Message

STALL_S = 0.4
RATE = 200


def measured(device: KnownDevice, load: Load, seconds: float, **how: float) -> Doc:
    """One case against the device."""
    with device, connected(device) as target:
        return trials(target).run(case(load, seconds, **how), figures=False)  # type: ignore[arg-type]


def share_above(run: Doc, ms: float) -> float:
    """How many of the latencies are longer, 0 to 1, as the histogram says."""
    found = Histogram.decode(run["latency"]["histogram"])
    step = next((i for i in range(1001) if (found.percentile(i / 10) or 0) > ms * 1e6), 1001)
    return 1 - step / 1000


def test_a_stall_shows_in_an_open_loop() -> None:
    """Of 3 s at 200 a second a stall of 0.4 s makes 13 % wait, evenly 0 to 0.4 s: each is counted from its own time."""
    run = measured(KnownDevice(benchdevice.stalls(100, STALL_S)), OpenLoad(RATE), 3.0)
    assert (run["asked"], run["ok"], run["missing"], run["doubled"]) == (600, 600, 0, 0)
    waited = share_above(run, 50)
    assert waited == pytest.approx((STALL_S - 0.05) / 3, rel=0.35)
    assert run["latency"]["p99_ms"] > 0.8 * 1000 * STALL_S * (1 - 0.01 * 3 / STALL_S)
    assert run["latency"]["max_ms"] >= 0.95 * 1000 * STALL_S
    assert run["latency"]["p50_ms"] < 50


def test_the_same_stall_hides_in_a_closed_loop_and_the_report_says_so() -> None:
    """One request waits, the next are sent after it: 0.1 % instead of 13 %, so it is never told as an open loop."""
    run = measured(KnownDevice(benchdevice.stalls(100, STALL_S)), ClosedLoad(1), 1.0)
    assert run["load"]["kind"] == "closed"
    assert any(note.startswith("closed loop:") for note in run["notes"])
    assert share_above(run, 50) < 0.02
    assert run["latency"]["max_ms"] >= 0.95 * 1000 * STALL_S


def test_a_known_delay_is_measured() -> None:
    """A device that takes 20 ms is told to take 20 ms, and a bit for the way."""
    run = measured(KnownDevice(benchdevice.takes(0.02)), OpenLoad(20), 1.0)
    assert (run["asked"], run["ok"]) == (20, 20)
    assert 20 <= run["latency"]["p50_ms"] < 40
    assert run["ok_per_s"] == pytest.approx(20, rel=0.1)


def test_saturation_is_one_over_the_service_time() -> None:
    """However many are in flight, a device that takes 5 ms answers at most 200 a second; 4 in flight wait for 4."""
    one = measured(KnownDevice(benchdevice.takes(0.005)), ClosedLoad(1), 1.0)
    four = measured(KnownDevice(benchdevice.takes(0.005)), ClosedLoad(4), 1.0)
    for run in (one, four):
        assert 60 < run["ok_per_s"] <= 201
    assert four["latency"]["p50_ms"] == pytest.approx(4 * 1000 / four["ok_per_s"], rel=0.25)


def test_missing_answers_are_counted_and_weigh() -> None:
    """Each tenth request is never answered: exactly so many are missing, and P99 is what was waited for them."""
    run = measured(
        KnownDevice(lambda number, request: [] if number % 10 == 5 else echo(number, request)),
        OpenLoad(RATE), 1.0, deadline_ms=100,
    )  # fmt: skip
    assert (run["asked"], run["ok"], run["missing"], run["late"]) == (200, 180, 20, 0)
    assert run["latency"]["n"] == 200
    assert run["latency"]["p99_ms"] >= 100 + GRACE_MS - 1
    assert run["latency"]["p50_ms"] < 100
    assert sum(point["missing"] for point in run["timeline"]) == 20


def test_doubled_answers_are_counted_and_change_nothing() -> None:
    """Each fourth request is answered twice: as many latencies as requests, and the doubles are told."""
    run = measured(
        KnownDevice(lambda number, request: echo(number, request) * (2 if number % 4 == 0 else 1)), OpenLoad(RATE), 0.5
    )
    assert (run["asked"], run["ok"], run["doubled"], run["missing"]) == (100, 100, 25, 0)
    assert run["latency"]["n"] == 100


def test_answers_to_others_are_foreign() -> None:
    """An answer that nobody asked for is neither a latency nor a double."""
    strange = b"12345678" + (7).to_bytes(8, "big")

    def script(number: int, request: Message) -> list[Message]:
        reply = answer(request, b"")
        other = answer(request, b"")
        other.correlation = strange
        return [reply, other]

    run = measured(KnownDevice(script), OpenLoad(50), 0.4)
    assert (run["ok"], run["doubled"], run["foreign"]) == (20, 0, 20)


def test_errors_are_told_by_code() -> None:
    """A device that refuses everything has no latency, however quick it is."""
    run = measured(KnownDevice(benchdevice.refuse), OpenLoad(50), 0.4)
    assert (run["ok"], run["errors"], run["latency"]["n"], run["ok_per_s"]) == (0, {"RESOURCE_EXHAUSTED": 20}, 0, 0)
    assert run["latency"]["p99_ms"] is None


@pytest.mark.parametrize(("how", "first"), [({"warmup_s": 0.3}, 60), ({"warmup_requests": 60}, 60)])
def test_the_warm_up_is_sent_and_not_counted(how: dict[str, float], first: int) -> None:
    """A device that is slow at first: the slow part is not in the figures, and nothing after it is left out."""

    def script(number: int, request: Message) -> list[Message]:
        time.sleep(0.03 if number == 0 else 0)
        return echo(number, request)

    device = KnownDevice(script)
    run = measured(device, OpenLoad(RATE), 0.5, **how)
    assert (run["asked"], run["ok"], len(device.requests)) == (100, 100, 100 + first)
    assert run["seconds"] == pytest.approx(0.5, abs=0.001)


def test_a_slow_generator_is_told_apart_from_a_slow_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sending takes 10 ms at 200 a second: the sends are late, the report says whose fault that is."""
    device = KnownDevice(echo)
    with device, connected(device) as target:
        send = target.send
        monkeypatch.setattr(target, "send", lambda *asked: (time.sleep(0.01), send(*asked))[1])
        run = trials(target).run(case(OpenLoad(RATE), 0.5), figures=False)
    assert run["asked"] == 100
    assert run["late_sends"]["p99_ms"] > 300
    assert run["latency"]["p99_ms"] > 300
    assert any("generator was late" in note for note in run["notes"])


def test_a_request_that_is_not_taken_is_not_sent_again_and_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transport takes each second one only: the rest is unsent, in an open and in a closed loop."""
    for load in (OpenLoad(100), ClosedLoad(2)):
        device = KnownDevice(echo)
        with device, connected(device) as target:
            send, taken = target.send, iter(range(10**9))
            monkeypatch.setattr(target, "send", lambda *a, send=send, taken=taken: bool(next(taken) % 2) and send(*a))
            run = trials(target).run(case(load, 0.3), figures=False)
        assert run["unsent"] in (run["asked"] // 2, run["asked"] - run["asked"] // 2)
        assert run["ok"] == run["asked"] - run["unsent"] == len(device.requests) > 0


def test_sparse_traffic_tells_the_first_after_idle_from_the_rest() -> None:
    """A device that needs 30 ms more after 0.1 s of nothing: first requests show it, those back to back do not."""
    last = [0.0]

    def script(number: int, request: Message) -> list[Message]:
        time.sleep(0.03 if time.monotonic() - last[0] > 0.1 else 0)
        last[0] = time.monotonic()
        return echo(number, request)

    run = measured(KnownDevice(script), SparseLoad(0.25, followers=5), 1.1)
    assert (run["latency"]["n"], run["followers"]["n"], run["ok"]) == (4, 20, 24)
    assert run["latency"]["p50_ms"] >= 30
    assert run["followers"]["p50_ms"] < 20


def test_an_interrupted_run_tells_what_there_was() -> None:
    """Stopped in the middle of a minute, it ends at once, and what is open is neither missing nor answered."""
    stop, device = threading.Event(), KnownDevice(lambda number, request: echo(number, request) if number < 50 else [])
    with device, connected(device) as target:
        threading.Thread(
            target=lambda: (eventually(lambda: len(device.requests) > 60, "60 requests"), stop.set())
        ).start()
        began = time.monotonic()
        run = trials(target, stop).run(case(OpenLoad(RATE), 60.0), figures=False)
    assert time.monotonic() - began < 10
    assert run["interrupted"]
    assert (run["ok"], run["missing"]) == (50, 0)
    assert run["unfinished"] == run["asked"] - 50 > 0
    assert 0.25 < run["seconds"] < 8
    assert run["notes"][0].startswith("interrupted")


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_form_of_a_request_reaches_the_device(protocol: str, qos: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Topic, QoS and deadline are those of the contract in both protocols, and both kinds of reply are read."""
    device = KnownDevice(lambda number, request: (benchdevice.refuse if number % 2 else echo)(number, request))
    with device, connected(device, protocol=protocol, qos=(qos,)) as target:
        monkeypatch.setattr(target, "_protocol", f"MQTT {protocol}")
        asked = benchdevice.Case(benchdevice.question(qos=qos, deadline_ms=1234), OpenLoad(100), benchdevice.Span(0.2))
        run = trials(target).run(asked, figures=False)
    assert (run["ok"], run["errors"]) == (10, {"RESOURCE_EXHAUSTED": 10})
    request = device.requests[0]
    assert request.qos == min(qos, 1)  # the device subscribes with QoS 1
    told = request.topic.split("/")[-1] if protocol == "3.1.1" else dict(request.user)["deadline-ms"]
    assert told == "1234"
    assert request.topic.startswith("edged/v1/dev/dev/req/m/c/edged")


def test_a_run_says_what_its_figures_are_of() -> None:
    """QoS 2 ends at the broker; a model that keeps state served one state only, as its status tells."""
    with KnownDevice(echo) as device, connected(device, qos=(0, 2)) as target:
        twice = Case(benchdevice.question(qos=2), OpenLoad(50), Span(0.1))
        plain = trials(target).run(twice, figures=False)["notes"]
        models = {"m": {"keyed": {"keys": 1}}}
        device.publish("status", json.dumps({"state": "ready", "boot": "b", "models": models}).encode(), retain=True)
        eventually(lambda: bool(target.model("m")), "the status")
        keyed = trials(target).run(case(OpenLoad(50), 0.1), figures=False)["notes"]
    assert [note for note in plain if note.startswith("QoS 2 between this requester and the broker only")]
    assert not [note for note in plain if "state" in note]
    assert [note for note in keyed if note.startswith("the model keeps state: all requests")]
    assert not [note for note in keyed if note.startswith("QoS 2")]

"""A real daemon, a mosquitto that dies, stalls or falls silent, and `edged.Client`: each request is answered once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from support import tinymodel
from support.brokers import FaultProxy, eventually, mosquitto
from support.daemons import DEVICE, DaemonProcess
from support.faulty import DENSE, WIDE, Asked, ChangedDaemon, answered_once, held, metrics, serving
from support.memory import rss_kib

from edged.broker import EmbeddedBroker
from edged.client import Client

pytestmark = pytest.mark.broker
MIB = 1024  # KiB
KEEPALIVE_S = 3  # a busy machine may hold up a process for a second


@pytest.fixture(params=["persistent", "forgetful"])
def restartable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """One that keeps its sessions over a crash, and one that does not."""
    lines = ["persistence false"]
    if request.param == "persistent":
        store = tmp_path / "store"
        store.mkdir(mode=0o777)
        lines = [
            "persistence true",
            f"persistence_location {store}/",
            "autosave_on_changes true",
            "autosave_interval 50",
        ]
    with mosquitto("max_queued_messages 5000", *lines) as broker:
        yield broker


def test_a_broker_restart_in_the_middle_of_1000_requests(restartable: EmbeddedBroker, tmp_path: Path) -> None:
    """QoS 1: all are answered, each once and rightly, after one inference each; nothing is left in memory."""
    tinymodel.write_dense_bundle(tmp_path / "dense")
    with (
        DaemonProcess(tmp_path, restartable.port, serving(DENSE)) as daemon,
        Client(restartable.url_v5) as client,
    ):
        daemon.ready()
        assert client.infer(DEVICE, "dense", np.ones((1, 3), np.float32)).outputs
        before = rss_kib(daemon.process.pid)
        asked = Asked(client, 1000)
        eventually(lambda: asked.done() >= 100, "a hundred answers")
        restartable.kill()
        left = 1000 - asked.done()
        restartable.restart()
        assert asked.outcome() == {"ok": 1000}
        assert answered_once(client, 1001)
        assert left > 0
        found = metrics(restartable.port, after=0.6)
        assert found["models"]["dense"]["since_start"]["requests"] == 1001
        assert found["transport"]["outgoing_messages"] == 0
        assert rss_kib(daemon.process.pid) - before < 16 * MIB
        assert daemon.stop() == 0


# Each invoke waits until it is told to go, and is counted.
GATED = """
gate, done, invoke = Path("go"), Path("done"), TfliteEngine.invoke
def wait(engine):
    while not gate.exists():
        time.sleep(0.01)
    invoke(engine)
    with done.open("ab") as count:
        count.write(b"x")
TfliteEngine.invoke = wait
"""


@pytest.mark.parametrize("qos", [0, 1])
def test_a_stalled_broker_bounds_the_memory(qos: int, tmp_path: Path) -> None:
    """SIGSTOP while 300 replies of 600 KB (180 MB) are made: the queue holds its 64 MiB and the reply memory its 16;
    what has no room is answered with an error. Then all goes on, and every request has had one answer."""
    tinymodel.write_wide_bundle(tmp_path / "wide", 150_000)
    (tmp_path / "go").touch()
    with (
        mosquitto("max_queued_messages 5000", "max_queued_bytes 0", "max_inflight_messages 1000") as broker,
        ChangedDaemon(tmp_path, broker.port, GATED, WIDE) as daemon,
        Client(broker.url_v5, qos=qos, resend_s=3) as client,
    ):
        daemon.ready()
        assert Asked(client, 3, model="wide").outcome() == {"ok": 3}
        (tmp_path / "go").unlink()
        before = rss_kib(daemon.process.pid)
        asked = Asked(client, 300, model="wide")
        waiting = lambda: metrics(broker.port)["models"]["wide"]["queue"]["requests"]  # noqa: E731
        eventually(lambda: waiting() == 300, "all requests wait")
        broker.suspend()
        inferred = (tmp_path / "done").stat().st_size
        (tmp_path / "go").touch()
        grown = peak_growth(daemon.process.pid, before, lambda: (tmp_path / "done").stat().st_size >= inferred + 300)
        broker.resume()
        outcome = asked.outcome()
        assert outcome["ok"] + outcome["RESOURCE_EXHAUSTED"] == 300
        assert outcome["RESOURCE_EXHAUSTED"] >= 100
        assert answered_once(client, 303)
        assert 40 * MIB < grown < 112 * MIB
        found = metrics(broker.port, after=0.6)["transport"]
        assert found["dropped_outgoing_full"] >= outcome["RESOURCE_EXHAUSTED"]
        assert found["intake"]["unsent"] >= outcome["RESOURCE_EXHAUSTED"]
        assert Asked(client, 3, model="wide").outcome() == {"ok": 3}


def peak_growth(pid: int, before: int, ended: Callable[[], bool]) -> int:
    """The largest growth in KiB until all has `ended` and it has been the same for half a second."""
    grown = last = same = 0
    end = time.monotonic() + 60
    while same < 10:
        assert time.monotonic() < end
        time.sleep(0.05)
        now = rss_kib(pid) - before
        same = same + 1 if abs(now - last) < MIB and ended() else 0
        grown, last = max(grown, now), now
    return grown


def test_a_half_open_connection_costs_no_request(tmp_path: Path) -> None:
    """The device's peer is gone without a word: the keepalive finds out, and who still waits is answered."""
    tinymodel.write_dense_bundle(tmp_path / "dense")
    with (
        mosquitto() as broker,
        FaultProxy(broker.port) as proxy,
        DaemonProcess(tmp_path, proxy.port, serving(DENSE, broker={"keepalive_s": KEEPALIVE_S})) as daemon,
        Client(broker.url_v5) as client,
    ):
        daemon.port = broker.port
        daemon.ready()
        assert client.infer(DEVICE, "dense", np.ones((1, 3), np.float32)).outputs
        known = proxy.accepted
        proxy.strand()
        asked = Asked(client, 50)
        assert asked.outcome(30) == {"ok": 50}
        assert proxy.accepted == known + 1
        assert answered_once(client, 51)
        assert metrics(broker.port, after=0.6)["transport"]["disconnects"] == 1
        assert "Keep alive timeout" in daemon.log.read_text()


# The first invoke that is asked for takes two and a half keepalives.
SLOW = f"""
options, invoke = dict(keepalive_s={KEEPALIVE_S}), TfliteEngine.invoke
def wait(engine):
    time.sleep({2.5 * KEEPALIVE_S} if Path("slow").exists() else 0)
    invoke(engine)
TfliteEngine.invoke = wait
"""
HASTY = "options = dict(reconnect_min_s=0.001, reconnect_max_s=0.002, quiet=True)"


def test_an_inference_longer_than_the_keepalive(tmp_path: Path) -> None:
    """A broker gives up a client after one and a half keepalives: the connection stays, and the answer comes."""
    tinymodel.write_wide_bundle(tmp_path / "wide", 4)
    with (
        mosquitto() as broker,
        ChangedDaemon(tmp_path, broker.port, SLOW, WIDE) as daemon,
        Client(broker.url_v5) as client,
    ):
        daemon.ready()
        (tmp_path / "slow").touch()
        asked = Asked(client, 1, model="wide")
        assert asked.outcome() == {"ok": 1}
        assert (asked.futures[0].result().meta.infer_us or 0) > 2_000_000 * KEEPALIVE_S
        assert metrics(broker.port, after=0.6)["transport"]["disconnects"] == 0


def test_500_reconnects_leak_nothing(tmp_path: Path) -> None:
    """Threads and descriptors as before, resident memory within a few MiB, and it still answers."""
    tinymodel.write_dense_bundle(tmp_path / "dense")
    with (
        mosquitto() as broker,
        FaultProxy(broker.port) as proxy,
        ChangedDaemon(tmp_path, proxy.port, HASTY) as daemon,
        Client(broker.url_v5, resend_s=0.05) as client,
    ):
        daemon.port, pid = broker.port, daemon.process.pid
        daemon.ready()
        reconnect(proxy, 50, client)
        before, memory = held(pid), rss_kib(pid)
        reconnect(proxy, 500, client)
        eventually(lambda: held(pid) == before, f"as before: {before}, {held(pid)}")
        assert rss_kib(pid) - memory < 3 * MIB
        found = metrics(broker.port, after=0.6)["transport"]
        assert found["connects"] >= 500
        assert found["outgoing_messages"] == 0
        assert daemon.stop() == 0


def reconnect(proxy: FaultProxy, times: int, client: Client) -> None:
    """Cut the connection so many times, each time when it is up again; a request on every tenth."""
    for number in range(times):
        known = proxy.accepted
        proxy.cut()
        eventually(lambda known=known: proxy.accepted > known, "a new connection")  # type: ignore[misc]
        if number % 10 == 0:
            assert client.infer(DEVICE, "dense", np.ones((1, 3), np.float32), deadline_ms=20_000).outputs

"""No network for an hour of windows: what a real daemon keeps, drops and sends after, as heard at a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import tinymodel
from support.brokers import FaultProxy, eventually, mosquitto
from support.sensorbox import SensorBox, sample
from support.watcher import Watcher

from edged.broker import EmbeddedBroker
from edged.client import Client
from edged.outbox import sender

pytestmark = pytest.mark.broker
OUT, STATUS = "edged/v1/dev/box/out/pair/a", "edged/v1/dev/box/status"
HOUR = 3600


class Ear:
    """Hears the answers at the broker itself, whatever becomes of the daemon's way to it."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self.heard: list[dict[str, Any]] = []

    def hear(self, count: int) -> list[dict[str, Any]]:
        """Wait until `count` answers were heard in all."""
        while len(self.heard) < count:
            message = self._watcher.get(timeout=20)
            assert message.qos == 1
            self.heard.append(json.loads(message.payload))
        return self.heard

    def quiet(self) -> None:
        """Nothing more comes."""
        assert self._watcher.messages.empty()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """It drops nothing of a backlog that comes faster than the test hears: what is missing then was never sent."""
    with mosquitto("max_queued_messages 0") as made:
        yield made


@pytest.fixture
def ear(broker: EmbeddedBroker) -> Iterator[Ear]:
    with Watcher(broker.port, OUT) as watcher:
        yield Ear(watcher)


@pytest.fixture
def proxy(broker: EmbeddedBroker) -> Iterator[FaultProxy]:
    with FaultProxy(broker.port) as made:
        yield made


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    tinymodel.write_add_bundle(tmp_path / "add", 2)
    return tmp_path


def down(proxy: FaultProxy) -> None:
    proxy.refuse()
    proxy.cut()


def up(proxy: FaultProxy) -> None:
    proxy.refuse(refusing=False)


def stored(box: SensorBox, count: int) -> dict[str, Any]:
    """Wait until so many answers were written; returns the outbox's counters then."""
    eventually(lambda: box.outbox()["stored"] == count, "all are on disk")
    return box.outbox()


def delivered(box: SensorBox) -> None:
    """Wait until the daemon knows that the broker has all."""
    eventually(lambda: box.outbox()["waiting"] == 0, "all are acknowledged")


def ask(client: Client) -> None:
    """A request beside the stream."""
    answer = client.infer("box", "add", np.ones((1, 2), np.float32), deadline_ms=20_000)
    assert answer.outputs["y"].tolist() == [[2.0, 2.0]]


def numbers(heard: list[dict[str, Any]]) -> list[int]:
    """The samples' numbers by the answers themselves: the model doubles them."""
    found = [round(one["predictions"][0][0] / 2) for one in heard]
    assert [one["predictions"][0] for one in heard] == [[2 * value for value in sample(n)] for n in found]
    return found


def test_an_hour_without_network(broker: EmbeddedBroker, proxy: FaultProxy, ear: Ear, directory: Path) -> None:
    """All answers of the hour come after it, in order and once, before those of later; requests are answered meanwhile.

    A stop in order then leaves nothing to be sent again.
    """
    with SensorBox(directory, proxy.port) as box, Client(broker.url_v5, user="tester") as client:
        ask(client)
        box.feed(0, 5)
        ear.hear(5)
        delivered(box)
        down(proxy)
        box.feed(5, HOUR)
        kept = stored(box, HOUR)
        assert (kept["waiting"], kept["stream_unsent"]) == (HOUR - 5, 0)
        up(proxy)
        ear.hear(1)
        ask(client)
        assert box.outbox()["waiting"] > 100  # the reply did not wait for them
        box.feed(HOUR, HOUR + 5)
        heard = ear.hear(HOUR + 5)
        assert numbers(heard) == list(range(HOUR + 5))
        assert [one["n"] for one in heard] == list(range(HOUR + 5))
        assert [one["ts"] for one in heard] == sorted(one["ts"] for one in heard)
        delivered(box)
        assert box.stop() == 0
        box.start()
        box.feed(HOUR + 5, HOUR + 6)
        assert numbers(ear.hear(HOUR + 6))[-1] == HOUR + 5
        ear.quiet()
        assert len({one["boot"] for one in heard}) == 2


def test_what_is_more_than_the_bound_is_dropped_and_counted(proxy: FaultProxy, ear: Ear, directory: Path) -> None:
    """The oldest go; what comes is the newest without a hole, and every one of the hour is heard or counted."""
    down(proxy)
    with SensorBox(directory, proxy.port, max_bytes="128KiB") as box:
        box.feed(0, HOUR)
        kept = stored(box, HOUR)
        assert 0 < kept["bytes"] <= 128 << 10
        up(proxy)
        heard = numbers(ear.hear(HOUR - kept["dropped_oldest"]))
        delivered(box)
        ear.quiet()
        assert box.outbox()["dropped_oldest"] == kept["dropped_oldest"]
    first = sender.WINDOW  # those were in the MQTT client's hands when the others were dropped
    assert heard == [*range(first), *range(HOUR - len(heard) + first, HOUR)]
    assert len(heard) > 300


def test_a_kill_in_the_outage_loses_nothing(proxy: FaultProxy, ear: Ear, directory: Path) -> None:
    """SIGKILL with everything on disk, a new start still without a network: both starts' answers come, in order."""
    down(proxy)
    with SensorBox(directory, proxy.port) as box:
        box.feed(0, 500)
        stored(box, 500)
        box.kill()
        box.start()
        box.feed(500, 1000)
        up(proxy)
        heard = ear.hear(1000)
        assert numbers(heard) == list(range(1000))
        assert [one["n"] for one in heard] == [*range(500), *range(500)]
        assert len({one["boot"] for one in heard}) == 2


def test_a_kill_in_the_drain_repeats_a_few_and_loses_nothing(proxy: FaultProxy, ear: Ear, directory: Path) -> None:
    """SIGKILL while the backlog goes out: no more than a window is sent twice, each tells that it is a repeat."""
    down(proxy)
    with SensorBox(directory, proxy.port) as box:
        box.feed(0, 2000)
        stored(box, 2000)
        up(proxy)
        ear.hear(300)
        box.kill()
        before = len(ear.heard)
        box.start()
        box.feed(2000, 2001)
        while 2000 not in numbers(ear.heard[-1:]):
            ear.hear(len(ear.heard) + 1)
    heard = numbers(ear.heard)
    repeats = len(heard) - 2001
    assert before < 2000
    assert 0 <= repeats <= sender.WINDOW
    assert list(dict.fromkeys(heard)) == list(range(2001))  # each, and the first time in order
    assert len({(one["boot"], one["key"], one["n"]) for one in ear.heard}) == 2001


def test_a_full_disk(broker: EmbeddedBroker, proxy: FaultProxy, ear: Ear, directory: Path) -> None:
    """Files that may not grow: told in the status, counted, and what is in memory follows what is on disk, in order."""
    down(proxy)
    with SensorBox(directory, proxy.port, file_limit=60_000) as box, Watcher(broker.port, STATUS) as status:
        kept = box.feed(0, 1000)
        assert 100 < kept["stored"] < 900
        assert kept["write_errors"] > 0
        assert kept["trouble"] == "File too large"
        up(proxy)
        assert numbers(ear.hear(1000)) == list(range(1000))
        told = status.get(lambda m: json.loads(m.payload)["state"] == "degraded")
        assert json.loads(told.payload)["reason"] == "outbox: File too large"
        delivered(box)
        box.feed(1000, 1010)
        assert numbers(ear.hear(1010)) == list(range(1010))
        delivered(box)
        assert sum(box.outbox()[name] for name in ("stored", "unstored")) == 1010

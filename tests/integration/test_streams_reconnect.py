"""Windows over a lost connection: a real daemon behind a proxy, a sensor at the broker that sends on meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import tinymodel
from support.brokers import FaultProxy
from support.daemons import DEVICE, DaemonProcess
from support.watcher import Watcher

from edged.broker import EmbeddedBroker

pytestmark = pytest.mark.broker
LENGTH = 4


@pytest.fixture
def proxy(mosquitto: EmbeddedBroker) -> Iterator[FaultProxy]:
    with FaultProxy(mosquitto.port) as made:
        yield made


def daemon(directory: Path, proxy: FaultProxy) -> DaemonProcess:
    """One that adds its window of 4 x 1 samples to itself, subscribed at QoS 1, without seq."""
    tinymodel.write_add_bundle(directory / "add", LENGTH)
    stream = {
        "name": "one", "topic": "sensors/+/one", "key_level": 1, "decode": "csv", "fields": ["a"],
        "window": {"length": LENGTH, "hop": LENGTH}, "model": "add", "qos": 1,
    }  # fmt: skip
    broker = {"protocol": "5"}
    return DaemonProcess(
        directory, proxy.port, {"models": [{"name": "add", "bundle": "add"}], "streams": [stream], "broker": broker}
    )


def metrics(watcher: Watcher, connects: int, samples: int) -> dict[str, Any]:
    """Wait for metrics of a daemon that has connected so often, and used so many samples."""

    def wanted(message: Any) -> bool:
        if not message.topic.endswith("/metrics"):
            return False
        body = json.loads(message.payload)
        return body["transport"]["connects"] >= connects and body["streams"]["one"]["samples"] >= samples

    found: dict[str, Any] = json.loads(watcher.get(wanted).payload)
    return found


@pytest.mark.parametrize(("qos", "first"), [(0, 3), (1, 0)], ids=["QoS 0: lost", "QoS 1: kept by the broker"])
def test_no_window_is_patched_over_what_was_lost(
    mosquitto: EmbeddedBroker, proxy: FaultProxy, tmp_path: Path, qos: int, first: int
) -> None:
    """Two samples, one while there is no connection, four more: a window has four that follow each other."""
    with daemon(tmp_path, proxy) as running, Watcher(mosquitto.port, f"edged/v1/dev/{DEVICE}/#") as watcher:

        def send(*numbers: int) -> None:
            for number in numbers:
                watcher.publish("sensors/a/one", str(number).encode(), qos=qos)

        running.ready()
        send(0, 1)
        metrics(watcher, 1, 2)
        proxy.refuse()
        proxy.cut()
        watcher.get(lambda m: m.topic.endswith("/status") and json.loads(m.payload)["state"] == "lost")
        send(2)
        proxy.refuse(refusing=False)
        metrics(watcher, 2, 2)
        send(3, 4, 5, 6)
        answer = json.loads(watcher.get(lambda m: "/out/one/" in m.topic).payload)
        assert answer["predictions"] == [[2.0 * number for number in range(first, first + LENGTH)]]
        counted = metrics(watcher, 2, 6)["streams"]["one"]
        assert (counted["interrupted"], counted["gaps"]) == ((1, 0) if qos == 0 else (0, 0))

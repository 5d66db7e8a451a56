"""A stream over a real broker: samples from mosquitto_pub's own protocol library, windows checked against numpy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import tinymodel
from support.daemons import DEVICE, DaemonProcess
from support.watcher import Watcher

from edged.broker import EmbeddedBroker

LENGTH = 4


@pytest.fixture
def daemon(mosquitto: EmbeddedBroker, tmp_path: Path) -> Iterator[DaemonProcess]:
    """A model that adds its 4 x 2 window to itself, fed by sensors/<key>/pair."""
    tinymodel.write_add_bundle(tmp_path / "add", LENGTH * 2)
    stream = {
        "name": "pair", "topic": "sensors/+/pair", "key_level": 1, "decode": "json", "fields": ["a", "b"], "seq": "n",
        "window": {"length": LENGTH, "hop": 2}, "model": "add", "qos": 1,
    }  # fmt: skip
    config = {"models": [{"name": "add", "bundle": "add"}], "streams": [stream]}
    with DaemonProcess(tmp_path, mosquitto.port, config) as daemon:
        daemon.ready()
        yield daemon


def test_windows_per_key_with_a_gap_and_a_bad_sample(daemon: DaemonProcess) -> None:
    """Two sensors interleaved: each window is 2 * the samples it should hold; a gap and rubbish are counted."""
    with Watcher(daemon.port, f"edged/v1/dev/{DEVICE}/#") as watcher:
        for n in range(8):
            for key, offset in (("left", 0), ("right", 100)):
                watcher.publish(f"sensors/{key}/pair", json.dumps({"n": n, "a": n + offset, "b": -n}).encode(), qos=1)
        watcher.publish("sensors/left/pair", b"rubbish", qos=1)
        for n in (20, 21, 22, 23):
            watcher.publish("sensors/left/pair", json.dumps({"n": n, "a": n, "b": -n}).encode(), qos=1)
        found: dict[str, list[object]] = {"left": [], "right": []}
        while sum(map(len, found.values())) < 7:
            message = watcher.get(lambda m: f"/{DEVICE}/out/pair/" in m.topic)
            body = json.loads(message.payload)
            assert body["key"] == message.topic.rpartition("/")[2]
            found[body["key"]].append((body["n"], body["seq"], body["predictions"]))
        metrics = json.loads(watcher.get(lambda m: m.topic.endswith("/metrics")).payload)["streams"]["pair"]
    for key, offset in (("left", 0), ("right", 100)):
        samples = np.array([[n + offset, -n] for n in range(8)], np.float32)
        expected = [(i, 2 * i + 3, (2 * samples[2 * i : 2 * i + LENGTH]).reshape(1, -1).tolist()) for i in range(3)]
        assert found[key][:3] == expected
    after = np.array([[n, -n] for n in range(20, 24)], np.float32)
    assert found["left"][3] == (3, 23, (2 * after).reshape(1, -1).tolist())
    assert (metrics["gaps"], metrics["missed"], metrics["bad"], metrics["keys"]) == (1, 12, 1, 2)

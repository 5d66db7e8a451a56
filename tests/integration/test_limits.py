"""What one user may ask of a real daemon: configured, answered with an error, counted in the metrics."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from support import tinymodel
from support.daemons import DEVICE, DaemonProcess
from support.watcher import Watcher

from edged.broker import EmbeddedBroker

pytestmark = pytest.mark.broker
BURST = 300


def test_limits_per_user(mosquitto: EmbeddedBroker, tmp_path: Path) -> None:
    """A burst over the limit of one unanswered request, and a payload over the limit: every one is answered once."""
    tinymodel.write_add_bundle(tmp_path / "add", 16)
    clients = {"max_requests": 1, "max_payload_bytes": 64}
    config = {"models": [{"name": "add", "bundle": "add", "delegates": ["cpu"]}], "clients": clients}
    request = f"edged/v1/dev/{DEVICE}/req/add/c/tester"
    with (
        DaemonProcess(tmp_path, mosquitto.port, config) as daemon,
        Watcher(mosquitto.port, "edged/v1/resp/tester/#", f"edged/v1/dev/{DEVICE}/metrics") as watcher,
    ):
        daemon.ready()
        for number in range(BURST + 1):
            size = 65 if number == BURST else 64
            facts = {"ResponseTopic": "edged/v1/resp/tester/1", "CorrelationData": b"%d" % number}
            watcher.publish(request, bytes(size), qos=1, **facts)
        found: dict[bytes, str] = {}
        while len(found) <= BURST:
            message = watcher.get(lambda m: "/resp/" in m.topic)
            error = message.payload.startswith(b'{"error"')
            correlation = message.properties.CorrelationData  # type: ignore[union-attr]
            assert correlation not in found
            found[correlation] = json.loads(message.payload)["error"]["code"] if error else "OK"
        codes = Counter(found.values())

        def told(message: object) -> bool:
            body = json.loads(message.payload) if message.topic.endswith("metrics") else {}  # type: ignore[attr-defined]
            return bool(body) and body["transport"]["intake"]["requests"] == BURST + 1

        intake = json.loads(watcher.get(told).payload)["transport"]["intake"]
    assert found[b"%d" % BURST] == "INVALID_ARGUMENT"
    assert set(codes) == {"OK", "RESOURCE_EXHAUSTED", "INVALID_ARGUMENT"}
    assert (intake["too_many"], intake["too_large"]) == (codes["RESOURCE_EXHAUSTED"], 1)

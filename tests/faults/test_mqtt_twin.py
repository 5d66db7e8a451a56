"""A second client with the daemon's client id: noticed, told where an operator looks, and not made worse."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from support import tinymodel
from support.brokers import FaultProxy, OneShotServer, eventually, mosquitto
from support.daemons import DEVICE
from support.faulty import Asked, ChangedDaemon, metrics
from support.watcher import StatusBoard

from edged.client import Client
from edged.transports import mqtt_session
from edged.transports.mqtt import MqttSettings, MqttTransport

pytestmark = pytest.mark.broker
ID = f"edged-{DEVICE}"
CONNACK_V5 = b"\x20\x03\x00\x00\x00"
TAKEN_OVER = b"\xe0\x02\x8e\x00"  # DISCONNECT with reason code 0x8E (MQTT 5.0, 3.14.2.1)


@contextlib.contextmanager
def twin(port: int, protocol: int) -> Iterator[list[float]]:
    """A client that always comes back a moment after it was thrown off, as a script without manners does."""
    connects: list[float] = []
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, ID, protocol=protocol)
    client.reconnect_delay_set(1, 1)
    client.on_connect = lambda *_: connects.append(time.monotonic())
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        yield connects
    finally:
        client.disconnect()
        client.loop_stop()


def test_a_twin_is_told_and_makes_no_storm(tmp_path: Path) -> None:
    """mosquitto says nothing when it throws a client off: the pattern tells. The waits grow, the status says why."""
    tinymodel.write_dense_bundle(tmp_path / "dense")
    with (
        mosquitto() as broker,
        FaultProxy(broker.port) as proxy,
        ChangedDaemon(tmp_path, proxy.port, "options = dict(protocol='3.1.1', reconnect_min_s=0.2)") as daemon,
        StatusBoard(broker.port, DEVICE) as board,
    ):
        board.wait(lambda said: said["state"] == "ready", 30)
        with twin(broker.port, paho.MQTTv311):
            board.wait(lambda said: said["state"] == "degraded", 30)
            assert board.said["reason"].endswith(f"does another client use the client id {ID}?")
            known, begun = proxy.accepted, time.monotonic()
            time.sleep(4)
            more = proxy.accepted - known
            assert more <= 2, f"{more} connections in {time.monotonic() - begun} s"
        # The twin is gone, the daemon comes back by itself, and who waits is answered.
        with Client(broker.url_v5, protocol="3.1.1") as client:
            assert Asked(client, 20).outcome() == {"ok": 20}
        assert metrics(broker.port, after=0.6)["transport"]["cut_short"] >= 1
        assert f"does another client use the client id {ID}?" in daemon.log.read_text()
        assert daemon.stop() == 0


def test_a_broker_that_says_so_is_believed_at_once() -> None:
    """Reason code 0x8E, the first time: the words are certain, the counter counts, the wait grows fourfold."""
    with OneShotServer(lambda _connect: CONNACK_V5 + TAKEN_OVER) as server:
        settings = MqttSettings("127.0.0.1", server.port, client_id=ID, reconnect_min_s=0.05, reconnect_max_s=60)
        transport, states = MqttTransport(settings), list[tuple[bool, str]]()
        transport.start(lambda _message: None, [], on_connection=lambda *state: states.append(state))
        eventually(lambda: transport.stats()["taken_over"] >= 3, "taken over three times")
        known, begun = len(server.seen), time.monotonic()
        time.sleep(1)
        transport.stop()
    what = f"another client takes the connection over: it uses the same client id, {ID}"
    assert (False, f"closed by the broker: Session taken over ({what})") in states
    assert transport.trouble() == what
    assert len(server.seen) - known <= 1, time.monotonic() - begun


def test_a_connection_that_lasts_ends_the_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the twin might only be waiting, the alarm stays."""
    monkeypatch.setattr(mqtt_session, "_STABLE_S", 1.0)
    with mosquitto() as broker:
        settings = MqttSettings.from_url(broker.url_v5, client_id=ID, reconnect_min_s=0.02, reconnect_max_s=0.1)
        transport = MqttTransport(settings)
        transport.start(lambda _message: None, [])
        eventually(lambda: transport.stats()["connects"] == 1, "the connection")
        assert transport.trouble() == ""
        for number in range(2, 6):
            with twin(broker.port, paho.MQTTv5) as connects:
                eventually(lambda: connects, "the twin")
            eventually(lambda number=number: transport.stats()["connects"] >= number, "back")  # type: ignore[misc]
        assert ID in transport.trouble()
        eventually(lambda: transport.trouble() == "", "the end of the alarm")
        transport.stop()

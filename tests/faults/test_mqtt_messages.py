"""Messages that go wrong between a real daemon and its requesters: doubled, too large, not taken, not allowed."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paho.mqtt.client as paho
import pytest
from support import tinymodel
from support.brokers import FaultProxy, eventually, mosquitto
from support.daemons import DEVICE, DaemonProcess
from support.faulty import DENSE, WIDE, Asked, answered_once, metrics, serving
from support.memory import rss_kib
from support.watcher import Watcher

from edged.client import Client
from edged.errors import Code, RequestError
from edged.transports.base import Subscription
from edged.transports.mqtt import MqttSettings, MqttTransport

pytestmark = pytest.mark.broker
ONE = np.ones(1, np.float32)


def doubling() -> Callable[[bytes], bytes]:
    """What sends every PUBLISH at QoS 1 twice, the second time marked as a duplicate (MQTT 5.0, 3.3.1.1)."""
    held = bytearray()

    def alter(data: bytes) -> bytes:
        held.extend(data)
        out = bytearray()
        while (size := _packet_size(held)) and len(held) >= size:
            packet = bytes(held[:size])
            del held[:size]
            out += packet
            if packet[0] & 0xF6 == 0x32:
                out += bytes((packet[0] | 0x08,)) + packet[1:]
        return bytes(out)

    return alter


def _packet_size(data: bytearray) -> int:
    """The bytes of the packet that begins here; 0 when that is not known yet."""
    value = 0
    for index, byte in enumerate(data[1:5]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value + index + 2
    return 0


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_doubled_on_the_wire_both_ways(protocol: str, tmp_path: Path) -> None:
    """Requests come twice and replies come twice: one inference and one answer each; the duplicates are counted."""
    tinymodel.write_dense_bundle(tmp_path / "dense")
    with (
        mosquitto() as broker,
        FaultProxy(broker.port, doubling) as proxy,
        DaemonProcess(tmp_path, proxy.port, serving(DENSE, broker={"protocol": protocol})) as daemon,
        Client(f"mqtt://127.0.0.1:{proxy.port}", protocol=protocol, resend_s=20) as client,
    ):
        daemon.port = broker.port
        daemon.ready()
        asked = Asked(client, 200)
        assert asked.outcome() == {"ok": 200}
        assert answered_once(client, 200)
        found = metrics(broker.port, after=0.6)
        assert found["models"]["dense"]["since_start"]["requests"] == 200
        assert found["transport"]["intake"]["repeats"] >= 200
        assert client.stats()["duplicates"] >= 200


def ask_raw(watcher: Watcher, protocol: str, qos: int, number: int = 1) -> dict[str, Any]:
    """One request by bare paho, sent once; returns the error that comes back."""
    if protocol == "5":
        more = {"ResponseTopic": "edged/v1/resp/ann/1", "CorrelationData": b"%d" % number}
        watcher.publish(f"edged/v1/dev/{DEVICE}/req/wide/c/ann", ONE.tobytes(), qos, **more)
    else:
        watcher.publish(f"edged/v1/dev/{DEVICE}/req/wide/c/ann/n{number}/raw/60000", ONE.tobytes(), qos)
    reply = watcher.get(timeout=40)
    error: dict[str, Any] = json.loads(reply.payload)["error"]
    return error


@pytest.mark.parametrize(
    ("protocol", "limit", "deaths"),
    [
        ("5", "max_packet_size 100000", {0}),
        ("5", "message_size_limit 100000", {0}),
        ("3.1.1", "max_packet_size 100000", {3, 4}),
    ],
)
def test_a_reply_larger_than_the_broker_allows(protocol: str, limit: str, deaths: set[int], tmp_path: Path) -> None:
    """600 KB through a broker for 100: the requester gets an error, however the broker says no, and all goes on.

    MQTT 5 tells the limit (max_packet_size) or refuses the message (message_size_limit). MQTT 3.1.1 hangs up: after
    three times the message is given up, and the next one that is too large is answered at once.
    """
    tinymodel.write_wide_bundle(tmp_path / "wide", 150_000)
    tinymodel.write_dense_bundle(tmp_path / "dense")
    config = serving(WIDE, DENSE, broker={"protocol": protocol})
    version = paho.MQTTv5 if protocol == "5" else paho.MQTTv311
    with (
        mosquitto(limit) as broker,
        DaemonProcess(tmp_path, broker.port, config) as daemon,
        Watcher(broker.port, "edged/v1/resp/ann/#", protocol=version) as ann,
        Client(broker.url_v5, user="bob", protocol=protocol) as client,
    ):
        daemon.ready()
        first = ask_raw(ann, protocol, 1)
        assert (first["code"], first["message"][:12]) == ("RESOURCE_EXHAUSTED", "the reply of")
        assert ask_raw(ann, protocol, 1, 2)["code"] == "RESOURCE_EXHAUSTED"
        with pytest.raises(RequestError, match="the reply of 600000 bytes could not be sent"):
            client.infer(DEVICE, "wide", ONE, codec="raw", deadline_ms=30_000)
        assert Asked(client, 20).outcome() == {"ok": 20}
        found = metrics(broker.port, after=0.6)["transport"]
        assert found["disconnects"] in deaths
        assert found["dropped_poison"] == (0 if 0 in deaths else 1)
        assert found["outgoing_messages"] == 0
        assert daemon.stop() == 0


def test_a_too_large_reply_at_qos_0_is_learnt_from(tmp_path: Path) -> None:
    """MQTT 3.1.1 at QoS 0 keeps nothing to give up: the client asks again, and after three deaths gets its error."""
    tinymodel.write_wide_bundle(tmp_path / "wide", 150_000)
    config = serving(WIDE, broker={"protocol": "3.1.1"})
    with (
        mosquitto("max_packet_size 100000") as broker,
        DaemonProcess(tmp_path, broker.port, config) as daemon,
        Client(broker.url_v5, protocol="3.1.1", qos=0) as client,
    ):
        daemon.ready()
        with pytest.raises(RequestError) as caught:
            client.infer(DEVICE, "wide", ONE, codec="raw", deadline_ms=40_000)
        assert caught.value.code is Code.RESOURCE_EXHAUSTED
        assert metrics(broker.port, after=0.6)["transport"]["disconnects"] in (3, 4)


def test_a_consumer_that_stops_reading_harms_nobody(tmp_path: Path) -> None:
    """200 replies of 60 KB to a client that reads nothing: its neighbours get theirs, the daemon's memory stays."""
    tinymodel.write_wide_bundle(tmp_path / "wide", 15_000)
    tinymodel.write_dense_bundle(tmp_path / "dense")
    with (
        mosquitto("max_queued_messages 100") as broker,
        DaemonProcess(tmp_path, broker.port, serving(WIDE, DENSE)) as daemon,
        Client(broker.url_v5) as client,
        socket.create_connection(("127.0.0.1", broker.port)) as deaf,
    ):
        daemon.ready()
        assert Asked(client, 10).outcome() == {"ok": 10}
        before = rss_kib(daemon.process.pid)
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(b"\x10\x10\x00\x04MQTT\x04\x02\x00\x00\x00\x04deaf")
        deaf.sendall(b"\x82\x19\x00\x01\x00\x14edged/v1/resp/deaf/#\x01")
        for number in range(200):
            topic = f"edged/v1/dev/{DEVICE}/req/wide/c/deaf/n{number}/raw/60000".encode()
            body = len(topic).to_bytes(2, "big") + topic + (number + 2).to_bytes(2, "big") + ONE.tobytes()
            deaf.sendall(b"\x32" + bytes((len(body),)) + body)
        assert Asked(client, 300).outcome() == {"ok": 300}
        assert Asked(client, 50, model="wide").outcome() == {"ok": 50}
        found = metrics(broker.port, after=0.6)
        # The broker stops reading from whom it cannot write to; enough has come for its queue to be full.
        assert found["models"]["wide"]["since_start"]["requests"] >= 50 + 50
        assert found["transport"]["outgoing_messages"] == 0
        assert rss_kib(daemon.process.pid) - before < 40 * 1024


def test_a_forbidden_reply_is_counted_and_logged(tmp_path: Path) -> None:
    """The broker's ACL forgot the device's right to answer: MQTT 5 says so at QoS 1, the operator can see it."""
    tinymodel.write_dense_bundle(tmp_path / "dense")
    (tmp_path / "acl").write_text("topic readwrite edged/v1/dev/#\ntopic read edged/v1/resp/#\n")
    with (
        mosquitto(f"acl_file {tmp_path / 'acl'}") as broker,
        DaemonProcess(tmp_path, broker.port, serving(DENSE)) as daemon,
        Client(broker.url_v5) as client,
    ):
        daemon.ready()
        with pytest.raises(RequestError) as caught:
            client.infer(DEVICE, "dense", np.ones((1, 3), np.float32), deadline_ms=700)
        assert caught.value.code is Code.DEADLINE_EXCEEDED
        found = metrics(broker.port, after=0.6)["transport"]
        assert found["publishes_refused"] >= 1
        assert found["disconnects"] == 0
        assert "the broker refused a message on edged/v1/resp/edged/" in daemon.log.read_text()


def test_a_refused_subscription_is_trouble() -> None:
    """A device whose requests the broker keeps back is connected and deaf: it says so."""
    suback = b"\x20\x03\x00\x00\x00" + b"\x90\x04\x00\x01\x00\x87"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        transport = MqttTransport(MqttSettings("127.0.0.1", listener.getsockname()[1]))
        transport.start(lambda _message: None, [Subscription("edged/v1/dev/box/req/#", 1)])
        with listener.accept()[0] as peer:
            peer.recv(4096)
            peer.sendall(suback)
            what = "subscription to edged/v1/dev/box/req/# refused: Not authorized"
            eventually(lambda: transport.trouble() == what, "the trouble")
            transport.stop(timeout_s=0.2)

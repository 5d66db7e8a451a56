"""The MQTT transport against bytes of our own: marks at the socket, malformed topics, refusals, old brokers."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from paho.mqtt.properties import Properties
from support.brokers import OneShotServer, eventually, require_iotcore
from support.scriptedbroker import CONNACK_V5, ScriptedBroker, publish_packet

from edged.broker import EmbeddedBroker
from edged.clock import now_ns
from edged.transports.base import Message, Subscription
from edged.transports.mqtt import MqttSettings, MqttTransport

_MS = 1_000_000
_V3_UNSUPPORTED = b"\x20\x02\x00\x01"
_V5_UNSUPPORTED = b"\x20\x03\x00\x84\x00"
_V5_BUSY = b"\x20\x03\x00\x89\x00"
_LEVEL_5, _LEVEL_3 = b"\x00\x04MQTT\x05", b"\x00\x04MQTT\x04"


@pytest.fixture
def scripted() -> Iterator[Callable[..., ScriptedBroker]]:
    """Make scripted brokers; both ends are closed at the end."""
    made: list[ScriptedBroker] = []

    def make(**options: Any) -> ScriptedBroker:
        made.append(ScriptedBroker(**options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_received_is_the_first_byte(scripted: Callable[..., ScriptedBroker]) -> None:
    """A packet that takes 300 ms to come in was received at its first byte, not at its last."""
    broker = scripted()
    packet = publish_packet(b"t", b"x" * 1000)
    before = now_ns()
    broker.socket.sendall(packet[:1])
    time.sleep(0.15)
    broker.socket.sendall(packet[1:500])
    time.sleep(0.15)
    last = now_ns()
    broker.socket.sendall(packet[500:])
    eventually(lambda: broker.heard, "the message")
    assert before <= broker.heard[0].received_ns < last - 150 * _MS


def test_each_of_several_packets_has_its_own_mark(scripted: Callable[..., ScriptedBroker]) -> None:
    """Two packets in one segment, then a late one: three marks in order, the last after the pause."""
    broker = scripted()
    broker.socket.sendall(publish_packet(b"t", b"1") + publish_packet(b"t", b"2"))
    time.sleep(0.1)
    between = now_ns()
    broker.socket.sendall(publish_packet(b"t", b"3"))
    eventually(lambda: len(broker.heard) == 3, "three messages")
    marks = [message.received_ns for message in broker.heard]
    assert marks[0] <= marks[1] < between <= marks[2]


@pytest.mark.parametrize("qos", [0, 1])
def test_sent_is_the_last_byte(scripted: Callable[..., ScriptedBroker], qos: int) -> None:
    """While the peer reads nothing, a message larger than every buffer is not sent; the one before it is."""
    broker, marks = scripted(), list[int]()
    assert broker.transport.publish(Message("t", b"small", qos), marks.append)
    eventually(lambda: len(marks) == 1, "the small one")
    for size in (30_000_000, 10):
        assert broker.transport.publish(Message("t", b"x" * size, qos), marks.append)
    time.sleep(0.3)
    assert len(marks) == 1
    reading = now_ns()
    broker.drain(lambda: len(marks) == 3)
    assert reading < marks[1] <= marks[2] <= now_ns()


def test_qos_1_is_sent_before_it_is_acknowledged(scripted: Callable[..., ScriptedBroker]) -> None:
    """The mark is the write, not the PUBACK: this broker never acknowledges."""
    broker, marks = scripted(), list[int]()
    broker.transport.publish(Message("t", b"x", 1), marks.append)
    eventually(lambda: len(marks) == 1, "the mark")
    stats = broker.transport.stats()
    assert (stats["sent"], stats["outgoing_messages"]) == (0, 1)


def test_marks_begin_anew_with_each_connection(scripted: Callable[..., ScriptedBroker]) -> None:
    """What was stuck in a dead connection does not shift the marks of the next: QoS 0 never comes, QoS 1 does."""
    broker, lost, kept = scripted(), list[int](), list[int]()
    assert broker.transport.publish(Message("t", b"x" * 30_000_000, 0), lost.append)
    assert broker.transport.publish(Message("t", b"behind", 1), kept.append)
    time.sleep(0.1)
    assert kept == []
    broker.socket.close()
    broker.accept(2)
    eventually(lambda: len(kept) == 1, "the mark of the message sent again")
    assert broker.transport.publish(Message("t", b"new", 0), kept.append)
    eventually(lambda: len(kept) == 2, "the mark of a new one")
    assert lost == []
    assert broker.transport.stats()["dropped_connection_lost"] == 1


def test_a_topic_that_is_not_utf8_is_counted(scripted: Callable[..., ScriptedBroker]) -> None:
    """The thread lives on and the next message is served."""
    broker = scripted()
    broker.socket.sendall(publish_packet(b"\xff\xfe", b"bad") + publish_packet(b"t", b"good"))
    eventually(lambda: [bytes(message.payload) for message in broker.heard] == [b"good"], "the good one")
    assert broker.transport.stats()["dropped_bad_topic"] == 1


def test_a_malformed_packet_costs_the_connection_only(scripted: Callable[..., ScriptedBroker]) -> None:
    """A length beyond the packet, a reserved type: the connection ends, attempts go on, the reason is told."""
    broker = scripted()
    broker.listener.close()
    broker.socket.sendall(b"\xf0\x00")
    eventually(lambda: broker.transport.stats()["connect_failures"] >= 1, "a further attempt")
    assert broker.transport.stats()["disconnects"] == 1


def test_a_refused_subscription_is_counted(scripted: Callable[..., ScriptedBroker]) -> None:
    """SUBACK 0x87, not authorized."""
    broker = scripted()
    assert broker.subscribe[:1] == b"\x82"
    broker.socket.sendall(b"\x90\x04" + broker.subscribe[2:4] + b"\x00\x87")
    eventually(lambda: broker.transport.stats()["subscriptions_refused"] == 1, "the refusal")


def test_what_connect_says(scripted: Callable[..., ScriptedBroker]) -> None:
    """MQTT 5 with the session's expiry and the keepalive, and no Maximum Packet Size (property 0x27)."""
    broker = scripted(session_expiry_s=3600, keepalive_s=17, client_id="c", resume=True)
    flags = b"\x00"  # resume: no clean start
    properties = b"\x05\x11" + (3600).to_bytes(4, "big")
    assert broker.connect[2:] == _LEVEL_5 + flags + b"\x00\x11" + properties + b"\x00\x01c"


def test_only_the_first_connect_is_clean() -> None:
    """Without `resume`: a clean start once, and again only in a new transport."""
    flags: list[int] = []

    def answer(connect: bytes) -> bytes:
        flags.append(connect[9])
        return CONNACK_V5

    with OneShotServer(answer) as server:
        transport = MqttTransport(MqttSettings("127.0.0.1", server.port, reconnect_min_s=0.01))
        transport.start(lambda _message: None, [])
        eventually(lambda: len(flags) >= 3, "three connects")
        transport.stop()
    assert flags[:3] == [0x02, 0x00, 0x00]


def _levels(seen: list[bytes]) -> list[int]:
    """The protocol level of each CONNECT (byte 8: after type, length and the name "MQTT")."""
    return [packet[8] for packet in seen if packet]


@pytest.mark.parametrize("refusal", [_V3_UNSUPPORTED, _V5_UNSUPPORTED], ids=["3.1.1-style", "5-style"])
def test_falls_back_when_5_is_refused(refusal: bytes) -> None:
    """The next attempt, at once, is MQTT 3.1.1, and the reason says both."""

    def answer(connect: bytes) -> bytes:
        return refusal if _LEVEL_5 in connect else b"\x20\x02\x00\x00"

    states: list[tuple[bool, str]] = []
    with OneShotServer(answer) as server:
        transport = MqttTransport(MqttSettings("127.0.0.1", server.port, reconnect_min_s=60))
        transport.start(lambda _message: None, [], on_connection=lambda *state: states.append(state))
        eventually(lambda: len(states) >= 2, "the connection")
        assert transport.stats()["protocol"] == 4
        assert transport.stats()["fallbacks"] == 1
        transport.stop()
    assert _levels(server.seen) == [5, 4]
    assert states[0] == (False, "refused by the broker: Unsupported protocol version; trying MQTT 3.1.1")
    assert states[1] == (True, "MQTT 3.1.1")


def test_falls_back_when_closed_before_connack() -> None:
    """Three times in a row; then 3.1.1 is tried three times, and so on: a broker of either kind is found."""
    with OneShotServer(lambda _connect: b"") as server:
        transport = MqttTransport(MqttSettings("127.0.0.1", server.port, reconnect_min_s=0.01, reconnect_max_s=0.02))
        transport.start(lambda _message: None, [])
        eventually(lambda: len(server.seen) >= 7, "seven attempts")
        transport.stop()
    assert _levels(server.seen)[:7] == [5, 5, 5, 4, 4, 4, 5]


def test_3_is_doubted_after_early_closes() -> None:
    """Where it is accepted, 5 is tried once more; nothing is told of the connection that was only to find out."""

    def answer(connect: bytes) -> bytes:
        return b"" if _LEVEL_5 in connect else b"\x20\x02\x00\x00"

    states: list[tuple[bool, str]] = []
    with OneShotServer(answer) as server:
        transport = MqttTransport(MqttSettings("127.0.0.1", server.port, reconnect_min_s=0.01, reconnect_max_s=0.02))
        transport.start(lambda _message: None, [], on_connection=lambda *state: states.append(state))
        eventually(lambda: len(server.seen) >= 6, "six attempts")
        eventually(lambda: (True, "MQTT 3.1.1") in states, "the report")
        transport.stop()
    assert _levels(server.seen)[:6] == [5, 5, 5, 4, 5, 4]
    assert (False, "MQTT 3.1.1 works; trying MQTT 5 once more") in states[: states.index((True, "MQTT 3.1.1"))]


def test_another_refusal_is_no_reason_to_fall_back() -> None:
    """A busy broker stays an MQTT 5 broker."""
    with OneShotServer(lambda _connect: _V5_BUSY) as server:
        transport = MqttTransport(MqttSettings("127.0.0.1", server.port, reconnect_min_s=0.01, reconnect_max_s=0.02))
        transport.start(lambda _message: None, [])
        eventually(lambda: len(server.seen) >= 6, "six attempts")
        transport.stop()
    assert set(_levels(server.seen)) == {5}


def test_5_is_tried_again_later() -> None:
    """A broker that was upgraded is found out at the first new connection after `retry_v5_s`."""
    refuse = itertools.chain([True], itertools.repeat(False))

    def answer(connect: bytes) -> bytes:
        if _LEVEL_5 not in connect:
            return b"\x20\x02\x00\x00"
        return _V5_UNSUPPORTED if next(refuse) else CONNACK_V5

    with OneShotServer(answer) as server:
        settings = MqttSettings("127.0.0.1", server.port, reconnect_min_s=0.05, reconnect_max_s=0.05, retry_v5_s=0.01)
        transport = MqttTransport(settings)
        transport.start(lambda _message: None, [])
        eventually(lambda: len(server.seen) >= 3, "three connections")
        transport.stop()
    assert _levels(server.seen)[:3] == [5, 4, 5]


@pytest.mark.iotcore
def test_falls_back_on_rumqttd() -> None:
    """rumqttd's 3.1.1 port hangs up on MQTT 5 clients: "auto" ends up speaking 3.1.1, and messages flow."""
    require_iotcore()
    heard: list[Message] = []
    with EmbeddedBroker("iotcore") as broker:
        transport = MqttTransport(MqttSettings.from_url(broker.url_v3, reconnect_min_s=0.01))
        transport.start(heard.append, [Subscription("t", 1)])
        eventually(lambda: transport.stats()["connects"] == 1, "the connection")
        assert transport.stats()["protocol"] == 4

        def came() -> bool:
            transport.publish(Message("t", b"x", 1, content_type="application/json"))
            return bool(heard)

        eventually(came, "a message")
        transport.stop()


def test_a_fault_in_the_client_is_a_lost_connection(
    scripted: Callable[..., ScriptedBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever paho raises in its thread: logged, counted, and a new connection is made."""
    broker = scripted()
    link = broker.transport._link
    assert link is not None
    fault = threading.Event()

    def raise_once(*_arguments: object) -> int:
        fault.set()
        monkeypatch.undo()
        raise RuntimeError("a bug in the library")

    monkeypatch.setattr(link.client, "loop", raise_once)
    broker.socket.sendall(publish_packet(b"t", b"x"))
    eventually(lambda: broker.transport.stats()["client_errors"] == 1, "the fault")
    eventually(lambda: broker.transport.stats()["disconnects"] == 1, "the new attempt")
    assert fault.is_set()


def _flood(count: int, mid: int) -> bytes:
    """A PUBLISH at QoS 1 with that many user properties."""
    return publish_packet(b"t", b"payload", mid=mid, qos=1, properties=b"\x26\x00\x01k\x00\x01v" * count)


def test_a_flood_of_properties_is_dropped_and_acknowledged(
    scripted: Callable[..., ScriptedBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """40,000 user properties cost no time: the message is counted, never unpacked, and does not come again (PUBACK)."""
    one = scripted()
    unpacked = list[int]()
    real: Any = Properties.unpack

    def unpack(self: Properties, data: bytes) -> object:
        unpacked.append(len(data))
        return real(self, data)

    monkeypatch.setattr(Properties, "unpack", unpack)
    one.socket.sendall(_flood(40_000, 7) + _flood(64, 8))
    acknowledged = b""
    while len(acknowledged) < 8:
        acknowledged += one.socket.recv(64)
    assert acknowledged == b"\x40\x02\x00\x07\x40\x02\x00\x08"
    eventually(lambda: len(one.heard) == 1, "the second message")
    assert (bytes(one.heard[0].payload), len(one.heard[0].user)) == (b"payload", 64)
    assert one.transport.stats()["dropped_properties"] == 1
    assert unpacked == []


def _reached(transport: MqttTransport, name: str, value: int) -> bool:
    return transport.stats()[name] >= value


def test_the_connection_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """One line for each change, with the place once; a quiet owner's lines are for debugging."""
    caplog.set_level("DEBUG", logger="edged.transports")
    for quiet, levels in ((False, ["WARNING", "INFO"]), (True, ["DEBUG", "DEBUG"])):
        caplog.clear()
        with contextlib.closing(socket.socket()) as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
            settings = MqttSettings.from_url(
                f"mqtt://127.0.0.1:{port}", reconnect_min_s=0.01, protocol="5", quiet=quiet
            )
            transport = MqttTransport(settings)
            transport.start(lambda _message: None, [])
            eventually(partial(_reached, transport, "connect_failures", 2), "two refused connections")
            listener.listen()
            peer, _address = listener.accept()
            peer.recv(4096)
            peer.sendall(CONNACK_V5)
            eventually(partial(_reached, transport, "connects", 1), "connected")
            transport.stop(timeout_s=0.2)
            peer.close()
        lines = [(record.levelname, record.getMessage()) for record in caplog.records]
        place = f"127.0.0.1:{port}"
        told = [f"cannot reach {place}: Connection refused; trying again", f"connected to {place} with MQTT 5"]
        assert lines == list(zip(levels, told, strict=True))


@pytest.mark.parametrize("host", ["a..b", "a" * 64])
def test_a_host_that_cannot_be_encoded_is_a_reason(host: str) -> None:
    """Also where it did not come through a URL: the thread lives on and says why."""
    states = list[tuple[bool, str]]()
    transport = MqttTransport(MqttSettings(host=host, reconnect_min_s=0.01))
    transport.start(lambda _message: None, [], on_connection=lambda *state: states.append(state))
    eventually(lambda: transport.stats()["connect_failures"] > 0 and bool(states), "a failure")
    transport.stop(timeout_s=0.2)
    assert "label" in states[0][1]
    assert transport.stats()["client_errors"] == 0

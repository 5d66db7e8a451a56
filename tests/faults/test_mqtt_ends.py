"""Connections that end while a message is on its way: which of them speak against the message, and which do not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.brokers import eventually
from support.scriptedbroker import CONNACK_V5, ScriptedBroker, publish_packet, varint

from edged.transports import mqtt_paho
from edged.transports.base import Message

_LARGE, _SMALL = 100_000, 5_000
_TOO_LARGE, _TAKEN_OVER, _QUOTA = b"\xe0\x02\x95\x00", b"\xe0\x02\x8e\x00", b"\xe0\x02\x97\x00"


class Dying:
    """A broker that ends each connection once it has read the messages. suback: it answers the subscription before."""

    def __init__(self, size: int, *, suback: bool, last_words: bytes) -> None:
        self.broker = ScriptedBroker(client_id="box", reconnect_max_s=0.02)
        self._suback, self._last_words, self._connections = suback, last_words, 1
        self.refused = 0
        for _ in range(2):
            message = Message("t", bytes(size), 1, on_refused=self._count)
            assert self.broker.transport.publish(message)

    def _count(self) -> None:
        self.refused += 1

    def die(self) -> None:
        """Read what comes until nothing is left unread, end the connection, and let the next one in."""
        if self._suback:
            self.answer_subscription()
        for _ in range(self.stats()["outgoing_messages"]):
            assert self.broker.read_packet()[0] & 0xF0 == 0x30
        self.broker.socket.sendall(self._last_words)
        self.broker.socket.close()
        self._connections += 1
        self.broker.accept(self._connections)

    def answer_subscription(self) -> None:
        self.broker.socket.sendall(b"\x90\x04" + self.broker.subscribe[2:4] + b"\x00\x01")

    def stats(self) -> dict[str, int]:
        return self.broker.transport.stats()


@pytest.fixture
def dying() -> Iterator[Callable[..., Dying]]:
    made: list[Dying] = []

    def make(size: int = _LARGE, *, suback: bool = True, last_words: bytes = b"") -> Dying:
        made.append(Dying(size, suback=suback, last_words=last_words))
        return made[-1]

    yield make
    for one in made:
        one.broker.close()


@pytest.mark.parametrize(
    "how",
    [
        {"suback": False}, {"last_words": _TAKEN_OVER}, {"last_words": _QUOTA}, {"size": _SMALL},
    ],
    ids=["it answers nothing", "taken over", "another reason", "nothing large"],
)  # fmt: skip
def test_what_says_nothing_of_a_message(dying: Callable[..., Dying], how: dict[str, Any]) -> None:
    """Five connections in a row, the same messages: they are kept, none is refused, and the alarm says what it is."""
    made = dying(**how)
    for _ in range(5):
        made.die()
    found = made.stats()
    assert (found["dropped_poison"], found["outgoing_messages"], made.refused) == (0, 2, 0)
    assert made.broker.transport.refusal(Message("t", bytes(_LARGE), 1)) == ""
    assert "client id" in made.broker.transport.trouble()
    for _ in range(2):
        _head, body = made.broker.read_packet()
        made.broker.socket.sendall(b"\x40\x02" + body[3:5])
    eventually(lambda: made.stats()["outgoing_messages"] == 0, "both are taken at last")


@pytest.mark.parametrize(("last_words", "deaths"), [(b"", 3), (_TOO_LARGE, 1)], ids=["hangs up", "says so"])
def test_what_speaks_against_a_message(dying: Callable[..., Dying], last_words: bytes, deaths: int) -> None:
    """The broker answers what came before and hangs up over the same message each time, or says why: one time is
    enough. The message is told refused, and the next one as large is refused at once."""
    made = dying(last_words=last_words)
    for _ in range(deaths):
        assert made.stats()["dropped_poison"] == 0
        made.die()
    found = made.stats()
    assert (found["dropped_poison"], found["outgoing_messages"], made.refused) == (2, 0, 2)  # the other is as large
    assert made.broker.transport.refusal(Message("t", bytes(_LARGE), 1)) != ""
    assert made.broker.transport.trouble() == ""


def test_one_connection_that_answers_nothing_acquits(dying: Callable[..., Dying]) -> None:
    """Three in a row, not three in all."""
    made = dying()
    for suback in (True, True, False, True, True):
        made._suback = suback
        made.die()
    assert made.stats()["dropped_poison"] == 0


def test_what_the_broker_said_is_heard_though_nothing_can_be_written(
    dying: Callable[..., Dying], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It spoke and hung up before the first look at the socket: a write fails, and then the reason is read."""
    made, gone = dying(8 << 20), threading.Event()
    client = made.broker.transport._link.client  # type: ignore[union-attr]
    monkeypatch.setattr(client, "_readable", lambda *_: gone.wait(10) and False)
    assert made.broker.transport.publish(Message("t", b"", 1))  # wakes the thread from its wait of before
    time.sleep(0.2)
    made.broker.socket.sendall(_TAKEN_OVER)
    made.broker.socket.close()
    time.sleep(0.1)
    gone.set()
    eventually(lambda: made.stats()["disconnects"] == 1, "the end")
    monkeypatch.undo()
    assert made.stats()["taken_over"] == 1


@pytest.mark.parametrize("stock", [False, True])
def test_a_repeat_is_told(monkeypatch: pytest.MonkeyPatch, *, stock: bool) -> None:
    """DUP of a PUBLISH reaches the message, with our client and with paho's own."""
    if stock:
        monkeypatch.setattr(mqtt_paho, "_WRITTEN_FOR", frozenset())
    broker = ScriptedBroker()
    try:
        packet = publish_packet(b"t", b"x", mid=7, qos=1)
        broker.socket.sendall(packet + bytes((packet[0] | 8,)) + packet[1:])
        eventually(lambda: len(broker.heard) == 2, "both")
        assert [message.dup for message in broker.heard] == [False, True]
    finally:
        broker.close()


def test_a_taken_over_connection_stays_told(dying: Callable[..., Dying]) -> None:
    """The broker spoke of another client; that it hangs up over a message as well does not hide it."""
    made = dying(last_words=_TAKEN_OVER)
    made.die()
    made._last_words = _TOO_LARGE
    made.die()
    assert made.stats()["dropped_poison"] == 2
    assert "another client takes the connection over" in made.broker.transport.trouble()


def test_a_packet_without_end_is_not_read_into_pieces(dying: Callable[..., Dying]) -> None:
    """A CONNACK with a mebibyte of properties: the connection ends at once, the thread lives."""
    made = dying(_SMALL)
    made.broker.socket.close()
    made.broker.socket, _address = made.broker.listener.accept()
    made.broker._read_whole()
    properties = b"\x26\x00\x01a\x00\x01b" * 150_000
    body = b"\x00\x00" + varint(len(properties)) + properties
    made.broker.socket.sendall(b"\x20" + varint(len(body)) + body)
    eventually(lambda: made.stats()["connect_failures"] == 1, "malformed", timeout_s=5)
    made.broker.socket.close()
    made.broker.accept(2)


def test_a_backlog_acknowledged_in_part_before_the_end() -> None:
    """Acknowledgements that come while what waited is still being written: an end like another, no fault of ours."""
    broker = ScriptedBroker(protocol="5", client_id="x", reconnect_max_s=0.02)
    broker.socket.close()
    try:
        for _ in range(200):
            broker.transport.publish(Message("o", bytes(10), 1))
        for _ in range(20):
            _acknowledge_and_hang_up(broker, 3)
        eventually(lambda: broker.transport.stats()["sent"] >= 40, "they count")
        assert broker.transport.stats()["client_errors"] == 0
    finally:
        broker.close()


def _acknowledge_and_hang_up(broker: ScriptedBroker, count: int) -> None:
    broker.socket, _address = broker.listener.accept()
    broker.socket.settimeout(5)
    broker._read_whole()
    broker.socket.sendall(CONNACK_V5)
    while count:
        head, packet = broker.read_packet()
        if head >> 4 == 3:
            broker.socket.sendall(b"\x40\x02" + packet[3:5])
            count -= 1
    broker.socket.close()

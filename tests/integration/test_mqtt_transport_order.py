"""QoS 1 through the MQTT transport keeps its order: nothing that is published later goes before what waits."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest
from support.brokers import eventually
from support.scriptedbroker import ScriptedBroker

from edged.transports.base import Message

_WINDOW = 20  # at QoS 1 on their way without an acknowledgement


@pytest.fixture
def one() -> Iterator[ScriptedBroker]:
    """A scripted broker with its transport; both ends are closed at the end."""
    with contextlib.closing(ScriptedBroker()) as made:
        yield made


def _message(number: int) -> Message:
    return Message("t", bytes((number,)), 1)


def _numbers(one: ScriptedBroker, count: int) -> list[int]:
    """Read so many messages and acknowledge each; returns their numbers in the order they came."""
    found = []
    for _ in range(count):
        command, body = one.read_packet()
        assert command & 0xF0 == 0x30
        found.append(body[-1])
        one.socket.sendall(b"\x40\x02" + body[3:5])
    return found


def test_a_free_place_is_for_what_waits(one: ScriptedBroker) -> None:
    """While an acknowledgement is told to who published, one more is published: it goes behind all that waits."""
    published = threading.Event()

    def acknowledged() -> None:
        published.wait(10)
        assert one.transport.publish(_message(40))

    assert one.transport.publish(_message(0), None, acknowledged)
    for number in range(1, 40):
        assert one.transport.publish(_message(number))
    published.set()
    assert _numbers(one, 41) == list(range(41))
    eventually(lambda: one.transport.stats()["outgoing_messages"] == 0, "all acknowledged")
    assert one.transport.stats()["callback_errors"] == 0


@pytest.mark.parametrize("count", [3, _WINDOW, 2 * _WINDOW])
def test_a_new_connection_is_for_what_waits(one: ScriptedBroker, count: int) -> None:
    """One more is published while the connection is told, as the status is: it goes behind all that waited for it."""
    link = one.transport._link
    assert link is not None
    one.socket.close()
    eventually(lambda: not one.transport.stats()["connected"], "the end of the connection")
    for number in range(count):
        assert one.transport.publish(_message(number))
    link._on_connection = lambda connected, _: connected and one.transport.publish(_message(count))
    one.accept(2)
    assert _numbers(one, count + 1) == list(range(count + 1))
    eventually(lambda: one.transport.stats()["outgoing_messages"] == 0, "all acknowledged")
    assert one.transport.publish(_message(200))  # the places are counted right: it does not wait
    assert _numbers(one, 1) == [200]


def test_an_acknowledgement_of_what_was_not_sent_again(one: ScriptedBroker) -> None:
    """A broker that answers on the next connection for one that still waits frees no place that was not taken."""
    for number in range(30):
        assert one.transport.publish(_message(number))
    ids = [one.read_packet()[1][3:5] for _ in range(_WINDOW)]
    one.socket.sendall(b"\x40\x02" + ids[0])
    ids.append(one.read_packet()[1][3:5])
    one.socket.close()
    one.accept(2, b"\x20\x06\x00\x00\x03\x21\x00\x02")  # two at once
    assert [one.read_packet()[1][-1] for _ in range(2)] == [1, 2]
    one.socket.sendall(b"".join(b"\x40\x02" + mid for mid in ids[5:9]))
    one.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        one.socket.recv(1)
    one.socket.settimeout(10)
    one.socket.sendall(b"\x40\x02" + ids[1] + b"\x40\x02" + ids[2])
    assert _numbers(one, 23) == [3, 4, *range(9, 30)]
    eventually(lambda: one.transport.stats()["outgoing_messages"] == 0, "all acknowledged")
    assert one.transport.publish(_message(200))
    assert _numbers(one, 1) == [200]

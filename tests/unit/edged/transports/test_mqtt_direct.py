"""The store of what waits for a connection, and how the network thread's wait is ended."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from edged.transports.base import Message
from edged.transports.counters import Counters
from edged.transports.mqtt_direct import DirectClient
from edged.transports.mqtt_health import Health
from edged.transports.mqtt_ledger import Entry, Ledger
from edged.transports.mqtt_paho import hooks_fit
from edged.transports.mqtt_settings import MqttSettings

pytestmark = pytest.mark.skipif(not hooks_fit(), reason="another paho: its own client serves")


class Waiting:
    """A client without a connection, what it was told of each message's end, and its health."""

    def __init__(self) -> None:
        self.counters, self.ended = Counters(), list[str]()
        self.ledger = Ledger(1 << 30, 60_000, self.counters)
        self.client = DirectClient("box", clean_session=True, drive=lambda: None, ledger=self.ledger, quickack=False)
        self.health = Health(MqttSettings("h"), self.client, "box", self.ledger, self.counters)

    def send(self, topic: str, size: int = 1) -> str:
        entry = Entry(size, 1, None, lambda: self.ended.append(topic), topic=topic)
        return self.client.send(Message(topic, b"x", qos=1), b"", entry)

    def topics(self) -> list[str]:
        return [message.topic for message in self.client._out_messages.values()]


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


def test_what_is_too_large_is_given_up_and_the_rest_keeps_its_place(waiting: Waiting) -> None:
    """And its packet ids: a broker that kept the session would take another one for another message."""
    for topic, size in (("a", 10), ("b", 99), ("c", 10), ("d", 100)):
        waiting.send(topic, size)
    before = {message.topic: mid for mid, message in waiting.client._out_messages.items()}
    waiting.health.limit_told(50)
    assert (waiting.topics(), waiting.ended) == (["a", "c"], ["b", "d"])
    assert {message.topic: mid for mid, message in waiting.client._out_messages.items()} == {
        topic: before[topic] for topic in ("a", "c")
    }
    assert (waiting.ledger.load(), waiting.counters.snapshot()["dropped_too_large"]) == ((20, 2), 2)


def test_nothing_overtakes_what_waits_while_something_is_given_up(waiting: Waiting) -> None:
    """Another thread publishes all the time: each message of its own stands where it was put."""
    count, stop = 3000, threading.Event()
    for number in range(count):
        waiting.send(f"{number}", 100 if number == 7 else 1)

    def publish() -> None:
        number = count
        while not stop.is_set() and number < 2 * count:
            waiting.send(f"{number}")
            number += 1

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        waiting.health.limit_told(50)
    finally:
        stop.set()
        thread.join()
    numbers = [int(topic) for topic in waiting.topics()]
    assert numbers == sorted(numbers)
    assert (waiting.ended, len(numbers)) == (["7"], waiting.ledger.load()[1])


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Ends as paho makes them, that do not block: the network thread's, and who wakes it."""
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    yield ends
    for end in ends:
        end.close()


def test_a_wake_ends_the_wait_of_the_network_thread(
    waiting: Waiting, pair: tuple[socket.socket, socket.socket]
) -> None:
    """One byte is there for it."""
    waiting.client._sockpairW = pair[1]
    waiting.client._wake()
    assert pair[0].recv(10) == b"0"


def test_a_wake_of_a_thread_that_is_awake_or_gone_is_nothing(
    waiting: Waiting, pair: tuple[socket.socket, socket.socket]
) -> None:
    """Thousands of wakes that nobody took; a closed pair; none, before the start and after the end."""
    waiting.client._wake()
    waiting.client._sockpairW = pair[1]
    with contextlib.suppress(BlockingIOError):
        while pair[1].send(b"0" * 4096):
            pass
    waiting.client._wake()
    pair[0].close()
    waiting.client._wake()
    pair[1].close()
    waiting.client._wake()


def test_a_pair_that_is_let_go_in_the_middle_of_a_wake_is_nothing(waiting: Waiting) -> None:
    """The network thread ends between the look and the send: the publisher that wakes it must not fail for it."""

    def send(_: bytes) -> None:
        waiting.client._sockpairW = None
        raise OSError(9, "Bad file descriptor")

    waiting.client._sockpairW = SimpleNamespace(send=send)  # type: ignore[assignment]
    waiting.client._wake()
    assert waiting.client._sockpairW is None
    waiting.client._wake()

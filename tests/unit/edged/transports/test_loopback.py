"""What is the loopback's own: its buses, its bounded inboxes, its marks. The rest is in the contract tests."""

from __future__ import annotations

import threading

import pytest

from edged.clock import now_ns
from edged.errors import UsageError
from edged.transports import open_transport
from edged.transports.base import Message, Subscription
from edged.transports.loopback import LoopbackBus, LoopbackTransport


def test_buses_are_apart() -> None:
    """A message stays on its bus; the same name is the same bus."""
    heard: list[str] = []
    done = threading.Event()

    def take(message: Message) -> None:
        heard.append(message.topic)
        done.set()

    box = open_transport("loopback://one")
    box.start(take, [Subscription("#", 0)])
    for name in ("two", "one"):
        peer = open_transport(f"loopback://{name}")
        peer.start(lambda _message: None, [])
        peer.publish(Message(name, b""))
        peer.stop()
    assert done.wait(5)
    box.stop()
    assert heard == ["one"]


def test_a_full_inbox_drops_and_counts() -> None:
    """A receiver that hangs holds its bound and no more; the sender never waits."""
    bus, hang, taken = LoopbackBus(), threading.Event(), list[int]()

    def take(message: Message) -> None:
        hang.wait(10)
        taken.append(bytes(message.payload)[0])

    box, sensor = LoopbackTransport(bus, max_inbox_messages=3), LoopbackTransport(bus)
    box.start(take, [Subscription("t", 0)])
    sensor.start(lambda _message: None, [])
    assert all(sensor.publish(Message("t", bytes((n,)))) for n in range(10))
    dropped = box.stats()["dropped_inbox_full"]
    assert dropped in (6, 7)  # one may already be in the hands of `take`
    hang.set()
    box.stop()
    assert taken == list(range(10 - dropped))


def test_overlapping_filters_deliver_once_at_the_higher_qos() -> None:
    """As mosquitto does by default."""
    bus, heard = LoopbackBus(), list[Message]()
    box = LoopbackTransport(bus)
    box.start(heard.append, [Subscription("a/+", 0), Subscription("a/#", 1)])
    box.publish(Message("a/b", b"x", 1))
    box.stop()
    assert [message.qos for message in heard] == [1]


def test_an_abort_leaves_the_will_once() -> None:
    """And a stop after it adds nothing."""
    bus, heard = LoopbackBus(), list[bytes]()
    watch, box = LoopbackTransport(bus), LoopbackTransport(bus)
    watch.start(lambda message: heard.append(bytes(message.payload)), [Subscription("w", 1)])
    box.start(lambda _message: None, [], will=Message("w", b"lost", 1))
    box.abort()
    box.abort()
    box.stop()
    watch.stop()
    assert heard == [b"lost"]


def test_marks_lie_between_publish_and_return() -> None:
    """Handed to the receiver before `publish` returns, so both marks do."""
    bus, heard, marks = LoopbackBus(), list[Message](), list[int]()
    box = LoopbackTransport(bus)
    box.start(heard.append, [Subscription("t", 0)])
    before = now_ns()
    box.publish(Message("t", b"x"), marks.append)
    after = now_ns()
    box.stop()
    assert before <= heard[0].received_ns <= marks[0] <= after


def test_no_shared_subscriptions() -> None:
    """A bus deals nothing in turn, and says so."""
    with pytest.raises(UsageError, match=r"\$share"):
        LoopbackTransport(LoopbackBus()).start(lambda _message: None, [Subscription("$share/g/t", 0)])

"""The rules of edged/transports/base.py on the transport for local producers, asked by a producer without our code.

It has no broker in it, so the suite of the other transports, where each peer hears what it subscribes to, cannot run.
"""

from __future__ import annotations

import gc
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.brokers import eventually
from support.rawproducer import RawProducer
from support.shmbox import Box

from edged.clock import now_ns
from edged.errors import InternalError, UnavailableError, UsageError
from edged.transports import shm_memory, shm_wire
from edged.transports.base import Message, Subscription

USER = f"local-{os.getuid()}"


@pytest.fixture
def producer(box: Box) -> Iterator[RawProducer]:
    with RawProducer(box.path) as producer:
        yield producer


def test_a_request_is_a_message_of_the_contract(box: Box, producer: RawProducer) -> None:
    """Topic, user by the process's owner, payload, content type, deadline, and a mark in between."""
    before = now_ns()
    producer.send(2, b"x" * 50_000, model="har", content_type="application/x-npy", deadline_ms=250)
    (message,) = box.wait(1)
    assert message.topic == f"edged/v1/dev/box/req/har/c/{USER}"
    assert message.response_topic is not None
    assert message.response_topic.startswith(f"edged/v1/resp/{USER}/")
    assert (bytes(message.payload), message.content_type) == (b"x" * 50_000, "application/x-npy")
    assert (message.user, message.correlation, message.retain) == ((("deadline-ms", "250"),), None, False)
    assert before < message.received_ns < now_ns()


def test_raw_needs_no_words(box: Box, producer: RawProducer) -> None:
    """No content type and no deadline: the contract's defaults, which others fill in."""
    producer.send(0, b"abc")
    (message,) = box.wait(1)
    assert (message.content_type, message.user) == (None, ())


def test_tensors_are_read_where_they_lie(box: Box, producer: RawProducer) -> None:
    """The payload is the slot itself: what is written there later shows."""
    producer.send(0, b"before")
    payload = box.wait(1)[0].payload
    producer.write(0, b"after!")
    assert bytes(payload) == b"after!"


@pytest.mark.parametrize("content_type", ["application/json", "image/jpeg", "application/cbor", "no/such"])
def test_what_is_parsed_is_copied_first(box: Box, producer: RawProducer, content_type: str) -> None:
    """Parsers written in C may read a length twice."""
    producer.send(0, b"before", content_type=content_type)
    payload = box.wait(1)[0].payload
    producer.write(0, b"after!")
    assert bytes(payload) == b"before"


@pytest.mark.parametrize(("size", "where"), [(0, "inline"), (4096, "inline"), (4097, "slot"), (100_000, "slot")])
def test_a_reply_comes_whole(box: Box, producer: RawProducer, size: int, where: str) -> None:
    """In the message, or in the slot that goes back with it."""
    producer.send(1, b"x", sequence=77)
    box.wait(1)
    payload = os.urandom(size)
    assert box.answer(payload=payload)
    reply = producer.reply()
    assert (reply.payload, reply.where) == (payload, where)
    assert (reply.slot, reply.sequence, reply.error) == (1, 77, False)
    assert (reply.content_type, reply.meta) == ("application/octet-stream", "v=1;q=3")


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_any_buffer_may_be_a_reply_and_change_afterwards(
    box: Box, producer: RawProducer, kind: Callable[[bytearray], bytearray]
) -> None:
    """A reply that waits to be read is waited for by its caller's buffer too: the worker's is bytes."""
    source = bytearray(b"before")
    producer.send(0, b"x")
    box.wait(1)
    assert box.answer(payload=kind(source))  # type: ignore[arg-type]
    source[:] = b"after!"
    assert producer.reply().payload == b"before"


def test_an_error_is_marked(box: Box, producer: RawProducer) -> None:
    """As the `status` property says."""
    producer.send(0, b"x")
    topic = box.wait(1)[0].response_topic
    assert topic is not None
    box.transport.publish(Message(topic, b"{}", user=(("status", "error"),)))
    reply = producer.reply()
    assert (reply.error, reply.payload) == (True, b"{}")


def test_slots_are_used_again_and_answered_in_any_order(box: Box, producer: RawProducer) -> None:
    """Three at once, answered backwards, ten times over."""
    for _ in range(10):
        for slot in range(3):
            producer.send(slot, bytes((slot,)), sequence=slot + 5)
        box.wait(3)
        assert box.stat("slots_busy") == 3
        for number in (2, 1, 0):
            box.answer(number, bytes(box.messages[number].payload))
        replies = [producer.reply() for _ in range(3)]
        assert [(r.slot, r.sequence, r.payload) for r in replies] == [(s, s + 5, bytes((s,))) for s in (2, 1, 0)]
        box.messages.clear()
    assert box.stat("slots_busy") == 0


def test_on_sent_and_on_done_are_called_once_in_order(box: Box, producer: RawProducer) -> None:
    """Not before `publish`, not after now."""
    marks: list[int] = []
    producer.send(0, b"x")
    box.wait(1)
    before = now_ns()
    box.answer(on_sent=marks.append, on_done=lambda: marks.append(now_ns()))
    producer.reply()
    eventually(lambda: len(marks) == 2, "both marks")
    assert before <= marks[0] <= marks[1] <= now_ns()


def test_nothing_a_callback_raises_stops_the_thread(box: Box, producer: RawProducer) -> None:
    """It is counted, the next message is served, and the slot is not lost: its request is answered."""

    def fail(_any: object = None) -> None:
        raise RuntimeError("the caller's own fault")

    box.hook = fail
    producer.send(0, b"x")
    reply = producer.reply()
    assert (reply.error, b'"INTERNAL"' in reply.payload) == (True, True)
    box.hook = None
    producer.send(0, b"x")
    box.wait(2)
    box.answer(on_sent=fail, on_done=fail)
    assert producer.reply().payload == b"y"
    eventually(lambda: box.stat("callback_errors") == 3, "three errors")


def test_publish_never_blocks_and_keeps_what_is_not_read(socket_path: Path) -> None:
    """A producer that reads nothing fills its socket, then its slots; then it can ask nothing more."""
    box = Box(socket_path, slots=64, slot_bytes=4096).start()
    box.hook = lambda _message: box.answer(payload=b"z" * 4096, on_sent=sent.append)
    sent: list[int] = []
    with RawProducer(socket_path) as producer, RawProducer(socket_path) as other:
        producer.socket.settimeout(0.3)
        asked = 0
        free = list(range(64))
        while free:  # as one that believes its slots to be free again
            producer.send(free.pop(), b"x", sequence=asked)
            asked += 1
        eventually(lambda: len(box.messages) == asked, "all handed on")
        assert 0 < box.stat("unread_replies") <= 64
        assert box.stat("unread_replies") + len(sent) == asked
        other.send(0, b"x")
        assert other.reply().payload == b"z" * 4096
        replies = [producer.reply() for _ in range(asked)]
        assert sorted(reply.sequence for reply in replies) == list(range(asked))
        eventually(lambda: len(sent) == asked + 1, "every mark")
        assert (box.stat("unread_replies"), box.stat("slots_busy")) == (0, 0)
    box.transport.stop()


def test_a_reply_too_large_is_refused_and_can_be_answered_otherwise(box: Box, producer: RawProducer) -> None:
    """`publish` says so and counts it, `refusal` says why; the request waits for what is said in its place."""
    producer.send(0, b"x")
    topic = box.wait(1)[0].response_topic
    assert topic is not None
    assert not box.answer(payload=b"y" * 100_001)
    assert "100001 bytes, a slot has 100000" in box.transport.refusal(Message(topic, b"y" * 100_001))
    assert "beside the payload" in box.transport.refusal(Message(topic, b"", user=(("meta", "m" * 40_000),)))
    assert box.transport.refusal(Message(topic, b"y")) == ""
    assert box.stat("dropped_too_large") == 1
    assert box.answer(payload=b"smaller")
    assert producer.reply().payload == b"smaller"


def test_what_nobody_waits_for_is_dropped_and_counted(box: Box, producer: RawProducer) -> None:
    """Any topic but that of a request under way; a second answer too."""
    producer.send(0, b"x")
    box.wait(1)
    assert box.answer()
    assert not box.answer()
    assert not box.transport.publish(Message("edged/v1/dev/box/status", b""))
    assert "no local producer waits" in box.transport.refusal(Message("a", b""))
    assert box.stat("dropped_invalid") == 2


BROKEN = {
    "no bytes that mean anything": lambda p: p.socket.send(os.urandom(40)),
    "a kind of ours": lambda p: p.socket.send(p.welcome),
    "a head alone": lambda p: p.socket.send(b"\x03\x01\x00"),
    "more than any request": lambda p: p.socket.send(b"\x03" * 100_000),
    "a slot that is none": lambda p: p.announce(3, 1),
    "more than the slot": lambda p: p.announce(0, 100_001),
    "a size that wraps": lambda p: p.announce(0, 2**64 - 1),
    "a topic of its own": lambda p: p.announce(0, 1, model="m/c/somebody"),
    "a model without a name": lambda p: p.announce(0, 1, model=""),
    "a deadline of years": lambda p: p.announce(0, 1, deadline_ms=2**32 - 1),
    "content type in UTF-8": lambda p: p.announce(0, 1, content_type="é"),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=list(BROKEN))
def test_who_breaks_the_rules_is_sent_off_with_the_reason(
    box: Box, producer: RawProducer, broken: Callable[[RawProducer], object]
) -> None:
    """And others go on."""
    with RawProducer(box.path) as good:
        broken(producer)
        reason = producer.receive()
        assert isinstance(reason, str)
        assert reason.startswith("the rules are broken: ")
        assert producer.receive() == ""
        good.send(0, b"x")
        box.wait(1)
        assert box.answer()
        assert good.reply().payload == b"y"
    assert box.stat("dismissed_producers") == 1
    assert len(box.messages) == 1


def test_a_slot_announced_twice(box: Box, producer: RawProducer, caplog: pytest.LogCaptureFixture) -> None:
    """It is the daemon's until the reply; the answer to the first one then goes nowhere, once, and is counted."""
    done: list[bool] = []
    producer.send(0, b"x")
    producer.announce(0, 1)
    assert "announced again before its reply" in str(producer.receive())
    assert box.answer(on_sent=pytest.fail, on_done=lambda: done.append(True))
    assert (len(box.messages), box.stat("dropped_gone"), done) == (1, 1, [True])
    assert f"local producer {USER} sent off: slot 0" in caplog.text


def test_descriptors_sent_along_are_not_kept(box: Box, producer: RawProducer) -> None:
    """A producer cannot fill the daemon's table of them."""
    gc.collect()  # what other tests left behind
    before = len(list(Path("/proc/self/fd").iterdir()))
    producer.write(0, b"x")
    for _ in range(20):
        announced = b"\x03\x01\x00" + bytes(4) + (1).to_bytes(8, "little") + (1).to_bytes(8, "little") + bytes(4) + b"m"
        socket.send_fds(producer.socket, [announced], [0, 1, 2])
        box.wait(1)
        box.answer()
        producer.reply()
        box.messages.clear()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2


def test_more_producers_than_agreed_are_refused(box: Box, producer: RawProducer) -> None:
    """The reason says which limit it is; when one leaves there is room again."""
    with RawProducer(box.path) as second:
        third = RawProducer(box.path)
        assert (third.memory, third.welcome[1:]) == (None, b"2 producers are connected (local.max_producers)")
        third.close()
        assert (box.stat("producers"), box.stat("refused_producers")) == (2, 1)
        second.close()
        eventually(lambda: box.stat("producers") == 1, "the second is gone")
        with RawProducer(box.path) as third:
            third.send(0, b"x")
            box.wait(1)


def test_a_producer_that_dies_leaves_nothing(box: Box) -> None:
    """Its request is answered into nothing; the memory goes with the last who looks at it."""

    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count("memfd:edged-local")

    gc.collect()  # what other tests left behind
    before, producer = mapped(), RawProducer(box.path)
    producer.send(0, b"x" * 1000)
    box.wait(1)
    assert mapped() == before + 2  # the producer's and the box's
    producer.close()
    eventually(lambda: box.stat("producers") == 0, "it is gone")
    assert bytes(box.messages[0].payload) == b"x" * 1000
    assert box.answer(payload=b"y" * 50_000, on_sent=pytest.fail)
    assert box.stat("dropped_gone") == 1
    box.messages.clear()
    eventually(lambda: mapped() == before, "the memory is gone")


def test_memory_in_use_takes_room_when_its_producer_is_gone(box: Box, socket_path: Path) -> None:
    """Who asks, hangs up and comes again does not get more than is agreed; what nobody reads any more is room again."""
    for slot in range(2):
        with RawProducer(socket_path) as producer:
            producer.send(slot, b"x" * 1000)
            box.wait(slot + 1)
    eventually(lambda: box.stat("producers") == 0, "both are gone")
    with RawProducer(socket_path) as third:
        assert (third.memory, third.welcome[1:]) == (None, b"2 producers are connected (local.max_producers)")
    assert box.answer(0)
    box.messages.clear()  # the second's request is still to be answered, which keeps its memory
    gc.collect()
    with RawProducer(socket_path) as third:
        third.send(0, b"x")
        box.wait(1)
        with RawProducer(socket_path) as fourth:
            assert fourth.memory is None


def test_whose_producer_is_gone_is_told(socket_path: Path) -> None:
    """All reply topics that stand for its slots, once, so that what it asked can be given up."""
    gone: list[list[str]] = []
    box = Box(socket_path).start()
    box.transport._on_gone = lambda topics: gone.append(list(topics))
    with RawProducer(socket_path) as producer:
        producer.send(1, b"x")
        topic = box.wait(1)[0].response_topic
    eventually(lambda: gone, "it is told")
    assert (len(gone), len(gone[0]), gone[0][1]) == (1, 3, topic)
    box.transport.stop()


def test_no_memory_is_a_refusal_in_words(socket_path: Path) -> None:
    """64 TiB: the daemon does not even ask for them, which would be the end of others; it goes on."""
    box = Box(socket_path, slots=64, slot_bytes=1 << 40).start()
    producer = RawProducer(socket_path)
    assert "no memory can be had: " in producer.welcome.decode(errors="replace")
    producer.close()
    assert (box.stat("producers"), box.stat("refused_producers")) == (0, 1)
    for _ in range(3):  # it took no room
        with RawProducer(socket_path) as producer:
            assert "no memory can be had: " in producer.welcome.decode(errors="replace")
    box.transport.stop()


def test_stop_writes_what_waits_and_says_so(box: Box, producer: RawProducer) -> None:
    """A reply accepted before `stop` arrives, then the farewell; the file is gone, and nothing is accepted any more."""
    producer.send(0, b"x")
    box.wait(1)
    assert box.answer(payload=b"last")
    box.transport.stop()
    assert producer.reply().payload == b"last"
    assert producer.receive() == "the daemon stops"
    assert not box.path.exists()
    assert not box.answer()
    assert box.stat("dropped_stopped") == 1


def test_who_comes_in_while_it_stops_is_told_too(box: Box, socket_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The serving thread may be awake meanwhile: it must not end before the door is shut."""
    asked, given = threading.Event(), threading.Event()
    create = shm_memory.create

    def slowly(shape: shm_wire.Hello) -> int:
        asked.set()
        assert given.wait(10)
        return create(shape)

    first = RawProducer(socket_path)
    monkeypatch.setattr(shm_memory, "create", slowly)
    words: list[object] = []

    def enter() -> None:
        with RawProducer(socket_path) as late:
            words.append(late.receive())

    threads = [threading.Thread(target=enter), threading.Thread(target=box.transport.stop, args=(1,))]
    threads[0].start()
    assert asked.wait(10)
    threads[1].start()
    eventually(lambda: not socket_path.exists(), "it stops")
    first.close()  # which the serving thread hears
    assert box.transport._thread is not None
    box.transport._thread.join(0.3)
    given.set()
    for thread in threads:
        thread.join(10)
    assert words == ["the daemon stops"]


def test_stop_in_a_callback(box: Box, producer: RawProducer) -> None:
    """A transport may be stopped from its own thread."""
    ended = threading.Event()
    box.hook = lambda _message: (box.transport.stop(), ended.set())
    producer.send(0, b"x")
    assert ended.wait(10)


def test_life_cycle(socket_path: Path) -> None:
    """Starting twice, subscriptions and wills are errors; stopping twice, or before the start, is nothing."""
    Box(socket_path).transport.stop()
    box = Box(socket_path).start()
    with pytest.raises(InternalError):
        box.start()
    with pytest.raises(UsageError):
        Box(socket_path).transport.start(lambda _message: None, [Subscription("a", 0)])
    with pytest.raises(UnavailableError):  # a second daemon on the same path
        Box(socket_path).start()
    with RawProducer(socket_path) as producer:  # which took nothing from the first
        producer.send(0, b"x")
        box.wait(1)
    box.transport.stop()
    box.transport.stop()
    assert (box.states[0][:2], len(box.states)) == ((True, "shm"), 1)
    assert box.states[0][2] != threading.get_ident()
    assert box.transport.trouble() == ""


def test_a_fault_of_ours_costs_one_producer(
    box: Box, producer: RawProducer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever goes wrong with one connection, the others are served, and the thread does not turn in circles."""
    with RawProducer(box.path) as good:
        good.send(0, b"x")
        box.wait(1)
        peers = sorted(box.transport._peers.values(), key=lambda peer: peer.reply_topics[0])
        monkeypatch.setattr(peers[0], "take", None)
        with caplog.at_level(logging.CRITICAL):
            producer.send(0, b"x")
            assert producer.receive() == "a fault in the daemon"
        assert box.answer()
        assert good.reply().payload == b"y"
    assert box.stat("client_errors") == 1

"""The way of a payload through the MQTT transport: read in place, written by who publishes, never mixed, bounded."""

from __future__ import annotations

import contextlib
import os
import queue
import random
import resource
import socket
import struct
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support.brokers import eventually
from support.codec_cases import signature_for
from support.scriptedbroker import ScriptedBroker, publish_packet

from edged.codecs.raw import Raw
from edged.transports import mqtt_buffers, mqtt_receive
from edged.transports.base import Message
from edged.transports.mqtt_receive import AHEAD, TRUSTED, Receiver

_REQUEST = b"\x08\x00\x06resp/1\x09\x00\x081234567\x00\x26\x00\x05model\x00\x02m1"  # the properties of a request
_FRAME = (1, 224, 224, 3)


@pytest.fixture
def scripted() -> Iterator[Callable[..., ScriptedBroker]]:
    """Make scripted brokers; both ends are closed at the end."""
    with contextlib.ExitStack() as stack:

        def make(**options: Any) -> ScriptedBroker:
            made = ScriptedBroker(**options)
            stack.callback(made.close)
            return made

        yield make


def _receiver(one: ScriptedBroker) -> Receiver:
    link = one.transport._link
    assert link is not None
    receiver = link.client._receiver  # type: ignore[attr-defined]
    assert isinstance(receiver, Receiver)
    return receiver


class _Decoder:
    """A second thread that decodes each message into one array, as a daemon's worker does, and tells its checksum."""

    def __init__(self) -> None:
        self.work: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self.array = np.zeros(_FRAME, np.float32)
        self.sums = list[int]()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        signature = signature_for({"x": self.array})
        while (message := self.work.get()) is not None:
            Raw().decode(message.payload, signature, [self.array])
            self.sums.append(zlib.crc32(self.array.data))
            del message

    def stop(self) -> None:
        self.work.put(None)
        self.thread.join()


@pytest.mark.parametrize("qos", [0, 1])
def test_nothing_of_a_payloads_size_is_allocated(scripted: Callable[..., ScriptedBroker], qos: int) -> None:
    """From the socket to the tensor: a request of 600 KB copies 4 KB on the way, and allocates next to nothing."""
    frames = [np.random.default_rng(seed).random(_FRAME, np.float32).tobytes() for seed in range(2)]
    packets = [publish_packet(b"t", frame, mid=7, qos=qos, properties=_REQUEST) for frame in frames]
    decoder = _Decoder()
    one = scripted(on_message=decoder.work.put)

    def send(count: int) -> None:
        done = len(decoder.sums)
        for number in range(count):
            one.socket.sendall(packets[number % 2])
            while len(decoder.sums) <= done + number:
                time.sleep(0.001)

    send(4)
    before = one.transport.stats()
    tracemalloc.start()
    send(20)
    allocated, after = tracemalloc.get_traced_memory()[1], one.transport.stats()
    tracemalloc.stop()
    decoder.stop()
    assert decoder.sums == [zlib.crc32(frame) for frame in frames] * 12
    assert allocated < 60_000
    assert after["receive_buffers"] == before["receive_buffers"]
    assert after["receive_copied_bytes"] - before["receive_copied_bytes"] <= 20 * AHEAD


def test_payloads_that_wait_stay_what_they_are(scripted: Callable[..., ScriptedBroker]) -> None:
    """A queue of messages holds their memory; later ones get other memory, and once it is drained no more is made."""
    one = scripted()
    bodies = [random.Random(seed).randbytes(size) for seed, size in enumerate([50, 300_000, 20, 300_000, 70_000] * 3)]
    for body in bodies:
        one.socket.sendall(publish_packet(b"t", body))
    eventually(lambda: len(one.heard) == len(bodies), "all messages")
    assert [bytes(message.payload) for message in one.heard] == bodies
    one.heard.clear()
    made = one.transport.stats()["receive_buffers"]
    for body in bodies:
        one.socket.sendall(publish_packet(b"t", body))
    eventually(lambda: len(one.heard) == len(bodies), "all messages again")
    assert [bytes(message.payload) for message in one.heard] == bodies
    assert one.transport.stats()["receive_buffers"] <= made + 2  # small ones may lie otherwise


def test_memory_is_given_back(scripted: Callable[..., ScriptedBroker], monkeypatch: pytest.MonkeyPatch) -> None:
    """Some time after a message of 5 MB its memory is gone, though nothing else comes."""
    for module in (mqtt_buffers, mqtt_receive):
        monkeypatch.setattr(module, "IDLE_NS", 1)
    one = scripted()
    one.socket.sendall(publish_packet(b"t", bytes(5_000_000)))
    eventually(lambda: one.heard, "the message")
    pool = _receiver(one).pool
    assert pool.kept() > 5_000_000
    eventually(lambda: pool.kept() < 100_000, "the memory")


def test_packets_of_every_kind_cut_at_each_byte(scripted: Callable[..., ScriptedBroker]) -> None:
    """QoS 0, 1 and 2, one byte a segment: each message once, each answer as the protocol has it."""
    one = scripted()
    one.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream = (
        publish_packet(b"t", b"zero", properties=_REQUEST)
        + publish_packet(b"t", b"one", mid=11, qos=1)
        + publish_packet(b"t", b"two", mid=12, qos=2, properties=_REQUEST)
        + b"\x62\x02\x00\x0c"  # PUBREL
        + publish_packet(b"t", b"", mid=13, qos=1)
    )
    for index in range(len(stream)):
        one.socket.sendall(stream[index : index + 1])
    assert one.read(16) == b"\x40\x02\x00\x0b\x50\x02\x00\x0c\x70\x02\x00\x0c\x40\x02\x00\x0d"
    heard = [(bytes(message.payload), message.qos, message.correlation) for message in one.heard]
    correlation = b"1234567\0"
    assert heard == [(b"zero", 0, correlation), (b"one", 1, None), (b"two", 2, correlation), (b"", 1, None)]


def test_acknowledged_after_it_was_handed_over(scripted: Callable[..., ScriptedBroker]) -> None:
    """While `on_message` has not returned there is no PUBACK."""
    go_on = threading.Event()
    one = scripted(on_message=lambda _message: go_on.wait(10))
    one.socket.sendall(publish_packet(b"t", b"x", mid=5, qos=1))
    one.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        one.socket.recv(4)
    go_on.set()
    one.socket.settimeout(10)
    assert one.read(4) == b"\x40\x02\x00\x05"


@pytest.mark.parametrize(
    ("packet", "why"),
    [
        (b"\x30\xff\xff\xff\xff\x01", "a length of five bytes"),
        (b"\x36\x06\x00\x01t\x00\x01\x00", "QoS 3"),
        (publish_packet(b"t", b"x", properties=b"\x23\x00\x01"), "a topic alias, though we allow none"),
        (publish_packet(b"", b"x"), "no topic"),
        (b"\x30\x03\x00\x09t", "a topic longer than its packet"),
        (b"\x40\x01\x00", "half a packet id"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_what_is_not_mqtt_ends_the_connection(scripted: Callable[..., ScriptedBroker], packet: bytes, why: str) -> None:
    """At once, and the next one is made."""
    one = scripted()
    one.socket.sendall(packet)
    assert one.socket.recv(10) == b"", why
    former = one.socket
    one.accept(2)
    former.close()
    assert one.transport.stats()["client_errors"] == 0


def test_what_would_come_again_for_ever_is_acknowledged(scripted: Callable[..., ScriptedBroker]) -> None:
    """A text that is none: the message is dropped and counted, the connection goes on."""
    one = scripted()
    one.socket.sendall(publish_packet(b"t", b"x", mid=3, qos=1, properties=b"\x03\x00\x01\xff"))
    one.socket.sendall(publish_packet(b"t", b"good", mid=4, qos=1))
    assert one.read(8) == b"\x40\x02\x00\x03\x40\x02\x00\x04"
    assert [bytes(message.payload) for message in one.heard] == [b"good"]
    assert one.transport.stats()["dropped_properties"] == 1


def test_a_length_is_not_believed(scripted: Callable[..., ScriptedBroker]) -> None:
    """A packet said to have 256 MB takes a megabyte before its bytes come."""
    one = scripted()
    one.socket.sendall(b"\x30\xff\xff\xff\x7f" + b"x" * 100)
    receiver = _receiver(one)
    eventually(lambda: receiver._large, "the length read")
    assert receiver.buffer.size == TRUSTED


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("size", [10, 10_000])
def test_the_publishing_thread_writes(scripted: Callable[..., ScriptedBroker], qos: int, size: int) -> None:
    """With room in the kernel the message is out when `publish` returns, and no other thread was needed for it."""
    one, told = scripted(), list[tuple[str, int]]()
    payload = b"x" * size
    assert one.transport.publish(
        Message("t", payload, qos),
        lambda _ns: told.append(("sent", threading.get_ident())),
        lambda: told.append(("done", threading.get_ident())),
    )
    me = threading.get_ident()
    assert told == ([("sent", me)] if qos else [("sent", me), ("done", me)])
    command, body = one.read_packet()
    assert (command, body) == (0x30 | qos << 1, b"\x00\x01t" + (b"\x00\x02" if qos else b"") + b"\x00" + payload)
    if qos:
        one.socket.sendall(b"\x40\x02\x00\x02")
        eventually(lambda: len(told) == 2, "the acknowledgement")
        assert (told[1][0], told[1][1] != me) == ("done", True)
    assert one.transport.stats()["outgoing_messages"] == 0


@pytest.mark.parametrize(
    ("code", "counter"), [(0x10, "sent"), (0x87, "publishes_refused"), (0xFF, "publishes_refused")]
)
def test_what_the_broker_answers(scripted: Callable[..., ScriptedBroker], code: int, counter: str) -> None:
    """Nobody subscribed, not authorized, a code that does not exist: counted, and the connection goes on."""
    one = scripted()
    assert one.transport.publish(Message("t", b"x", 1))
    one.read_packet()
    one.socket.sendall(b"\x40\x04\x00\x02" + bytes((code,)) + b"\x00")
    eventually(lambda: one.transport.stats()[counter] == 1, "the answer")
    one.socket.sendall(b"\x40\x02\x00\x02")  # once more: nobody waits for it
    one.socket.sendall(publish_packet(b"t", b"x"))
    eventually(lambda: one.heard, "a message")
    stats = one.transport.stats()
    assert (stats["outgoing_messages"], stats["sent"] + stats["publishes_refused"]) == (0, 1)


def _shrink(one: ScriptedBroker) -> None:
    """Let little fit into the transport's side of the kernel."""
    link = one.transport._link
    assert link is not None
    sock = link.client.socket()
    assert isinstance(sock, socket.socket)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)


class _Reader:
    """Reads what the transport sends, packet by packet, acknowledges, and checks that none is mixed with another."""

    def __init__(self, one: ScriptedBroker) -> None:
        self.one, self.counts, self.acknowledged = one, [0] * 4, list[int]()

    def read(self, publishes: int, acks: int) -> None:
        while sum(self.counts) < publishes or len(self.acknowledged) < acks:
            command, body = self.one.read_packet()
            if command == 0x40:
                self.acknowledged.append(int.from_bytes(body, "big"))
                continue
            assert command in (0x30, 0x32)
            at = 6 if command == 0x32 else 4
            assert body[:3] == b"\x00\x01t"
            thread, number, size = struct.unpack("!BHI", body[at : at + 7])
            assert number == self.counts[thread], "out of order"
            assert body[at + 7 :] == bytes((thread,)) * size
            self.counts[thread] += 1
            if command == 0x32:
                self.one.socket.sendall(b"\x40\x02" + body[3:5])


def test_packets_of_many_threads_do_not_mix(scripted: Callable[..., ScriptedBroker]) -> None:
    """Four threads that publish, while the network thread acknowledges: every packet whole, each thread's in order."""
    one, requests, each = scripted(), 60, 60
    _shrink(one)
    done = list[int]()

    def publish(thread: int, size: int) -> None:
        for number in range(each):
            payload = struct.pack("!BHI", thread, number, size) + bytes((thread,)) * size
            assert one.transport.publish(Message("t", payload, thread % 2), None, lambda: done.append(thread))

    def request() -> None:
        for mid in range(1, requests + 1):
            one.socket.sendall(publish_packet(b"t", b"request", mid=mid, qos=1))
            time.sleep(0.001)

    threads = [threading.Thread(target=publish, args=both) for both in enumerate((10, 3000, 40_000, 9000))]
    threads.append(threading.Thread(target=request))
    reader = _Reader(one)
    for thread in threads:
        thread.start()
    reader.read(4 * each, requests)
    for thread in threads:
        thread.join()
    assert reader.acknowledged == list(range(1, requests + 1))
    eventually(lambda: len(done) == 4 * each, "all done")
    assert one.transport.stats()["outgoing_bytes"] == one.transport.stats()["outgoing_messages"] == 0
    assert [len(message.payload) for message in one.heard] == [7] * requests


@pytest.mark.parametrize("qos", [0, 1])
def test_a_broker_that_does_not_read_costs_bounded_memory(scripted: Callable[..., ScriptedBroker], qos: int) -> None:
    """What waits is within the bound; the rest is refused and counted; once the broker reads, all accepted comes."""
    bound, size = 1_000_000, 50_000
    one = scripted(max_outgoing_bytes=bound)
    _shrink(one)
    payload, accepted = bytes(size), 0
    tracemalloc.start()
    for _ in range(200):
        accepted += one.transport.publish(Message("t", memoryview(payload), qos))
        stats = one.transport.stats()
        assert stats["outgoing_bytes"] <= bound
        assert stats["outgoing_bytes"] % stats["outgoing_messages"] == 0 if stats["outgoing_messages"] else True
    assert tracemalloc.get_traced_memory()[1] < 2 * bound
    tracemalloc.stop()
    assert one.transport.stats()["dropped_outgoing_full"] == 200 - accepted > 100
    for _ in range(accepted):
        command, body = one.read_packet()
        assert body[-size:] == payload
        if command == 0x32:
            one.socket.sendall(b"\x40\x02" + body[3:5])
    eventually(lambda: one.transport.stats()["outgoing_messages"] == 0, "nothing waits")


def test_more_than_twenty_wait_for_their_acknowledgement(scripted: Callable[..., ScriptedBroker]) -> None:
    """The rest is sent as answers come, and what is not answered comes again, marked, on the next connection."""
    one = scripted()
    for number in range(50):
        assert one.transport.publish(Message("t", bytes((number,)), 1))
    first = [one.read_packet() for _ in range(20)]
    one.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        one.socket.recv(1)
    one.socket.settimeout(10)
    for _command, body in first[:5]:
        one.socket.sendall(b"\x40\x02" + body[3:5])
    more = [one.read_packet() for _ in range(5)]
    assert [body[-1] for _, body in first + more] == list(range(25))
    former, ids = one.socket, dict[int, bytes]()
    former.close()
    one.accept(2)
    again = list[tuple[int, int]]()
    for number in range(45):
        if number >= 20:
            one.socket.settimeout(0.01)
            with pytest.raises(TimeoutError):
                one.socket.recv(1)
            one.socket.settimeout(10)
            one.socket.sendall(b"\x40\x02" + ids[number - 20])
        command, body = one.read_packet()
        ids[number] = body[3:5]
        again.append((command, body[-1]))
    assert again == [(0x3A if number < 25 else 0x32, number) for number in range(5, 50)]
    for number in range(25, 45):
        one.socket.sendall(b"\x40\x02" + ids[number])
    eventually(lambda: one.transport.stats()["outgoing_messages"] == 0, "all acknowledged")
    assert one.transport.stats()["sent"] == 50


def test_the_keepalive_counts_what_is_written_and_read(scripted: Callable[..., ScriptedBroker]) -> None:
    """No PINGREQ while messages go both ways; one when they stop, and without an answer the connection is left."""
    one = scripted(keepalive_s=2)  # a busy machine may hold up this thread for a second
    end = time.monotonic() + 5
    while time.monotonic() < end:
        assert one.transport.publish(Message("t", b"x"))
        assert one.read_packet()[0] == 0x30
        one.socket.sendall(publish_packet(b"t", b"x"))
        time.sleep(0.05)
    assert one.read_packet() == (0xC0, b"")
    assert one.transport.stats()["disconnects"] == 0
    assert one.socket.recv(1) == b""


def test_the_brokers_receive_maximum_is_kept(scripted: Callable[..., ScriptedBroker]) -> None:
    """Three at once for a broker that says so, of what waited for the connection too."""
    one = scripted()
    one.socket.close()
    eventually(lambda: not one.transport.stats()["connected"], "the end of the connection")
    for number in range(10):
        assert one.transport.publish(Message("t", bytes((number,)), 1))
    one.accept(2, b"\x20\x06\x00\x00\x03\x21\x00\x03")
    assert [one.read_packet()[1][-1] for _ in range(3)] == [0, 1, 2]
    one.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        one.socket.recv(1)


def test_the_connection_goes_while_a_message_is_made(scripted: Callable[..., ScriptedBroker]) -> None:
    """At QoS 0 it is refused, counted and leaves no room taken; at QoS 1 it waits and comes on the next connection."""
    one = scripted()
    link = one.transport._link
    assert link is not None
    link.client.accept(open_=False)
    assert not one.transport.publish(Message("t", b"lost"))
    assert one.transport.publish(Message("t", b"kept", 1))
    stats = one.transport.stats()
    assert (stats["dropped_disconnected"], stats["outgoing_messages"]) == (1, 1)
    one.socket.close()
    one.accept(2)
    command, body = one.read_packet()
    assert (command, body[-4:]) == (0x32, b"kept")


def test_beside_a_thousand_open_files(scripted: Callable[..., ScriptedBroker]) -> None:
    """A socket whose number is beyond what select() takes is served like any other."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip("no more than 1,200 files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1030):
            stack.callback(os.close, os.dup(0))
        one = scripted()
        one.socket.sendall(publish_packet(b"t", b"x", mid=1, qos=1))
        assert one.read(4) == b"\x40\x02\x00\x01"
        assert one.transport.publish(Message("t", b"y"))
        assert one.read_packet()[0] == 0x30
        one.close()

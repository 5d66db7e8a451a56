"""What is written at once, what waits, in which order; with sockets that take as much as the test says."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from edged.clock import now_ns
from edged.transports.mqtt_send import JOINED, NO_CONNECTION, QUEUED, Sender

_LARGE = b"p" * (JOINED + 1)


class _Socket:
    """Takes `room` bytes, then no more until there is room again."""

    def __init__(self, room: int) -> None:
        self.room, self.taken = room, b""
        self.broken = False

    def send(self, data: bytes) -> int:
        return self.sendmsg([data])

    def sendmsg(self, parts: list[bytes]) -> int:
        if self.broken:
            raise ConnectionResetError
        if not self.room:
            raise BlockingIOError
        data = b"".join(parts)[: self.room]
        self.room -= len(data)
        self.taken += data
        return len(data)


def _sender(sock: _Socket, wakes: list[int] | None = None) -> Sender:
    sender = Sender(lambda: wakes.append(1) if wakes is not None else None)
    sender.connect(sock)
    sender.accept(open_=True)
    return sender


def _flush(sender: Sender) -> list[int]:
    return list(iter(sender.advance, None))


@pytest.mark.parametrize("payload", [b"", b"small", _LARGE])
def test_written_at_once(payload: bytes) -> None:
    """With nothing before it, by the thread that publishes: nobody is woken."""
    sock, wakes = _Socket(10**6), list[int]()
    sender = _sender(sock, wakes)
    before = now_ns()
    assert before <= sender.publish(b"head", payload, 7, sender.session) <= now_ns()
    assert (sock.taken, wakes, sender.waiting()) == (b"head" + payload, [], False)


@pytest.mark.parametrize("room", [0, 1, 4, 5, 100, JOINED + 4])
@pytest.mark.parametrize("payload", [_LARGE, b"12345678"])
def test_what_is_not_taken_waits(room: int, payload: bytes) -> None:
    """Wherever the kernel stops, the rest goes out later, once, and what comes after goes behind it."""
    sock, wakes = _Socket(room), list[int]()
    sender = _sender(sock, wakes)
    first = sender.publish(b"head", payload, 1, sender.session)
    assert (first == QUEUED) == (room < 4 + len(payload))
    room_left = sock.room
    sock.room = 0
    assert sender.publish(b"next", b"", 2, sender.session) == QUEUED
    sender.control(b"ack")
    assert wakes
    assert _flush(sender) == []
    sock.room = room_left + 10**6
    assert _flush(sender) == ([1, 2, 0] if first == QUEUED else [2, 0])
    assert sock.taken == b"head" + payload + b"nextack"
    assert not sender.waiting()


def test_a_payload_may_change_once_publish_returned() -> None:
    """What waits is a copy, unless it cannot change."""
    sock = _Socket(2)
    sender = _sender(sock)
    for payload in (bytearray(_LARGE), bytearray(b"small")):
        sender.publish(b"head", payload, 1, sender.session)
        payload[:] = b"x" * len(payload)
    sock.room = 10**6
    _flush(sender)
    assert sock.taken == b"head" + _LARGE + b"headsmall"


def test_no_connection() -> None:
    """Not open, another connection than the one the packet was made for, closed: nothing is taken."""
    sock = _Socket(10**6)
    sender = _sender(sock)
    former = sender.session
    sender.accept(open_=False)
    assert sender.publish(b"a", b"", 1, former) == NO_CONNECTION
    assert not sender.put(b"a", 1, publish=True)
    assert sender.put(b"control", 0, publish=False)
    sender.clear()
    sender.connect(sock)
    sender.accept(open_=True)
    assert sender.publish(b"a", b"", 1, former) == NO_CONNECTION
    assert sender.publish(b"a", b"", 1, sender.session) > 0
    sender.disconnect(lambda: None)
    assert sender.publish(b"a", b"", 1, sender.session) == NO_CONNECTION
    assert sock.taken == b"a"


def test_a_broken_socket_is_the_network_threads_to_find() -> None:
    """The publisher's message waits, the network thread is woken and meets the error itself."""
    sock, wakes = _Socket(10**6), list[int]()
    sender = _sender(sock, wakes)
    sock.broken = True
    assert sender.publish(b"a", b"", 1, sender.session) == QUEUED
    assert wakes == [1]
    with pytest.raises(ConnectionResetError):
        sender.advance()


def test_the_socket_is_not_closed_under_a_write() -> None:
    """Its number could be another file's by the time of the write."""
    entered, leave, closed = threading.Event(), threading.Event(), threading.Event()

    class Slow(_Socket):
        def sendmsg(self, parts: list[bytes]) -> int:
            entered.set()
            leave.wait(10)
            return super().sendmsg(parts)

    sender = _sender(Slow(10**6))
    writer = threading.Thread(target=sender.publish, args=(b"a", b"", 1, sender.session))
    closer = threading.Thread(target=sender.disconnect, args=(closed.set,))
    writer.start()
    assert entered.wait(10)
    closer.start()
    assert not closed.wait(0.1)
    leave.set()
    assert closed.wait(10)
    writer.join()
    closer.join()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a connection that holds little."""
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        ours.setblocking(False)
        yield ours, theirs


def _numbered(sender: Sender, thread: int, size: int) -> Callable[[], None]:
    def publish() -> None:
        for number in range(50):
            head = bytes((thread, number)) + size.to_bytes(4, "big")
            sender.publish(head, bytes((thread,)) * size, 1 + thread, sender.session)

    return publish


def test_packets_of_many_threads_do_not_mix(pair: tuple[socket.socket, socket.socket]) -> None:
    """Four threads, packets around what the kernel takes, and the network thread in between: each whole, in order."""
    ours, theirs = pair
    sender = _sender(ours)  # type: ignore[arg-type]
    sizes = (10, 3000, 20_000, 5000)
    threads = [threading.Thread(target=_numbered(sender, *both)) for both in enumerate(sizes)]
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set() or sender.waiting():
            sender.advance()

    network = threading.Thread(target=serve)
    for thread in (*threads, network):
        thread.start()
    counts = [0] * 4
    with theirs.makefile("rb") as stream:
        while sum(counts) < 200:
            head = stream.read(6)
            thread, size = head[0], int.from_bytes(head[2:], "big")
            assert (head[1], size) == (counts[thread], sizes[thread])
            assert stream.read(size) == bytes((thread,)) * size
            counts[thread] += 1
    ended.set()
    for each in (*threads, network):
        each.join()


class _Tls(ssl.SSLSocket):
    """A TLS socket but for the encryption."""

    taken = b""

    def __init__(self) -> None:
        pass  # SSLSocket forbids to make one

    def send(self, data: bytes, _flags: int = 0) -> int:  # type: ignore[override]
        self.taken += data
        return len(data)


def test_with_tls_only_the_network_thread_writes() -> None:
    """OpenSSL's objects do not bear two threads: everything is queued, in order, and the network thread is woken."""
    sock, wakes = _Tls.__new__(_Tls), list[int]()
    sender = Sender(lambda: wakes.append(1))
    sender.connect(sock)
    sender.accept(open_=True)
    assert sender.publish(b"head", _LARGE, 5, sender.session) == QUEUED
    assert sender.publish(b"head", b"small", 6, sender.session) == QUEUED
    assert (sock.taken, len(wakes)) == (b"", 2)
    assert _flush(sender) == [5, 6]
    assert sock.taken == b"head" + _LARGE + b"headsmall"

"""One producer's connection: what becomes of the replies that wait for a producer that dies."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator

import pytest

from edged.transports import shm_memory
from edged.transports.shm_memory import SlotMemory
from edged.transports.shm_peer import Outgoing, Peer, Sent
from edged.transports.shm_wire import Announcement, Hello

_SLOTS = 300
_PART = b"x" * 2000


@pytest.fixture
def ends() -> Iterator[tuple[Peer, socket.socket, select.epoll]]:
    """A peer all of whose slots are the daemon's, the producer's end, and what watches the peer."""
    shape = Hello(_SLOTS, 4096)
    fd = shm_memory.create(shape)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, select.epoll() as poller:
        peer = Peer(1, ours, SlotMemory(fd, shape, populate=False), poller)
        os.close(fd)
        peer.watch()
        for slot in range(_SLOTS):
            peer.take(Announcement(slot, slot, 8, 0, "m", ""))
        yield peer, theirs, poller
        peer.close()


def _reply(slot: int) -> Outgoing:
    return Outgoing(slot, (_PART,), None, None)


def _fill(peer: Peer) -> int:
    """Send until replies wait to be read; returns the slot of the first that does."""
    first = next(slot for slot in range(_SLOTS) if peer.send(_reply(slot)) is Sent.WAITING)
    for slot in range(first + 1, first + 5):
        assert peer.send(_reply(slot)) is Sent.WAITING
    return first


def test_what_a_dead_producer_left_unread_is_lost_once(ends: tuple[Peer, socket.socket, select.epoll]) -> None:
    """However often it is tried to write on: nothing waits any more, and `close` hands over each of them."""
    peer, theirs, poller = ends
    first = _fill(peer)
    assert peer.waiting == 5
    theirs.close()
    assert [peer.flush() for _ in range(3)] == [[], [], []]
    assert peer.waiting == 0
    assert peer.send(_reply(first + 5)) is Sent.GONE
    ((_fd, events),) = poller.poll(1)
    assert events & ~select.EPOLLOUT, "the serving thread hears of it"
    assert [reply.slot for reply in peer.close()] == list(range(first, first + 5))
    assert peer.close() == []


def test_what_was_read_is_written_on(ends: tuple[Peer, socket.socket, select.epoll]) -> None:
    """As the producer reads, what waits goes out in order, and the slots are its own again."""
    peer, theirs, _poller = ends
    first = _fill(peer)
    written = list[Outgoing]()
    while peer.waiting:
        theirs.recv(4096)
        written += peer.flush()
    assert [reply.slot for reply in written] == list(range(first, first + 5))
    assert peer.owned == _SLOTS - first - 5
    assert peer.close() == []


def test_a_producer_that_cannot_be_written_to_is_left(ends: tuple[Peer, socket.socket, select.epoll]) -> None:
    """Whatever the kernel says: a message that it never takes ends the connection, which the serving thread hears."""
    peer, theirs, poller = ends
    assert peer.send(Outgoing(0, (b"x" * (64 << 20),), None, None)) is Sent.GONE
    assert poller.poll(1)
    theirs.settimeout(5)
    assert theirs.recv(10) == b""

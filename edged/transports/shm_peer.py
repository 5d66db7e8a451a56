"""One producer's connection, on the daemon's side: which slots are the daemon's, and replies it has not read yet.

A slot is the daemon's from its announcement until the reply is handed to the kernel. So there are never more replies
in waiting than slots, however long a producer does not read; and a producer that announces a slot which is not its own
is told from one that reads slowly.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from edged import topics
from edged.request import Buffer, OnSent
from edged.transports import shm_wire
from edged.transports.base import OnDone
from edged.transports.shm_memory import SlotMemory
from edged.transports.shm_wire import Announcement

_READ, _READ_WRITE = select.EPOLLIN, select.EPOLLIN | select.EPOLLOUT
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


class Outgoing(NamedTuple):
    """A reply for the slot: parts of its message, and who is told. payload: what goes into the slot, if it does."""

    slot: int
    parts: Sequence[Buffer]
    on_sent: OnSent | None
    on_done: OnDone | None


class Sent(Enum):
    """What became of a reply."""

    WRITTEN = "written"
    WAITING = "waiting"
    GONE = "gone"


class Peer:
    """See the module's text. `take` and `read` are the serving thread's; the rest any thread may call.

    poller: where the connection is watched from `watch` on.
    """

    def __init__(self, number: int, connection: socket.socket, memory: SlotMemory, poller: select.epoll) -> None:
        self.connection, self._memory, self._poller = connection, memory, poller
        self.fd = connection.fileno()
        self.user = f"local-{_uid(connection)}"
        self.shape = memory.shape
        slots = range(memory.shape.slots)
        self.reply_topics = [topics.response(self.user, str(number), str(slot)) for slot in slots]
        self._lock = threading.Lock()
        self._owned: dict[int, int] = {}  # the daemon's slots, with the sequence number of their requests
        self._unsent: deque[Outgoing] = deque()
        self.closed = False
        self._gone = False  # the other end is; the serving thread comes to it

    @property
    def owned(self) -> int:
        """How many slots are the daemon's."""
        return len(self._owned)

    def watch(self) -> None:
        """Let the serving thread hear of it."""
        self._poller.register(self.fd, _READ)

    def take(self, told: Announcement) -> memoryview:
        """Make the slot the daemon's and return its payload. Raises ValueError when it is not to be announced."""
        if told.slot >= self.shape.slots:
            msg = f"slot {told.slot} of {self.shape.slots}"
            raise ValueError(msg)
        if told.size > self.shape.slot_bytes:
            msg = f"{told.size} bytes in a slot of {self.shape.slot_bytes}"
            raise ValueError(msg)
        with self._lock:
            if told.slot in self._owned:
                msg = f"slot {told.slot} announced again before its reply"
                raise ValueError(msg)
            self._owned[told.slot] = told.sequence
        return self._memory.view(told.slot, told.size)

    def sequence(self, slot: int) -> int:
        """Return the number of the request that a slot of the daemon's holds."""
        return self._owned[slot]

    def fill(self, slot: int, payload: Buffer) -> None:
        """Write a reply's payload into a slot of the daemon's."""
        self._memory.view(slot, len(payload))[:] = payload

    def send(self, reply: Outgoing) -> Sent:
        """Write a reply, or keep it until the producer reads. Never blocks."""
        with self._lock:
            if self.closed or self._gone:
                return Sent.GONE
            sent = Sent.WAITING if self._unsent else self._write(reply)
            if sent is Sent.WAITING:
                self._unsent.append(reply)
                self._poller.modify(self.fd, _READ_WRITE)
            return sent

    def flush(self) -> list[Outgoing]:
        """Write what waits; returns what is written now. What a producer that is gone leaves unread is `close`'s."""
        written = []
        with self._lock:
            while self.waiting and not self.closed and self._write(self._unsent[0]) is Sent.WRITTEN:
                written.append(self._unsent.popleft())
            if not self.waiting and not self.closed:
                self._poller.modify(self.fd, _READ)
        return written

    @property
    def waiting(self) -> int:
        """How many replies wait for the producer to read; none when it is gone."""
        return 0 if self._gone else len(self._unsent)

    def close(self, reason: str = "") -> list[Outgoing]:
        """End the connection; returns the replies that were not written. What is still in work keeps the memory."""
        with self._lock:
            unsent, self._unsent = list(self._unsent), deque()
            if not self.closed:
                self.closed = True
                if reason:
                    bid_farewell(self.connection, reason)
                self.connection.close()  # which ends the watching too
        return unsent

    def _write(self, reply: Outgoing) -> Sent:
        # The producer may announce the slot again before `sendmsg` returns.
        sequence = self._owned.pop(reply.slot)
        try:
            self.connection.sendmsg(reply.parts, (), socket.MSG_DONTWAIT)
        except BlockingIOError:
            self._owned[reply.slot] = sequence
            return Sent.WAITING
        except OSError:
            self._gone = True
            with contextlib.suppress(OSError):  # so that the serving thread hears of it whatever the error was
                self.connection.shutdown(socket.SHUT_RDWR)
            return Sent.GONE
        return Sent.WRITTEN


def bid_farewell(connection: socket.socket, reason: str) -> None:
    """Tell a producer why its connection ends, if it can be told at once."""
    with contextlib.suppress(OSError):
        connection.send(shm_wire.write_bye(reason), socket.MSG_DONTWAIT)


def _uid(connection: socket.socket) -> int:
    """Return whose process connected, as the kernel knows it."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(found)[1]
    return uid

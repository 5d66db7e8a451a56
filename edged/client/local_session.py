"""One connection of a local producer: the memory the daemon gave, which slots are free, and what waits for its answer.

Everything here but `open_session` and `read` is called with the producer's lock held.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple

from edged.client.result import Result
from edged.errors import UnavailableError
from edged.transports import shm_memory, shm_wire
from edged.transports.shm_memory import SlotMemory
from edged.transports.shm_wire import Announcement, Kind, ReplyHead


@dataclass(slots=True, eq=False)
class Waiting:
    """An announced request. Times are monotonic ns. given_up: its deadline is over, the slot still the daemon's."""

    sequence: int
    codec: str
    deadline_ms: int
    created_ns: int
    deadline_ns: int
    future: Future[Result] = field(default_factory=Future)
    given_up: bool = False


class Answer(NamedTuple):
    """A reply, its payload copied out of what is used again."""

    head: ReplyHead
    payload: bytes


class Session:
    """See the module's text. `connection` is read by one thread."""

    def __init__(self, connection: socket.socket, memory: SlotMemory) -> None:
        self.connection, self.memory = connection, memory
        self.slot_bytes = memory.shape.slot_bytes
        self.free = deque(range(memory.shape.slots))
        self.sequence = itertools.count(1)
        self.waiting: dict[int, Waiting] = {}
        self.lost = False
        self._ended = ""
        self._buffer = bytearray(shm_wire.MAX_REPLY)

    def announce(self, told: Announcement, waiting: Waiting) -> bool:
        """Hand the slot to the daemon; False when the daemon does not read. The slot stays taken then.

        Raises ConnectionError when the daemon is gone: it will not hear of this one.
        """
        self.waiting[told.slot] = waiting
        try:
            self.connection.send(shm_wire.write_request(told), socket.MSG_DONTWAIT)
        except ConnectionError:
            del self.waiting[told.slot]
            raise
        except OSError:
            del self.waiting[told.slot]
            return False
        return True

    def answered(self, head: ReplyHead) -> Waiting | None:
        """Return who waited for this reply, its slot now free; None when nobody did."""
        waiting = self.waiting.get(head.slot)
        if waiting is None or waiting.sequence != head.sequence:
            return None
        del self.waiting[head.slot]
        self.free.append(head.slot)
        return waiting

    def expired(self, now: int) -> list[Waiting]:
        """Return those whose deadline has passed, each once."""
        late = [one for one in self.waiting.values() if one.deadline_ns <= now and not one.given_up]
        for one in late:
            one.given_up = True
        return late

    def next_deadline_ns(self, never: int) -> int:
        """Return when the next deadline passes."""
        return min((one.deadline_ns for one in self.waiting.values() if not one.given_up), default=never)

    def read(self) -> Answer | None:
        """Read one message; None when there is none. Raises ConnectionError when the connection has ended, and why."""
        if not self._ended:
            try:
                return self._read()
            except BlockingIOError:
                return None
            except OSError as error:
                self._ended = error.strerror or str(error)
        raise ConnectionError(self._ended)

    def _read(self) -> Answer:
        try:
            size = self.connection.recv_into(self._buffer, 0, socket.MSG_DONTWAIT)
        except ConnectionResetError:  # the daemon had not read everything; what it said last comes after this
            size = self.connection.recv_into(self._buffer, 0, socket.MSG_DONTWAIT)
        data = memoryview(self._buffer)[:size]
        if size == 0:
            raise ConnectionError("the daemon is gone")
        if data[0] == Kind.BYE:
            raise ConnectionError(shm_wire.read_bye(bytes(data)))
        try:
            head, rest = shm_wire.read_reply(data)
        except ValueError as error:
            raise ConnectionError(f"the daemon sent {error}") from error
        return Answer(head, bytes(self.memory.view(head.slot, head.size) if head.in_slot else rest))


def open_session(path: str, readable: Callable[[socket.socket], bool]) -> Session:
    """Connect and take the memory. readable: waits until there is something to read, False to give up.

    Raises OSError when nobody listens there, UnavailableError with the reason of a daemon that does not let us in.
    """
    with contextlib.ExitStack() as undo:
        connection = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        connection.settimeout(0)  # a daemon that is stopped would let us wait for ever
        connection.connect(path)
        connection.settimeout(None)
        if not readable(connection):
            raise UnavailableError(path, "the daemon does not answer")
        session = _welcomed(path, connection)
        undo.pop_all()
    return session


def _welcomed(path: str, connection: socket.socket) -> Session:
    data, fds, _flags, _address = socket.recv_fds(connection, shm_wire.MAX_REQUEST, 1, socket.MSG_CMSG_CLOEXEC)
    try:
        if data[:1] == bytes((Kind.BYE,)):
            raise UnavailableError(path, shm_wire.read_bye(data))
        hello = shm_wire.read_hello(data)
        if not fds:
            raise UnavailableError(path, "the daemon gave no memory")
        shm_memory.check(fds[0], hello)
        return Session(connection, SlotMemory(fds[0], hello, populate=True))
    except ValueError as error:
        raise UnavailableError(path, str(error)) from error
    finally:
        for fd in fds:
            os.close(fd)

"""What goes out on one connection, in order: written at once where the kernel takes it, else by the network thread.

One lock orders everything that is written, so that packets of several threads never mix. A thread that publishes
writes by itself when nothing waits: no wake-up of another thread, no copy of the payload. What the kernel does not
take stays in the queue, and all that comes after goes behind it. With TLS only the network thread writes, since
OpenSSL's objects do not bear two threads.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from edged.clock import now_ns
from edged.request import Buffer

NO_CONNECTION, QUEUED = -1, 0  # what `publish` returns beside a time
JOINED = 4096  # bytes: up to here a copy is cheaper than a list of parts
_LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Sender:
    """Writes packets to the socket of the day. `wake` ends the network thread's wait; last_ns: the last write's time.

    A mark is a number that stands for a packet where it is told that the packet is out; 0: nobody asks.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.last_ns = 0
        self.session = 0  # a number for each connection
        self._wake = wake
        self._lock = threading.Lock()
        self._queue: deque[tuple[list[memoryview], int]] = deque()
        self._socket: Any = None
        self._direct = self._open = False

    def connect(self, sock: Any) -> None:
        """Use this socket, which does not block, from now on."""
        with self._lock:
            self._socket, self._direct = sock, not isinstance(sock, ssl.SSLSocket)
            self.session += 1

    def accept(self, open_: bool) -> None:
        """Let `publish` in, or not."""
        with self._lock:
            self._open = open_

    def disconnect(self, close: Callable[[], None]) -> None:
        """Run `close`, which closes the socket, while nobody writes to it."""
        with self._lock:
            self._socket, self._open = None, False
            close()

    def clear(self) -> None:
        """Forget what waits."""
        with self._lock:
            self._queue.clear()

    def publish(self, head: bytes, payload: Buffer, mark: int, session: int) -> int:
        """Send a packet from any thread; returns when its last byte was written, QUEUED, or NO_CONNECTION.

        NO_CONNECTION also when `session`, for which the packet was made, is over.
        """
        with self._lock:
            if not self._open or session != self.session:
                return NO_CONNECTION
            if self._write(head, payload, mark):
                return self.last_ns
        self._wake()
        return QUEUED

    def control(self, packet: bytes) -> None:
        """Send a packet of the network thread's own, at once where that is possible."""
        with self._lock:
            self._write(packet, b"", 0)

    def put(self, packet: bytes, mark: int, *, publish: bool) -> bool:
        """Queue a packet; the caller wakes the network thread. False for a publish while there is no connection."""
        with self._lock:
            if publish and not self._open:
                return False
            self._queue.append(([memoryview(packet)], mark))
            return True

    def waiting(self) -> bool:
        """Whether something is left to write."""
        return bool(self._queue)

    def advance(self) -> int | None:
        """Write on; returns the mark of a packet that is out now, None when no more is to be done for the moment.

        Only the network thread calls it. Raises what the socket raises.
        """
        with self._lock:
            while self._queue and self._socket is not None:
                parts, mark = self._queue[0]
                try:
                    _advance(parts, self._send(parts))
                except _LATER:
                    return None
                self.last_ns = now_ns()
                if not parts:
                    self._queue.popleft()
                    return mark
        return None

    def _write(self, head: bytes, payload: Buffer, mark: int) -> bool:
        """Write now, if nothing waits; what is not taken is queued. Returns whether all is out."""
        small = len(payload) <= JOINED
        if small:
            head, payload = head + bytes(payload), b""
        sent = 0
        if self._direct and not self._queue and self._socket is not None:
            # Full, or broken: then the network thread meets the same error and says so.
            with contextlib.suppress(OSError):
                sent = self._socket.send(head) if small else self._socket.sendmsg((head, payload))
            if sent == len(head) + len(payload):
                self.last_ns = now_ns()
                return True
        # The caller may use its memory again as soon as `publish` returned.
        parts = [memoryview(part if isinstance(part, bytes) else bytes(part)) for part in (head, payload) if part]
        _advance(parts, sent)
        self._queue.append((parts, mark))
        return False

    def _send(self, parts: list[memoryview]) -> int:
        sent: int = self._socket.sendmsg(parts) if self._direct else self._socket.send(parts[0])
        return sent


def _advance(parts: list[memoryview], count: int) -> None:
    """Take what was sent off the front."""
    while parts and count >= len(parts[0]):
        count -= len(parts.pop(0))
    if count:
        parts[0] = parts[0][count:]

"""Where local producers come in: each gets memory of its own and the hello, or hears why not."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from edged.config_device import LocalConfig
from edged.transports import shm_memory, shm_socket, shm_wire
from edged.transports.counters import Counters
from edged.transports.shm_memory import SlotMemory
from edged.transports.shm_peer import Peer, bid_farewell
from edged.transports.shm_wire import Hello

_log = logging.getLogger(__name__)
_PAUSE_S = 0.5  # after a connection that could not be taken: too many descriptors are open


class Door:
    """Listens from the moment it is made; `enter` is called with each new producer, on the thread of the door.

    Raises as `shm_socket.listen`. A producer takes room until its memory is gone, which may be later than itself: so
    the memory of all together has a bound.
    """

    def __init__(
        self, config: LocalConfig, counters: Counters, poller: select.epoll, enter: Callable[[Peer], None]
    ) -> None:
        self._config, self._counters, self._poller, self._enter = config, counters, poller, enter
        self._shape = Hello(config.slots, config.slot_bytes)
        self._listener = shm_socket.listen(config.socket, config.group)
        self._inode = config.socket.lstat().st_ino
        # A room each; one step adds and one takes away, since a memory may go on any thread, at any moment.
        self._rooms = deque(range(config.max_producers))
        self._served = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edged-door", daemon=True)

    def start(self) -> None:
        """Let them in."""
        self._thread.start()
        _log.info("local producers may connect to %s", self._config.socket)

    def stop(self) -> None:
        """Let nobody in any more and remove the socket's file."""
        self._stopping.set()
        shm_socket.remove(self._config.socket, self._inode)
        self._listener.shutdown(socket.SHUT_RDWR)  # which ends its `accept`
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                connection, _address = self._listener.accept()
            except OSError:
                if not self._stopping.is_set():
                    self._counters.add("accept_errors")
                    self._stopping.wait(_PAUSE_S)
                continue
            try:
                self._admit(connection)
            except OSError as error:
                self._refuse(connection, f"no memory can be had: {error.strerror}")
            except Exception:  # noqa: BLE001  # the thread's top: one producer that cannot be served must not shut the others out
                _log.exception("a local producer could not be let in")
                self._refuse(connection, "a fault in the daemon")

    def _admit(self, connection: socket.socket) -> None:
        try:
            room = self._rooms.popleft()
        except IndexError:
            self._refuse(connection, f"{self._config.max_producers} producers are connected (local.max_producers)")
            return
        fd, memory = self._memory(room)
        try:
            peer = Peer(self._served, connection, memory, self._poller)
            self._served += 1
            socket.send_fds(connection, [shm_wire.write_hello(self._shape)], [fd])
        finally:
            os.close(fd)
        self._enter(peer)
        self._counters.add("connects")

    def _memory(self, room: int) -> tuple[int, SlotMemory]:
        """Return the descriptor of new memory, and the memory, which gives the room back when it goes."""
        with contextlib.ExitStack() as undo:
            undo.callback(self._rooms.append, room)
            fd = shm_memory.create(self._shape)
            undo.callback(os.close, fd)
            # Its pages are there already, and the few faults that map them are cheap; 10 ms here would be felt.
            memory = SlotMemory(fd, self._shape, populate=False)
            memory.when_gone(partial(self._rooms.append, room))
            undo.pop_all()
        return fd, memory

    def _refuse(self, connection: socket.socket, reason: str) -> None:
        self._counters.add("refused_producers")
        bid_farewell(connection, reason)
        connection.close()

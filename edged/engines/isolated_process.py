"""The process of an isolated engine, as its parent sees it: started, waited for, and ended for sure.

- Two eventfds wake: one the child, one the parent. A socket pair carries the child's one message and, as the kernel
  closes it with the process, the news of its end; a copy that a library forked holds it open, so a pidfd tells too.
- What the child writes to standard output and error goes to a file in memory of a fixed size: a driver that talks a lot
  never waits, nor takes memory, and its last line says what it died of. What does not fit is refused to the driver.
- Its session is its own: whatever a library forks there ends with it.
- A process that SIGKILL does not end (the driver holds it in the kernel) is left behind after a second, and said.
"""

from __future__ import annotations

import io
import logging
import os
import select
import signal
import socket
import threading
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from edged import childprocess
from edged.engines import isolated_block, isolated_order
from edged.engines.base import CLOSING_S, EngineLostError
from edged.shown import clipped

if TYPE_CHECKING:
    from collections.abc import Sequence
    from subprocess import Popen

log = logging.getLogger(__name__)

MODULE = "edged.engines.isolated_child"
INVOKE, CLOSE = 1, 2  # what is added to the child's eventfd
_KILLING_S, _TICK_S = 1.0, 0.0005
# For a library to let its device go: what is left when its end, and then that by force, are waited for.
_CLOSING_MS = int((CLOSING_S - 2 * _KILLING_S) * 1000)
_SAID_BYTES, _SAID_MAX = 1 << 20, 1 << 16
_LAST_WORDS, _CLIPPED = 4096, 300
# Those that could not be ended: asked for again whenever another one ends, so that they are buried some day.
_left: list[Popen[bytes]] = []
_left_lock = threading.Lock()


class Process:
    """Starts on construction. wake: eventfd that the child reads. answer: eventfd that it writes. order, block:
    descriptors for the child; the parent's own are left open.

    Raises OSError when no process can be started.
    """

    def __init__(self, order: int, block: int) -> None:
        with ExitStack() as stack:
            self.wake = _owned(os.eventfd(0, os.EFD_CLOEXEC), stack)
            # The parent never waits in reading it, nor the child in writing.
            self.answer = _owned(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK), stack)
            self._said = _owned(_paper(), stack)
            self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            stack.enter_context(self.control)
            with theirs:
                passed = (order, block, self.wake, self.answer, theirs.fileno())
                self._popen = childprocess.start(
                    MODULE, *map(str, passed), stdout=self._said, stderr=self._said, pass_fds=passed,
                    start_new_session=True,  # what ends the daemon at a terminal is not the child's
                )  # fmt: skip
            self.pid, self._left = self._popen.pid, False
            self.ends: tuple[socket.socket | io.FileIO, ...] = (self.control, *_watched(self.pid, stack))
            self._fds = stack.pop_all()

    def message(self, timeout_s: float) -> bytes:
        """Wait for its one message. Raises EngineLostError when it ends before that, or is late and so is killed."""
        if not _readable(self.ends, timeout_s * 1000):
            left = self.kill()
            raise EngineLostError(f"did not open within {round(timeout_s, 1):g} s{left}", hung=True)
        message = b""
        with suppress(BlockingIOError):  # it ended without one, and something that it forked holds its socket
            message = self.control.recv(isolated_order.MAX_ANSWER, socket.MSG_DONTWAIT)
        if not message:
            raise self.lost("opening")
        return message

    def ended(self) -> bool:
        """Whether it ended, or closed its socket, after its message. Any thread; waits for nothing."""
        try:
            return _readable(self.ends, 0)
        except (OSError, ValueError):  # another thread has just closed it
            return False

    def lost(self, while_: str = "") -> EngineLostError:
        """Return how it ended: `was killed by SIGSEGV`, `ended with 1: no such device`. It has ended afterwards."""
        if not self._gone():
            return EngineLostError(f"closed its socket{self.kill()}")
        code, said = self._popen.returncode, self.said()
        told = childprocess.ended(code, said, while_)
        # Whoever calls abort() has said why.
        return EngineLostError(f"{told}: {said}" if code == -signal.SIGABRT and said else told, code=code)

    def said(self) -> str:
        """Return the last line of what it wrote, clipped."""
        length = os.lseek(self._said, 0, os.SEEK_CUR)
        tail = os.pread(self._said, min(length, _LAST_WORDS), max(0, length - _LAST_WORDS))
        return clipped(childprocess.last_line(tail.decode(errors="replace")), _CLIPPED)

    def kill(self) -> str:
        """End it at once and bury it; returns what there is to add where that failed."""
        if self._left:
            return ""
        _kill(self._popen)
        if self._gone():
            return ""
        self._left = True
        with _left_lock:
            _left.append(self._popen)
        return f"; process {self.pid} does not end"

    def close(self) -> None:
        """Let it close its engine, and end it where that takes long; then let go of everything of it."""
        if self._popen.returncode is None and not self._left:
            os.eventfd_write(self.wake, CLOSE)
            if not (_readable(self.ends, _CLOSING_MS) and self._gone()):
                log.warning("process %d did not close its engine within %d ms and is killed", self.pid, _CLOSING_MS)
                self.kill()
        self._fds.close()

    def _gone(self) -> bool:
        """Wait for its end, which is near, and end what it forked; returns whether it came."""
        with _left_lock:
            _left[:] = [other for other in _left if other.poll() is None]
        end_s = time.monotonic() + _KILLING_S
        while not _dead(self._popen):
            if time.monotonic() > end_s:
                return False
            time.sleep(_TICK_S)
        # While it is not buried, its number, which is its group's, is nobody else's.
        _kill(self._popen)
        self._popen.wait()
        return True


def tidy(said: int) -> None:
    """Begin the file anew, where much was written to it; it is nearly full otherwise. Either process may."""
    if os.lseek(said, 0, os.SEEK_CUR) > _SAID_MAX:
        os.lseek(said, 0, os.SEEK_SET)


def _paper() -> int:
    """Return the descriptor of a file in memory that never grows."""
    fd = isolated_block.file("edged-said")
    with ExitStack() as undo:
        undo.callback(os.close, fd)
        os.ftruncate(fd, _SAID_BYTES)  # a page takes memory once it is written to
        isolated_block.seal(fd, isolated_block.FIXED)
        undo.pop_all()
    return fd


def _watched(pid: int, stack: ExitStack) -> list[io.FileIO]:
    """Return what is readable when this child has ended; empty where the system has nothing of the kind."""
    try:
        watched = io.FileIO(os.pidfd_open(pid))
    except (AttributeError, OSError):  # Linux before 5.3, a C library without it, a filter of system calls
        return []
    return [stack.enter_context(watched)]


def _kill(child: Popen[bytes]) -> None:
    """Kill it with all that it forked into its session's first group; what made a session of its own is not found."""
    if child.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)


def _dead(child: Popen[bytes]) -> bool:
    """Whether it has ended; it is not buried by that."""
    if child.returncode is not None:
        return True
    try:
        return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:  # somebody else waited for it
        return True


def _owned(fd: int, stack: ExitStack) -> int:
    stack.callback(os.close, fd)
    return fd


def _readable(channels: Sequence[socket.socket | io.FileIO], within_ms: float) -> bool:
    poll = select.poll()
    for channel in channels:
        poll.register(channel, select.POLLIN)
    return bool(poll.poll(within_ms))

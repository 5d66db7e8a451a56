"""The process of an isolated engine, as its parent sees it: started, waited for, and ended for sure.

- Two eventfds wake: one the child, one the parent. A socket pair carries the child's one message and, as the kernel
  closes it with the process, the news of its end.
- What the child writes to standard output and error goes to a file in memory: a driver that talks a lot never waits,
  and its last line says what it died of.
- A process that SIGKILL does not end (the driver holds it in the kernel) is left behind after a second, and said.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import signal
import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from edged import childprocess
from edged.engines import isolated_block, isolated_order
from edged.engines.base import EngineLostError
from edged.shown import clipped

if TYPE_CHECKING:
    from subprocess import Popen

log = logging.getLogger(__name__)

MODULE = "edged.engines.isolated_child"
INVOKE, CLOSE = 1, 2  # what is added to the child's eventfd
_CLOSING_MS = 2000  # for a library to let its device go
_KILLING_S, _TICK_S = 1.0, 0.0005
_LAST_WORDS, _CLIPPED = 4096, 300
# Those that could not be ended: asked for again whenever another one ends, so that they are buried some day.
_left: list[Popen[bytes]] = []


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
            self._said = _owned(isolated_block.file("edged-said"), stack)
            fcntl.fcntl(self._said, fcntl.F_SETFL, os.O_RDWR | os.O_APPEND)  # so that it can be cut while it is written
            self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            stack.enter_context(self.control)
            with theirs:
                passed = (order, block, self.wake, self.answer, theirs.fileno())
                self._popen = childprocess.start(
                    MODULE, *map(str, passed), stdout=self._said, stderr=self._said, pass_fds=passed,
                    start_new_session=True,  # what ends the daemon at a terminal is not the child's
                )  # fmt: skip
            self._fds = stack.pop_all()
        self.pid, self._left = self._popen.pid, False

    def message(self, timeout_s: float) -> bytes:
        """Wait for its one message. Raises EngineLostError when it ends before that, or is late and so is killed."""
        if not _readable(self.control, timeout_s * 1000):
            left = self.kill()
            raise EngineLostError(f"did not open within {timeout_s:g} s{left}")
        message = self.control.recv(isolated_order.MAX_ANSWER)
        if not message:
            raise EngineLostError(self.ended("opening"))
        return message

    def ended(self, while_: str = "") -> str:
        """Return how it ended: `was killed by SIGSEGV`, `ended with 1: no such device`. It has ended afterwards."""
        if not self._gone():
            return f"closed its socket{self.kill()}"
        code, said = self._popen.returncode, self.said()
        told = childprocess.ended(code, said, while_)
        # Whoever calls abort() has said why.
        return f"{told}: {said}" if code == -signal.SIGABRT and said else told

    def said(self) -> str:
        """Return the last line of what it wrote, clipped."""
        length = os.fstat(self._said).st_size
        tail = os.pread(self._said, _LAST_WORDS, max(0, length - _LAST_WORDS))
        return clipped(childprocess.last_line(tail.decode(errors="replace")), _CLIPPED)

    def kill(self) -> str:
        """End it at once and bury it; returns what there is to add where that failed."""
        if self._left:
            return ""
        self._popen.kill()
        if self._gone():
            return ""
        self._left = True
        _left.append(self._popen)
        return f"; process {self.pid} does not end"

    def close(self) -> None:
        """Let it close its engine, and end it where that takes long; then let go of everything of it."""
        if self._popen.returncode is None and not self._left:
            os.eventfd_write(self.wake, CLOSE)
            if not (_readable(self.control, _CLOSING_MS) and self._gone()):
                log.warning("process %d did not close its engine within %d ms and is killed", self.pid, _CLOSING_MS)
                self.kill()
        self._fds.close()

    def _gone(self) -> bool:
        """Wait for its end, which is near; returns whether it came."""
        for other in [other for other in _left if other.poll() is not None]:
            _left.remove(other)
        end_s = time.monotonic() + _KILLING_S
        while self._popen.poll() is None:
            if time.monotonic() > end_s:
                return False
            time.sleep(_TICK_S)
        return True


def _owned(fd: int, stack: ExitStack) -> int:
    stack.callback(os.close, fd)
    return fd


def _readable(channel: socket.socket, within_ms: float) -> bool:
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    return bool(poll.poll(within_ms))

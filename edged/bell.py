"""What wakes the main thread of a daemon while it waits: any thread may ring, and so may a signal handler."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from types import TracebackType


class Bell:
    """A pipe, inside a `with` block; before and after it a ring is heard by nobody, and harms nothing.

    One thread waits. It looks at what there is to do before it waits: a ring says only that there may be something.
    """

    def __init__(self) -> None:
        self._read = self._write = -1
        # No ring may write to a number that is closed, and by then perhaps another file's. A signal handler may
        # interrupt the holder and ring itself.
        self._lock = threading.RLock()

    def __enter__(self) -> Bell:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            ends, self._read, self._write = (self._read, self._write), -1, -1
            for end in ends:
                os.close(end)

    def ring(self) -> None:
        """End the wait of now, or the next one."""
        with self._lock:
            if self._write >= 0:
                with contextlib.suppress(BlockingIOError):  # it is full of rings already
                    os.write(self._write, b"x")

    def wait(self, timeout_s: float) -> None:
        """Return at the next ring, at once where there was one since the last wait, or after the time."""
        if select.select([self._read], [], [], timeout_s)[0]:
            os.read(self._read, 4096)

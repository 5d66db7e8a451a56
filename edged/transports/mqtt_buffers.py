"""Memory to receive into, used again once nobody refers to it.

Nobody gives a buffer back. It is free when the pool's own references are the only ones left, so nothing can be read
from it after it was used again, and nothing is lost when somebody forgets it.
Bounds: at most `MAX_KEPT` bytes are kept for another use (what is in use beyond that is let go when its readers are
done), and what was not used for `IDLE_NS` is given up, so that one large message does not keep its memory for ever.
"""

from __future__ import annotations

import sys

from edged.clock import NS_PER_S

STEP = 32 * 1024  # bytes: sizes are multiples of it, so that messages of about one size share buffers
MAX_KEPT = 64 * 1024 * 1024
IDLE_NS = 60 * NS_PER_S  # a request a minute still finds its buffer


class Buffer:
    """Writable memory, `size` bytes: `data` to read numbers from, `view` to receive into."""

    __slots__ = ("_alone", "data", "size", "used_ns", "view")

    def __init__(self, size: int) -> None:
        self.size, self.used_ns = size, 0
        self.data = bytearray(size)
        self.view = memoryview(self.data)
        self._alone = sys.getrefcount(self.data)

    def readers(self) -> int:
        """Return how many others refer to the memory: parts of it, or `data` itself."""
        return sys.getrefcount(self.data) - self._alone

    def part(self, start: int, end: int) -> memoryview:
        """Return these bytes, read-only and not copied. The buffer is not free while the part is referred to."""
        # A view of its own: parts of `self.view` would share that one's reference, and not be counted.
        return memoryview(self.data)[start:end].toreadonly()


class Pool:
    """Buffers of one connection; only its network thread takes them. `made` counts those that were allocated."""

    def __init__(self) -> None:
        self.made = 0
        self._kept: list[Buffer] = []  # the one taken last is at the end

    def take(self, size: int, ns: int) -> Buffer:
        """Return a buffer of at least `size` bytes that nobody refers to, and not of much more."""
        for index in range(len(self._kept) - 1, -1, -1):
            buffer = self._kept[index]
            if size <= buffer.size <= 2 * size + STEP and not buffer.readers():
                del self._kept[index]
                break
        else:
            buffer = Buffer(-(-size // STEP) * STEP)
            self.made += 1
            self._bound(buffer.size)
        buffer.used_ns = ns
        self._kept.append(buffer)
        return buffer

    def trim(self, ns: int) -> None:
        """Give up what was not taken for a while."""
        self._kept = [buffer for buffer in self._kept if ns - buffer.used_ns < IDLE_NS]

    def kept(self) -> int:
        """Return the bytes of all buffers that may be used again."""
        return sum(buffer.size for buffer in self._kept)

    def _bound(self, more: int) -> None:
        """Let go of what was taken longest ago, so that there is room for so many bytes."""
        excess = self.kept() + more - MAX_KEPT
        while excess > 0 and self._kept:
            excess -= self._kept.pop(0).size

"""Samples in, full windows out, from one preallocated buffer.

`length` samples make a window; the next begins `hop` samples after it: below `length` they overlap, at `length` they
tumble, above it the samples between are skipped. Cost: one copy in, and one move of the overlap a window.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]


class Window:
    """The window of one key: float32 (length, features)."""

    __slots__ = ("_buffer", "_fill", "_hop", "_skip")

    def __init__(self, length: int, hop: int, features: int) -> None:
        self._buffer = np.empty((length, features), np.float32)
        self._hop = hop
        self._fill = self._skip = 0

    @property
    def begun(self) -> bool:
        """Whether a restart would lose anything."""
        return bool(self._fill or self._skip)

    def restart(self) -> None:
        """Forget what has been gathered: the next sample is the first of a window."""
        self._fill = self._skip = 0

    def push(self, rows: FloatArray) -> Iterator[FloatArray]:
        """Take samples (count, features) in; yields each full window, valid until the next step. Exhaust it."""
        while len(rows):
            if self._skip:
                skipped = min(self._skip, len(rows))
                self._skip -= skipped
                rows = rows[skipped:]
                continue
            taken = min(len(self._buffer) - self._fill, len(rows))
            self._buffer[self._fill : self._fill + taken] = rows[:taken]
            self._fill += taken
            rows = rows[taken:]
            if self._fill == len(self._buffer):
                yield self._buffer
                self._advance()

    def _advance(self) -> None:
        kept = max(0, len(self._buffer) - self._hop)
        self._skip = max(0, self._hop - len(self._buffer))
        self._buffer[:kept] = self._buffer[len(self._buffer) - kept :]
        self._fill = kept

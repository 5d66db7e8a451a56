"""Samples in, full windows out, from one preallocated buffer.

`length` samples make a window; the next begins `hop` samples after it, at most `length`: below it they overlap, at it
they tumble. Cost: one copy in, and one move of the overlap a window.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]


class Window:
    """The window of one key: float32 (length, features)."""

    __slots__ = ("_buffer", "_fill", "_hop")

    def __init__(self, length: int, hop: int, features: int) -> None:
        self._buffer = np.empty((length, features), np.float32)
        self._hop = hop
        self._fill = 0

    @property
    def begun(self) -> bool:
        """Whether a restart would lose anything."""
        return self._fill > 0

    def restart(self) -> None:
        """Forget what has been gathered: the next sample is the first of a window."""
        self._fill = 0

    def push(self, rows: FloatArray) -> Iterator[FloatArray]:
        """Take samples (count, features) in; yields each full window, valid until the next step. Exhaust it."""
        while len(rows):
            taken = min(len(self._buffer) - self._fill, len(rows))
            self._buffer[self._fill : self._fill + taken] = rows[:taken]
            self._fill += taken
            rows = rows[taken:]
            if self._fill == len(self._buffer):
                yield self._buffer
                self._advance()

    def _advance(self) -> None:
        kept = len(self._buffer) - self._hop
        self._buffer[:kept] = self._buffer[self._hop :]
        self._fill = kept

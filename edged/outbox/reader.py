"""Reads the records of one file after the other, past what is damaged."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from edged.outbox import record
from edged.outbox.record import FRAME, Record


@dataclass(slots=True, eq=False)
class Segment:
    """One file: the numbers `first` to `end` - 1, in `size` bytes."""

    path: Path
    first: int
    end: int
    size: int


class Reader:
    """Where reading stands: in which file, at which byte."""

    def __init__(self) -> None:
        self._segment: Segment | None = None
        self._fd, self._offset = -1, 0  # fd: -1 until something is read

    def read(self, segment: Segment, number: int) -> Record | None:
        """Return the next whole record of the file, `number` or a later one, and move behind it; None for none.

        Raises OSError when it cannot be read.
        """
        if segment is not self._segment:
            self._turn_to(segment, 0)
        if self._fd < 0:
            self._fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        left = segment.size - self._offset
        frame = os.pread(self._fd, FRAME.size, self._offset)
        size = FRAME.size + (FRAME.unpack(frame)[0] if len(frame) == FRAME.size else 0)
        found = record.whole(os.pread(self._fd, min(size, left), self._offset), 0)
        if found is None or found.number != number:
            further = record.find(os.pread(self._fd, left, self._offset), 0, number, segment.end)
            if further is None:
                return None
            found, size = further
        self._offset += size
        return found

    def skip(self, segment: Segment) -> None:
        """Move to the end of the file."""
        if segment is self._segment:
            self._offset = segment.size
        else:
            self._turn_to(segment, segment.size)

    def leave(self, segment: Segment | None = None) -> None:
        """Let go of the file, where it is this one; of any for None."""
        if segment in (None, self._segment):
            self._turn_to(None, 0)

    def _turn_to(self, segment: Segment | None, offset: int) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._segment, self._fd, self._offset = segment, -1, offset

"""Records on disk, in order: appended at one end, read and forgotten at the other. One thread uses it.

Files below the directory:
- `<number>.log`, the number of its first record in 16 hexadecimal digits: records, one after the other. Only the
  newest is written to; one that holds nothing that is wanted any more is deleted.
- `cursor`: the number below which all are done with, and its CRC-32; it is also what two daemons lock.
What it holds to:
- A record is whole or it is not there: a torn end, of a process that was killed, is cut off when it is opened.
- Damage costs the rest of its file, is counted, and is never an error. A lost cursor costs repeats.
- More than `max_bytes` is never kept: the oldest file goes, what was not sent of it is counted.
- A kill loses nothing that was appended. A power cut loses what was appended after the last `sync`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from edged.outbox import record
from edged.outbox.age import Clock
from edged.outbox.record import FRAME, Record
from edged.transports.base import Message
from edged.transports.counters import Counters

log = logging.getLogger(__name__)

_NAME = re.compile(r"(?!0{16})[0-3][0-9a-f]{15}\.log")
_SEGMENTS = 64  # about that many files when it is full
_SEGMENT_MIN, _SEGMENT_MAX = 4 << 10, 8 << 20
# A file whose records are all done with is deleted from here on: while the broker answers, nothing lives long enough to
# be written to flash.
_WORN = 64 << 10


@dataclass(slots=True, eq=False)
class _Segment:
    """One file: the numbers `first` to `end` - 1, in `size` bytes."""

    path: Path
    first: int
    end: int
    size: int


class Journal:
    """See the module's text. counters: gets dropped_oldest, dropped_old, dropped_damaged, torn and write_errors.

    To be read: `end` (the number of the next record to come), `next` (of the one that `take` looks at), `low` (all
    below are done with), `bytes` on disk, `unsynced`.
    """

    def __init__(self, directory: Path, max_bytes: int, max_age_s: float, counters: Counters) -> None:
        self._directory, self._max_bytes, self._max_age_s = directory, max_bytes, max_age_s
        self._segment_bytes = min(max(max_bytes // _SEGMENTS, _SEGMENT_MIN), _SEGMENT_MAX)
        self._counters, self._clock = counters, Clock()
        self._segments: list[_Segment] = []
        self._lock_fd = self._write_fd = self._read_fd = -1
        self._reading: _Segment | None = None  # the file that `_read_fd` is of
        self._offset = 0
        self._latest: Record | None = None
        self._named = False  # a file was made and its name is not synced
        self.next = self.end = self.low = 1
        self.bytes = 0
        self.unsynced = False

    @property
    def is_open(self) -> bool:
        """Whether `open` succeeded."""
        return self._lock_fd >= 0

    def open(self) -> None:
        """Take hold of the directory and find what is there. Raises OSError, also while another process has it."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.ExitStack() as undo:
            fd = os.open(self._directory / "cursor", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            undo.callback(os.close, fd)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                raise OSError(errno.EBUSY, "another process uses it") from exc
            self._recover(self._cursor(fd))
            undo.pop_all()
        self._lock_fd = fd

    def append(self, message: Message) -> int:
        """Write one record and return its number. Raises OSError: then nothing was appended."""
        kept = Record(self.end, self._clock.stamp(), message)
        data = record.pack(kept)
        self._make_room(len(data))
        segment = self._writable(len(data))
        self._write(memoryview(data), segment.size)
        segment.size += len(data)
        segment.end = self.end = self.end + 1
        self.bytes += len(data)
        self._latest, self.unsynced = kept, True
        return kept.number

    def take(self) -> Record | None:
        """Return the next record and move on; None at the end. What is too old or damaged is counted."""
        while self.next < self.end:
            found = self._read()
            if found is None or found.number < self.low:
                continue
            if self._clock.age_s(found.stamp) <= self._max_age_s:
                return found
            self._counters.add("dropped_old")
        return None

    def forget(self, low: int) -> None:
        """Note that all records below `low` are done with, and delete the files that hold no others."""
        if low <= self.low:
            return
        self.low = low
        try:
            os.pwrite(self._lock_fd, record.pack_cursor(low), 0)
        except OSError:  # they will be sent again after a restart
            self._counters.add("write_errors")
        if low == self.end:
            self.unsynced = False
        while self._segments and self._segments[0].end <= low and self._finished(self._segments[0]):
            self._delete(self._segments[0])

    def sync(self) -> None:
        """Write all that was appended to the disk itself, where a power cut leaves it."""
        self.unsynced = False
        try:
            if self._write_fd >= 0:
                os.fdatasync(self._write_fd)
            if self._named:
                self._sync_names()
        except OSError:
            self._counters.add("write_errors")

    def close(self) -> None:
        """Let go of all files."""
        if self.unsynced:
            self.sync()
        self._end_segment()
        self._read_elsewhere()
        if self.is_open:
            os.close(self._lock_fd)
        self._lock_fd = -1

    def _cursor(self, fd: int) -> int:
        try:
            return record.unpack_cursor(os.pread(fd, record.CURSOR.size, 0))
        except (OSError, ValueError):  # what is on disk is sent, again perhaps
            self._counters.add("torn")
            return 1

    def _recover(self, low: int) -> None:
        paths = sorted(path for path in self._directory.iterdir() if _NAME.fullmatch(path.name) and path.is_file())
        found = [_Segment(path, int(path.stem, 16), 0, path.stat().st_size) for path in paths]
        for segment, later in pairwise(found):
            segment.end = later.first
        self._segments, self.bytes = found, sum(segment.size for segment in found)
        self.end = low
        if found:
            self._cut_torn_end(found[-1])
            self.end = max(low, found[-1].end)
            if found[-1].first == found[-1].end:
                self._delete(found[-1])
        while self._segments and self._segments[0].end <= low:
            self._delete(self._segments[0])
        self.next = self._segments[0].first if self._segments else self.end
        self.low = max(low, self.next)
        self._make_room(0)

    def _cut_torn_end(self, segment: _Segment) -> None:
        data = b""
        with contextlib.suppress(OSError):  # a bad sector costs the file, as any damage
            data = segment.path.read_bytes()
        count, size = record.scan(data)
        if size < segment.size:
            self._counters.add("torn")
            log.warning("%s: cut off %d bytes that are no whole record", segment.path, segment.size - size)
            with contextlib.suppress(OSError):  # nothing beyond `size` is read
                os.truncate(segment.path, size)
        self.bytes -= segment.size - size
        segment.end, segment.size = segment.first + count, size

    def _make_room(self, size: int) -> None:
        while self._segments and self.bytes + size > self._max_bytes:
            oldest = self._segments[0]
            unsent = oldest.end - max(self.next, oldest.first, self.low)
            self._counters.add("dropped_oldest", max(0, unsent))
            self._delete(oldest)
            self.next = max(self.next, oldest.end)

    def _writable(self, size: int) -> _Segment:
        """Return the file to write to, a new one where the record would make it too large."""
        if self._write_fd >= 0:
            segment = self._segments[-1]
            if not segment.size or segment.size + size <= self._segment_bytes:
                return segment
            if self.unsynced:
                self.sync()
            self._end_segment()
        path = self._directory / f"{self.end:016x}.log"
        self._write_fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._segments.append(_Segment(path, self.end, self.end, 0))
        self._named = True
        return self._segments[-1]

    def _write(self, data: memoryview, at: int) -> None:
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self._write_fd, data[written:], at + written)
        except OSError:
            with contextlib.suppress(OSError):  # then the next one is written over it
                os.ftruncate(self._write_fd, at)
            raise

    def _end_segment(self) -> None:
        if self._write_fd >= 0:
            os.close(self._write_fd)
            self._write_fd = -1

    def _sync_names(self) -> None:
        fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        self._named = False

    def _finished(self, segment: _Segment) -> bool:
        written = self._write_fd >= 0 and segment is self._segments[-1]
        return not written or segment.size >= _WORN

    def _delete(self, segment: _Segment) -> None:
        if self._write_fd >= 0 and segment is self._segments[-1]:
            self._end_segment()
        if segment is self._reading:
            self._read_elsewhere()
        self._segments.remove(segment)
        self.bytes -= segment.size
        with contextlib.suppress(OSError):  # on a disk that went read-only; at the next start the cursor tells
            segment.path.unlink()

    def _read(self) -> Record | None:
        """Return the record `_next` and move behind it; None when it was damaged."""
        segment = next(one for one in self._segments if one.end > self.next)
        latest = self._latest
        if latest is not None and latest.number == self.next:
            # Written a moment ago: not read back.
            if segment is not self._reading:
                self._read_elsewhere()
            self._reading, self._offset = segment, segment.size
            self.next += 1
            return latest
        try:
            found = self._read_from(segment)
        except (OSError, ValueError) as exc:
            self._skip(segment, exc)
            return None
        self.next += 1
        return found

    def _read_from(self, segment: _Segment) -> Record:
        if segment is not self._reading:
            self._read_elsewhere()
            self._reading, self._offset, self.next = segment, 0, segment.first
        if self._read_fd < 0:
            self._read_fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        frame = os.pread(self._read_fd, FRAME.size, self._offset)
        if len(frame) < FRAME.size:
            raise ValueError("the file ends early")
        length, checksum = FRAME.unpack(frame)
        if self._offset + FRAME.size + length > segment.size:
            raise ValueError("a record reaches beyond the end")
        found = record.unpack(os.pread(self._read_fd, length, self._offset + FRAME.size), checksum)
        if found.number != self.next:
            raise ValueError(f"record {found.number} stands where {self.next} should be")
        self._offset += FRAME.size + length
        return found

    def _skip(self, segment: _Segment, why: Exception) -> None:
        lost = max(0, segment.end - max(self.next, self.low))
        self._counters.add("dropped_damaged", lost)
        log.warning("%s: damaged, %d answers in it are lost: %s", segment.path, lost, why)
        if segment is self._segments[-1]:
            self._end_segment()  # nothing more is written behind the damage
        self.next = segment.end

    def _read_elsewhere(self) -> None:
        if self._read_fd >= 0:
            os.close(self._read_fd)
        self._read_fd, self._reading = -1, None

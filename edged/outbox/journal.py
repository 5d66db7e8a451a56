"""Records on disk, in order: appended at one end, read and forgotten at the other. One thread uses it.

Files below the directory:
- `<number>.log`, the number of its first record in 16 hexadecimal digits: records, one after the other. Only the
  newest is written to; one that holds nothing that is wanted any more is deleted.
- `cursor`: the number below which all are done with, and its CRC-32; it is also what two daemons lock.
What it holds to:
- A record is whole or it is not there: a torn end, of a process that was killed, is cut off when it is opened.
- Damage costs the records that it is in, is counted, and is never an error. A lost cursor costs repeats.
- Numbers that are missing are counted, where the ones around them, the names of the files and the cursor tell.
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
from itertools import pairwise
from pathlib import Path

from edged.outbox import record
from edged.outbox.age import Clock
from edged.outbox.reader import Reader, Segment
from edged.outbox.record import Record
from edged.transports.base import Message
from edged.transports.counters import Counters

log = logging.getLogger(__name__)

_NAME = re.compile(r"(?!0{16})[0-3][0-9a-f]{15}\.log")
_SEGMENTS = 64  # about that many files when it is full
_SEGMENT_MIN, _SEGMENT_MAX = 4 << 10, 8 << 20
# A file whose records are all done with is deleted from here on: while the broker answers, nothing lives long enough to
# be written to flash.
_WORN = 64 << 10


class Journal:
    """See the module's text. counters: gets dropped_oldest, dropped_old, dropped_damaged, torn and write_errors.

    To be read: `end` (the number of the next record to come), `next` (of the one that `take` looks at), `low` (all
    below are done with), `bytes` on disk, `unsynced`.
    """

    def __init__(self, directory: Path, max_bytes: int, max_age_s: float, counters: Counters) -> None:
        self._directory, self._max_bytes, self._max_age_s = directory, max_bytes, max_age_s
        self._segment_bytes = min(max(max_bytes // _SEGMENTS, _SEGMENT_MIN), _SEGMENT_MAX)
        self._counters, self._clock = counters, Clock()
        self._segments: list[Segment] = []
        self._lock_fd = self._write_fd = -1
        self._reader = Reader()
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
            self._lock_fd = os.open(self._directory / "cursor", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            undo.callback(self._unlock)
            try:
                fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                raise OSError(errno.EBUSY, "another process uses it") from exc
            self._recover(self._cursor())
            # While there is room for it: it is written over from now on, also on a full disk.
            if (why := self._note(self.low)) is not None and not self._segments:
                raise why
            undo.pop_all()

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
        self._note(low)
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
        self._reader.leave()
        if self.is_open:
            self._unlock()

    def _unlock(self) -> None:
        os.close(self._lock_fd)
        self._lock_fd = -1

    def _cursor(self) -> int:
        """Return the number in the cursor, 0 where there is none."""
        try:
            return record.unpack_cursor(os.pread(self._lock_fd, record.CURSOR.size, 0))
        except (OSError, ValueError):  # what is on disk is sent, again perhaps
            self._counters.add("torn")
            return 0

    def _note(self, low: int) -> OSError | None:
        """Write the cursor; returns why it could not be."""
        self.low = low
        try:
            os.pwrite(self._lock_fd, record.pack_cursor(low), 0)
        except OSError as exc:  # they will be sent again after a restart
            self._counters.add("write_errors")
            return exc
        return None

    def _recover(self, low: int) -> None:
        paths = sorted(path for path in self._directory.iterdir() if _NAME.fullmatch(path.name) and path.is_file())
        found = [Segment(path, int(path.stem, 16), 0, path.stat().st_size) for path in paths]
        for segment, later in pairwise(found):
            segment.end = later.first
        self._segments, self.bytes = found, sum(segment.size for segment in found)
        self.end, last = max(low, 1), None
        if found:
            last = self._cut_torn_end(found[-1])
            self.end = max(low, found[-1].end)
            if found[-1].first == found[-1].end:
                self._delete(found[-1])
        while self._segments and self._segments[0].end <= low:
            self._delete(self._segments[0])
        self.next = self._segments[0].first if self._segments else self.end
        if 0 < low < self.next:
            self._miss(low, last)
        self.low = max(low, self.next)
        self._make_room(0)

    def _miss(self, low: int, last: Record | None) -> None:
        """Tell of the numbers from the cursor's on that no file has. last: the newest record there is."""
        missing = self.next - low
        # Each process writes the cursor when it opens it. Before the machine's last start it may have stayed behind:
        # a power cut can take it back although the files that were done with are gone.
        if last is not None and self._clock.since_boot(last.stamp):
            self._counters.add("dropped_damaged", missing)
            log.warning("%s: files are gone, %d answers are lost (from number %d)", self._directory, missing, low)
        else:
            log.warning("%s: %d answers are gone (from number %d), sent or not", self._directory, missing, low)

    def _cut_torn_end(self, segment: Segment) -> Record | None:
        """Find the end of the newest file; returns its last whole record. Raises OSError, but not for a bad sector."""
        data, why = b"", "no whole record is in them"
        try:
            data = segment.path.read_bytes()
        except OSError as exc:  # a bad sector costs the file; what may pass, as too many open files, must not
            if exc.errno != errno.EIO:
                raise
            why = exc.strerror or str(exc)
        segment.end, size, last = record.scan(data, segment.first)
        if size < segment.size:
            self._counters.add("torn")
            log.warning("%s: cut off the last %d bytes: %s", segment.path, segment.size - size, why)
            with contextlib.suppress(OSError):  # nothing beyond `size` is read
                os.truncate(segment.path, size)
        self.bytes -= segment.size - size
        segment.size = size
        return last

    def _make_room(self, size: int) -> None:
        while self._segments and self.bytes + size > self._max_bytes:
            oldest = self._segments[0]
            unsent = oldest.end - max(self.next, oldest.first, self.low)
            self._counters.add("dropped_oldest", max(0, unsent))
            self._note(max(self.low, oldest.end))  # they are not missing
            self._delete(oldest)
            self.next = max(self.next, oldest.end)

    def _writable(self, size: int) -> Segment:
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
        self._segments.append(Segment(path, self.end, self.end, 0))
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

    def _finished(self, segment: Segment) -> bool:
        written = self._write_fd >= 0 and segment is self._segments[-1]
        return not written or segment.size >= _WORN

    def _delete(self, segment: Segment) -> None:
        if self._write_fd >= 0 and segment is self._segments[-1]:
            self._end_segment()
        self._reader.leave(segment)
        self._segments.remove(segment)
        self.bytes -= segment.size
        with contextlib.suppress(OSError):  # on a disk that went read-only; at the next start the cursor tells
            segment.path.unlink()

    def _read(self) -> Record | None:
        """Return the record `next` and move behind it, or behind what is damaged to the next; None for none."""
        segment = next(one for one in self._segments if one.end > self.next)
        expected = max(self.next, segment.first)
        found, why = self._latest, ""
        if found is not None and found.number == self.next:  # written a moment ago: not read back
            self._reader.skip(segment)
        else:
            try:
                found = self._reader.read(segment, expected)
                why = "damaged" if found is not None else "its end is damaged, or the file behind it is gone"
            except OSError as exc:
                found, why = None, exc.strerror or str(exc)
        reached = segment.end if found is None else found.number
        if reached > expected:
            self._lose(segment, expected, reached, why)
        self.next = reached + (found is not None)
        return found

    def _lose(self, segment: Segment, first: int, end: int, why: str) -> None:
        first = max(first, self.low)
        if lost := max(0, end - first):
            self._counters.add("dropped_damaged", lost)
            log.warning("%s: %s: %d answers are lost (from number %d)", segment.path, why, lost, first)
        if segment is self._segments[-1]:
            self._end_segment()  # nothing more is written behind the damage

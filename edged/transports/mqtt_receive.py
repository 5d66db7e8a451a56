"""From a socket to whole MQTT packets, each contiguous in pooled memory, so that a payload is never moved.

Small packets follow each other in a chunk; at most `AHEAD` bytes are read beyond what is known to be needed. A packet
larger than `LARGE` gets a buffer of its own, into which only the bytes already read are copied, and which is read
to the packet's last byte and no further. A length is believed up to `TRUSTED` bytes, or the largest packet of late;
beyond that memory grows with what has arrived, by four each time: five bytes that claim 256 MB cost a megabyte.
Knows nothing of paho and of what packets mean. Cost: about 2 µs for each packet beside the system call.
"""

from __future__ import annotations

from typing import Any

from edged.clock import now_ns
from edged.transports.mqtt_buffers import IDLE_NS, STEP, Pool

AHEAD = 4096
LARGE = 16 * 1024
TRUSTED = 1024 * 1024
_MORE, _LENGTH_BYTES = 0x80, 4


class MalformedError(ValueError):
    """The peer does not speak MQTT: the connection cannot go on."""


class Receiver:
    """The packets of one connection after the other. After `next_packet` returned True, the packet's fields hold.

    command: its first byte. buffer, at, end: where what follows its length lies. first_ns: when its first byte came.
    read_ns: when bytes came last. copied: how many bytes were moved between the socket and their place in `buffer`.
    """

    def __init__(self) -> None:
        self.pool = Pool()
        self.copied = 0
        self.command = self.at = self.end = self.first_ns = self.read_ns = 0
        self._start = self._stop = 0  # what was read and not yet passed on
        self._begun_ns = 0  # when the byte at `_start` came
        self._at = self._end = 0  # of the packet at `_start`, once its length is known
        self._large, self._large_ns, self._trusted = False, 0, TRUSTED
        self._records = False
        self.buffer = self.pool.take(STEP, 0)
        self._data = self.buffer.data  # a reference that tells the pool: in use

    def reset(self, *, records: bool) -> None:
        """Forget what was read: another connection begins. records: it is TLS, whose socket hands out records."""
        self._start, self._at, self._end, self._records = self._stop, 0, 0, records

    def receive(self, sock: Any) -> bool:
        """Read once; returns whether to read again at once. Raises EOFError at the end, and what the socket raises."""
        if self._start == self._stop:
            self._rewind()
        elif self._stop == self.buffer.size:
            self._grow()
        until = min(self._end if self._large else max(self._end, self._stop) + AHEAD, self.buffer.size)
        count: int = sock.recv_into(self.buffer.view[self._stop : until])
        if not count:
            raise EOFError
        self.read_ns = now_ns()
        if self._start == self._stop:
            self._begun_ns = self.read_ns
        self._stop += count
        # To a large packet's last byte: what comes after it, if anything, is asked for anew, not tried for in vain.
        return self._records or (self._stop == until and not (self._large and until == self._end))

    def next_packet(self) -> bool:
        """Find the next whole packet in what was read; raises MalformedError on a length that does not end."""
        if not self._end and not self._read_length():
            return False
        if self._end > self._stop:
            self._make_room()
            return False
        self.command, self.at, self.end = self._data[self._start], self._at, self._end
        self.first_ns = self._begun_ns
        # What follows came with the last read, as the end of this packet did.
        self._start, self._end, self._begun_ns = self._end, 0, self.read_ns
        return True

    def trim(self, ns: int) -> None:
        """Let go of memory that was needed once; call it every second or so."""
        if self._large and self._start == self._stop:
            self._rewind()
        if ns - self._large_ns > IDLE_NS:
            self._trusted = TRUSTED
        self.buffer.used_ns = ns
        self.pool.trim(ns)

    def _rewind(self) -> None:
        """Nothing is half read: begin at the front again, if nobody refers to what is there."""
        if self.buffer.readers() == 1 and not self._large:  # `_data`
            self._start = self._stop = 0
        elif self._large or self.buffer.size - self._stop < AHEAD:
            self._large = False
            self._move(STEP)

    def _move(self, size: int) -> None:
        """Go on in another buffer, with what was read and not yet passed on."""
        have, fresh = self._stop - self._start, self.pool.take(size, self.read_ns)
        fresh.view[:have] = self.buffer.view[self._start : self._stop]
        self.copied += have
        if self._end:
            self._at, self._end = self._at - self._start, self._end - self._start
        self._start, self._stop = 0, have
        self.buffer, self._data = fresh, fresh.data

    def _read_length(self) -> bool:
        data, start, stop = self._data, self._start, self._stop
        length = shift = 0
        for at in range(start + 1, min(stop, start + 1 + _LENGTH_BYTES)):
            byte = data[at]
            length |= (byte & 0x7F) << shift
            if byte < _MORE:
                self._at, self._end = at + 1, at + 1 + length
                return True
            shift += 7
        if stop - start > _LENGTH_BYTES:
            raise MalformedError("the length of a packet does not end")
        return False

    def _make_room(self) -> None:
        """See that a packet whose end has not come yet will lie in one piece."""
        size = self._end - self._start
        if self._large:
            return
        if size > LARGE:
            self._move(min(size, self._trusted))
            self._large = True
            if size > TRUSTED:
                self._large_ns = self.read_ns
        elif self._end > self.buffer.size:
            self._move(STEP)

    def _grow(self) -> None:
        """The buffer is full: in it is a packet longer than was believed, or the beginning of a length."""
        if not self._large:
            self._move(STEP)
            return
        self._trusted = min(self._end, 4 * self._stop)
        self._move(self._trusted)

"""What was handed to the MQTT client and is not finished: its bounds, its marks, its end.

A message is *written* when its last byte went to the kernel, *done* when nothing more is owed to it:
written at QoS 0, acknowledged at QoS 1. Both may be told before `enter`, since the network thread can
send a message before the publishing thread learns its id.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from edged.clock import now_ns
from edged.request import OnSent
from edged.transports.base import OnDone
from edged.transports.counters import Counters


@dataclass(slots=True)
class Entry:
    """One accepted message: its size on the wire, its QoS, who wants to know that it was sent, and that it is done."""

    size: int
    qos: int
    on_sent: OnSent | None
    on_done: OnDone | None = None


@dataclass(slots=True)
class _Early:
    """What was told of an id before it was entered."""

    written_ns: int
    done: bool


class Ledger:
    """Entries by packet id, bounded in bytes and messages. `on_sent` is called outside the lock, once."""

    def __init__(self, max_bytes: int, max_messages: int, counters: Counters) -> None:
        self._max_bytes, self._max_messages, self._counters = max_bytes, max_messages, counters
        self._changed = threading.Condition()
        self._entries: dict[int, Entry] = {}
        self._early: dict[int, _Early] = {}
        self._bytes = self._messages = 0

    def reserve(self, size: int) -> bool:
        """Take room for one message; False when the bound is reached."""
        with self._changed:
            if self._bytes + size > self._max_bytes or self._messages >= self._max_messages:
                return False
            self._bytes += size
            self._messages += 1
            return True

    def release(self, size: int) -> None:
        """Give back the room of a message that was not accepted after all."""
        with self._changed:
            self._free(size)

    def enter(self, mid: int, entry: Entry, *, settled: bool = False) -> bool:
        """Enter a message after its publish; False when it was lost meanwhile.

        settled: the client called it finished. At QoS 0 without a mark that means lost with the connection.
        """
        with self._changed:
            stale = self._entries.pop(mid, None)
            if stale is not None:
                self._free(stale.size)
            early = self._early.pop(mid, None)
            if early is None and settled and entry.qos == 0:
                self._free(entry.size)
                return False
            if early is None or not early.done:
                self._entries[mid] = entry
            else:
                self._free(entry.size)
        if early is not None:
            self._sent(entry, early.written_ns)
            if early.done:
                self.finished(entry)
        return True

    def written(self, mid: int, ns: int) -> None:
        """Mark the last byte of message `mid` as handed to the kernel at `ns`."""
        with self._changed:
            entry = self._entries.get(mid)
            if entry is None:
                self._early.setdefault(mid, _Early(ns, done=False))
        if entry is not None:
            self._sent(entry, ns)

    def done(self, mid: int) -> bool:
        """Finish message `mid`; without an earlier mark, now is when it was sent. True when it was acknowledged."""
        ns = now_ns()
        with self._changed:
            entry = self._entries.pop(mid, None)
            if entry is None:
                self._early.setdefault(mid, _Early(ns, done=True)).done = True
            else:
                self._free(entry.size)
        if entry is None:
            return False
        self._sent(entry, ns)
        self.finished(entry)
        return entry.qos > 0

    def in_use(self, mid: int) -> bool:
        """Whether a message with this packet id is unfinished."""
        return mid in self._entries

    def forget(self, mid: int) -> Entry | None:
        """Take out a message that will never be finished, keeping its room reserved."""
        with self._changed:
            return self._entries.pop(mid, None)

    def lose_unacknowledged(self) -> int:
        """Drop every QoS 0 message: its connection died before it was written. Returns how many."""
        with self._changed:
            lost = [mid for mid, entry in self._entries.items() if entry.qos == 0]
            gone = [self._entries.pop(mid) for mid in lost]
            for entry in gone:
                self._free(entry.size)
        for entry in gone:
            self.finished(entry)
        return len(gone)

    def finished(self, entry: Entry) -> None:
        """Tell who wants to know that nothing more will be done for a message."""
        on_done, entry.on_done = entry.on_done, None
        if on_done is not None:
            self._counters.guard(on_done)

    def largest_unacknowledged(self) -> int:
        """Return the size in bytes of the largest QoS 1 message that waits; 0 when none does."""
        with self._changed:
            return max((entry.size for entry in self._entries.values() if entry.qos), default=0)

    def wait_empty(self, timeout_s: float) -> bool:
        """Wait until everything accepted is done; False at the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self._messages == 0, timeout_s)

    def load(self) -> tuple[int, int]:
        """Return the bytes and messages accepted and not done."""
        with self._changed:
            return self._bytes, self._messages

    def _free(self, size: int) -> None:
        self._bytes -= size
        self._messages -= 1
        if self._messages == 0:
            self._changed.notify_all()

    def _sent(self, entry: Entry, ns: int) -> None:
        on_sent, entry.on_sent = entry.on_sent, None
        if on_sent is not None:
            self._counters.guard(on_sent, ns)

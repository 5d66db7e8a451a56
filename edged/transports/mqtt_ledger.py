"""What was handed to the MQTT client and is not finished: its bounds, its marks, its end.

A message is *written* when its last byte went to the kernel, *done* when nothing more is owed to it:
written at QoS 0, acknowledged at QoS 1. Both may be told before `enter`, since the network thread can
send a message before the publishing thread learns its id; not so where the id is known first (`admit`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from edged.clock import NS_PER_S, now_ns
from edged.request import OnSent
from edged.transports.base import OnDone
from edged.transports.counters import Counters

LARGE = 16 * 1024  # bytes: no broker is set to take less than this


@dataclass(slots=True, eq=False)
class Entry:
    """One accepted message: its size on the wire, its QoS, who wants to know that it was sent, and that it is done.

    on_refused: who wants to know that the broker takes no message of this size.
    turn: the place among all writes of messages, 0 before the first; written again, it has a new one.
    accepted_ns: when it was entered.
    """

    size: int
    qos: int
    on_sent: OnSent | None
    on_done: OnDone | None = None
    on_refused: OnDone | None = None
    topic: str = ""
    turn: int = 0
    accepted_ns: int = field(default_factory=now_ns)
    written_ns: int = 0  # set by a publishing thread that wrote it, before the acknowledgement can be looked at


class Suspect(NamedTuple):
    """A message that a connection may have died of. who: the same in another connection means the same message.

    stuck_ns: how long it has waited to be written, 0 once all of it was.
    """

    size: int
    who: object
    stuck_ns: int


@dataclass(slots=True)
class _Early:
    """What was told of an id before it was entered."""

    written_ns: int
    done: bool


class Ledger:
    """Entries by packet id, bounded in bytes and messages. `on_sent` is called outside the lock, once."""

    def __init__(self, max_bytes: int, max_messages: int, counters: Counters) -> None:
        self._max_bytes, self._max_messages, self._counters = max_bytes, max_messages, counters
        self._lock = threading.Lock()
        self._emptied = threading.Condition(self._lock)
        self._awaited = False  # somebody waits for that
        self._entries: dict[int, Entry] = {}
        self._early: dict[int, _Early] = {}
        self._bytes = self._messages = 0
        self._turns = self._begun = 0  # writes of messages in all, and before this connection
        self._taken = 0  # the latest of them that the broker acknowledged
        self._answered = False  # the broker answered anything on this connection
        self._lately: Entry | None = None  # the largest large one at QoS 0 that was written within a second …
        self._lately_ns = 0  # … when

    def begin(self) -> int:
        """Begin a new connection; returns how many messages at QoS 0 the one before took with it, unwritten."""
        with self._lock:
            self._begun, self._answered, self._lately = self._turns, False, None
        return self._lose_unacknowledged()

    def answered(self) -> None:
        """Note that the broker answered something else than a message on this connection."""
        self._answered = True

    def reserve(self, size: int) -> bool:
        """Take room for one message; False when the bound is reached."""
        with self._lock:
            if self._bytes + size > self._max_bytes or self._messages >= self._max_messages:
                return False
            self._bytes += size
            self._messages += 1
            return True

    def admit(self, mid: int, entry: Entry) -> bool:
        """Take room for a message and enter it, before it is published; False when the bound is reached."""
        with self._lock:
            if self._bytes + entry.size > self._max_bytes or self._messages >= self._max_messages:
                return False
            self._bytes += entry.size
            self._messages += 1
            self._entries[mid] = entry
            return True

    def withdraw(self, mid: int) -> bool:
        """Take back what was admitted and then not published; False when it was lost with the connection meanwhile."""
        with self._lock:
            entry = self._entries.pop(mid, None)
            if entry is not None:
                self._free(entry.size)
            return entry is not None

    def release(self, size: int) -> None:
        """Give back the room of a message that was not accepted after all."""
        with self._lock:
            self._free(size)

    def enter(self, mid: int, entry: Entry, *, settled: bool = False) -> bool:
        """Enter a message after its publish; False when it was lost meanwhile.

        settled: the client called it finished. At QoS 0 without a mark that means lost with the connection.
        """
        with self._lock:
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
                self._note(entry, early.written_ns, done=early.done)
        if early is not None:
            self._sent(entry, early.written_ns)
            if early.done:
                self.finished(entry)
        return True

    def written(self, mid: int, ns: int) -> None:
        """Mark the last byte of message `mid` as handed to the kernel at `ns`."""
        with self._lock:
            entry = self._entries.get(mid)
            if entry is None:
                self._early.setdefault(mid, _Early(ns, done=False))
            else:
                self._note(entry, ns, done=False)
        if entry is not None:
            self._sent(entry, ns)

    def written_here(self, entry: Entry) -> None:
        """Tell that a message was written by the thread that publishes it. It may be done by now."""
        with self._lock:
            self._note(entry, entry.written_ns, done=False)
        self._sent(entry, entry.written_ns)

    def done(self, mid: int, ns: int = 0, *, refused: bool = False) -> None:
        """Finish message `mid`; without an earlier mark, `ns` is when it was sent, and 0 means now.

        Whoever knows `ns` has admitted the message: when it is not there any more, it was lost with its connection.
        """
        known, ns = ns > 0, ns or now_ns()
        with self._lock:
            entry = self._entries.pop(mid, None)
            if entry is None and not known:
                self._early.setdefault(mid, _Early(ns, done=True)).done = True
            elif entry is not None:
                self._free(entry.size)
                self._note(entry, entry.written_ns or ns, done=True)
        if entry is not None:
            self._sent(entry, entry.written_ns or ns)
            self.finished(entry, refused=refused)

    def in_use(self, mid: int) -> bool:
        """Whether a message with this packet id is unfinished."""
        return mid in self._entries

    def forget(self, mid: int) -> Entry | None:
        """Take out a message that will never be finished, keeping its room reserved."""
        with self._lock:
            return self._entries.pop(mid, None)

    def forget_larger(self, mids: Iterable[int], limit: int) -> dict[int, Entry]:
        """`forget` those of these messages that have more than `limit` bytes."""
        with self._lock:
            entries = {mid: self._entries[mid] for mid in mids if mid in self._entries}
            found = {mid: entry for mid, entry in entries.items() if entry.size > limit}
            for mid in found:
                del self._entries[mid]
        return found

    def topic(self, mid: int) -> str:
        """Return the topic of an unfinished message; "" when there is none."""
        entry = self._entries.get(mid)
        return "" if entry is None else entry.topic

    def _lose_unacknowledged(self) -> int:
        """Drop every QoS 0 message: its connection died before it was written. Returns how many."""
        with self._lock:
            lost = [mid for mid, entry in self._entries.items() if entry.qos == 0]
            gone = [self._entries.pop(mid) for mid in lost]
            for entry in gone:
                self._free(entry.size)
        for entry in gone:
            self.finished(entry)
        return len(gone)

    def finished(self, entry: Entry, *, refused: bool = False) -> None:
        """Tell who wants to know that nothing more will be done for a message; refused: the broker did not take it."""
        on_done, entry.on_done = entry.on_done, None
        if refused and entry.on_refused is not None:
            self._counters.guard(entry.on_refused)
        if on_done is not None:
            self._counters.guard(on_done)

    def largest_unacknowledged(self) -> int:
        """Return the size in bytes of the largest QoS 1 message that waits; 0 when none does."""
        with self._lock:
            return max((entry.size for entry in self._entries.values() if entry.qos), default=0)

    def suspect(self) -> Suspect | None:
        """Return the message that the connection which ends now may have died of; None when none can be named.

        The first that has no acknowledgement, of those on which the broker owes one: it took what came before, and
        nothing from there on. At QoS 0 the largest written in the last second, as long as nothing after it was
        acknowledged, else the one that is not all written. Only a large one, and only of a broker that answered
        anything: another may be dead for any reason.
        """
        with self._lock:
            found = self._first_unanswered()
            if found is None or not self._answered or found.size < LARGE:
                return None
            who = found if found.qos else (found.topic, found.size)
            return Suspect(found.size, who, 0 if found.turn > self._begun else now_ns() - found.accepted_ns)

    def _first_unanswered(self) -> Entry | None:
        entries = self._entries.values()
        first = next((entry for entry in entries if entry.qos), None)
        if first is not None and self._begun < first.turn:
            lately = self._written_lately()
            earlier = lately is not None and self._taken < lately.turn < first.turn
            return lately if earlier else first if first.turn > self._taken else None
        lately = self._written_lately()
        if lately is not None and lately.turn > self._taken:
            return lately
        return next(iter(entries), None)  # what is not all written

    def largest(self) -> int:
        """Return the size in bytes of the largest message that waits, or was written at QoS 0 in the last second."""
        with self._lock:
            lately = self._written_lately()
            return max((entry.size for entry in (*self._entries.values(), lately) if entry is not None), default=0)

    def wait_empty(self, timeout_s: float) -> bool:
        """Wait until everything accepted is done; False at the timeout."""
        with self._lock:
            self._awaited = True
            return self._emptied.wait_for(lambda: self._messages == 0, timeout_s)

    def load(self) -> tuple[int, int]:
        """Return the bytes and messages accepted and not done."""
        with self._lock:
            return self._bytes, self._messages

    def _written_lately(self) -> Entry | None:
        return self._lately if now_ns() - self._lately_ns < NS_PER_S else None

    def _note(self, entry: Entry, ns: int, *, done: bool) -> None:
        if entry.turn <= self._begun or not done:
            self._turns += 1
            entry.turn = self._turns
        if entry.qos and done:
            self._answered, self._taken = True, max(self._taken, entry.turn)
        elif entry.qos == 0 and entry.size >= LARGE:
            lately = self._lately
            if lately is None or entry.size >= lately.size or ns - self._lately_ns >= NS_PER_S:
                self._lately, self._lately_ns = entry, ns

    def _free(self, size: int) -> None:
        self._bytes -= size
        self._messages -= 1
        if self._awaited and self._messages == 0:
            self._emptied.notify_all()

    def _sent(self, entry: Entry, ns: int) -> None:
        with self._lock:  # the publishing thread and the network thread may both come to tell it
            on_sent, entry.on_sent = entry.on_sent, None
        if on_sent is not None:
            self._counters.guard(on_sent, ns)

"""What a run counts. Two threads report: the sender what it sent and gave up, the network thread what was answered.

Latency is of every request that reached an end: an answer, or the time when nobody waited for it any longer, which
counts as its latency, so that silence cannot make a percentile better. Answers that are errors are counted by code and
are not in it, for refusing is quick; but DEADLINE_EXCEEDED is: the device waited as long as it was allowed to.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

from edged.clock import NS_PER_S
from edged.errors import Code
from edged.latency import Histogram

# So many points a plot over time has at most; each costs 14 KiB while the run lasts.
POINTS = 600
_NEVER = 1 << 62
_EXPIRED = Code.DEADLINE_EXCEEDED.value


@dataclass(slots=True)
class Slot:
    """What became of the requests that were meant to be sent in one piece of time."""

    latency: Histogram = field(default_factory=Histogram)
    errors: int = 0
    missing: int = 0


@dataclass
class Counts:
    """Requests: asked, ok (answered without an error), errors by code, missing (no answer, not even that its deadline
    is over), unsent (not taken by the transport), unfinished (open when the run was interrupted). Answers: doubled (to
    a request that had one), late (after it was given up), foreign (to no request of this run)."""

    asked: int = 0
    ok: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    missing: int = 0
    unsent: int = 0
    unfinished: int = 0
    doubled: int = 0
    late: int = 0
    foreign: int = 0


class Tally:
    """Counts what was meant to be sent from `begin` on. slot_ns: the length of a piece of time."""

    def __init__(self, seconds: float) -> None:
        self.slot_ns = max(1, -(-int(seconds) // POINTS)) * NS_PER_S
        self.counts = Counts()
        self.latency, self.followers, self.lateness = Histogram(), Histogram(), Histogram()
        self.begin_ns, self.last_ns = _NEVER, 0
        self._slots: dict[int, Slot] = {}
        self._lock = threading.Lock()

    def begin(self, begin_ns: int) -> None:
        """Let what is due from this moment on count."""
        self.begin_ns = begin_ns

    @property
    def begun(self) -> bool:
        """Whether anything counts yet."""
        return self.begin_ns != _NEVER

    def asked(self, due_ns: int, sent_ns: int) -> None:
        """Count a request that is about to be sent."""
        if due_ns >= self.begin_ns:
            with self._lock:
                self.counts.asked += 1
                self.lateness.record(sent_ns - due_ns)

    def unsent(self, due_ns: int) -> None:
        """Count a request that the transport did not take."""
        if due_ns >= self.begin_ns:
            with self._lock:
                self.counts.unsent += 1
                self._slot(due_ns).missing += 1

    def answered(self, due_ns: int, here_ns: int, code: str, *, follows: bool) -> None:
        """Count an answer in time. code: "" for one without an error. follows: not the first after a pause."""
        if due_ns < self.begin_ns:
            return
        with self._lock:
            self.last_ns = max(self.last_ns, here_ns)
            if not code:
                self.counts.ok += 1
            else:
                self.counts.errors[code] += 1
                self._slot(due_ns).errors += 1
            if not code or code == _EXPIRED:
                self._record(due_ns, here_ns, follows=follows)

    def missing(self, due_ns: int, given_up_ns: int, *, follows: bool) -> None:
        """Count a request that was given up."""
        if due_ns < self.begin_ns:
            return
        with self._lock:
            self.counts.missing += 1
            self._slot(due_ns).missing += 1
            self._record(due_ns, given_up_ns, follows=follows)

    def unfinished(self, due_ns: int) -> None:
        """Count a request whose answer nobody waits for any more."""
        if due_ns >= self.begin_ns:
            with self._lock:
                self.counts.unfinished += 1

    def stray(self, kind: str) -> None:
        """Count an answer beyond the answers. kind: doubled, late or foreign."""
        with self._lock:
            setattr(self.counts, kind, getattr(self.counts, kind) + 1)

    def _record(self, due_ns: int, end_ns: int, *, follows: bool) -> None:
        latency_ns = end_ns - due_ns
        if follows:
            self.followers.record(latency_ns)
            return
        self.latency.record(latency_ns)
        self._slot(due_ns).latency.record(latency_ns)

    def _slot(self, due_ns: int) -> Slot:
        index = (due_ns - self.begin_ns) // self.slot_ns
        slot = self._slots.get(index)
        if slot is None:
            slot = self._slots[index] = Slot()
        return slot

    def slots(self) -> list[tuple[float, Slot]]:
        """Return the pieces of time in which something was due: their begin in seconds, and what became of it."""
        return [(index * self.slot_ns / NS_PER_S, self._slots[index]) for index in sorted(self._slots)]

    def between(self, begin_s: float, end_s: float) -> Histogram:
        """Return the latency of what was due in pieces of time that lie wholly in this one."""
        found, length = Histogram(), self.slot_ns / NS_PER_S
        for at_s, slot in self.slots():
            if begin_s <= at_s and at_s + length <= end_s:
                found.merge(slot.latency)
        return found

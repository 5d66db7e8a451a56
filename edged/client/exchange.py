"""Which requests are open, when each is sent again or given up, and which reply belongs to which.

No sockets, no threads, no clock: every call takes the time as monotonic ns. The caller holds one lock around it all.

Rules kept here:
- a correlation is 16 bytes: 8 random ones that name the client, then a counter; no two requests share one;
- first resend after max(`resend_ns`, 4 x the smoothed round trip of that topic), then doubling, until the deadline;
- round trips of requests that were resent are not learnt from (it is unknown which send was answered: Karn);
- the first reply of a correlation answers it, and every other reply is counted: duplicate, late, or of nobody here.
"""

from __future__ import annotations

import heapq
import itertools
import secrets
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple

from edged.client.payloads import Encoded
from edged.client.result import Result
from edged.clock import NS_PER_MS

RESEND_ROUND_TRIPS = 4
# How many closed correlations are remembered, to tell a duplicate from a late reply.
MEMORY = 4096
_SMOOTHING = 8
_STALE_TIMERS = 1024


class Target(NamedTuple):
    """Who is asked."""

    device: str
    model: str


@dataclass(slots=True, eq=False)
class Pending:
    """One open request. Times are monotonic ns; `sends` counts the times the transport took it.

    state_key: of the model's states the one that it goes on with; None for the user's own without a name.
    """

    correlation: bytes
    target: Target
    encoded: Encoded
    deadline_ms: int
    created_ns: int
    deadline_ns: int
    state_key: str | None = None
    future: Future[Result] = field(default_factory=Future)
    sends: int = 0
    sent_ns: int = 0
    due_ns: int = 0
    wait_ns: int = 0
    answered_ns: int = 0


@dataclass(slots=True)
class Counters:
    """What happened since the client was made. Requests: sent, answered, errors (answers that are errors), lost (no
    answer by the deadline), cancelled, refused (cannot be sent at all). Sends: resent, dropped (the transport did not
    take it). Replies beyond the answers: duplicates, late (after the deadline), foreign (to nobody here)."""

    sent: int = 0
    resent: int = 0
    answered: int = 0
    errors: int = 0
    duplicates: int = 0
    late: int = 0
    lost: int = 0
    cancelled: int = 0
    refused: int = 0
    foreign: int = 0
    dropped: int = 0


@dataclass(slots=True)
class Due:
    """What a moment asks for: requests to send again, and requests whose deadline has passed."""

    resend: list[Pending] = field(default_factory=list)
    expired: list[Pending] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.resend or self.expired)


class Exchange:
    """The table of open requests."""

    def __init__(self, resend_ns: int) -> None:
        self.counters = Counters()
        self.instance = secrets.token_bytes(8)
        self._resend_ns = resend_ns
        self._numbers = itertools.count(1)
        self._open: dict[bytes, Pending] = {}
        self._closed: OrderedDict[bytes, bool] = OrderedDict()
        self._timers: list[tuple[int, int, Pending]] = []
        self._ticket = itertools.count()
        self._round_trip_ns: dict[Target, int] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(
        self, target: Target, encoded: Encoded, deadline_ms: int, now: int, state_key: str | None = None
    ) -> Pending:
        """Enter a request. The caller sends it and calls `sent`, or calls `postpone`."""
        correlation = self.instance + next(self._numbers).to_bytes(8, "big")
        pending = Pending(correlation, target, encoded, deadline_ms, now, now + deadline_ms * NS_PER_MS, state_key)
        self._open[correlation] = pending
        return pending

    def is_open(self, pending: Pending) -> bool:
        """Whether it still waits for its answer."""
        return pending.correlation in self._open

    def sent(self, pending: Pending, now: int) -> None:
        """Note a send of an open request and arm the next: the first wait, or twice the last one."""
        if pending.sends == 0:
            self.counters.sent += 1
            pending.sent_ns = now
            known = self._round_trip_ns.get(pending.target, 0)
            pending.wait_ns = max(self._resend_ns, RESEND_ROUND_TRIPS * known)
        else:
            self.counters.resent += 1
            pending.wait_ns *= 2
        pending.sends += 1
        self._arm(pending, min(now + pending.wait_ns, pending.deadline_ns))

    def unsent(self, pending: Pending) -> None:
        """Take back the last `sent`: the transport did not take the message."""
        self.counters.dropped += 1
        pending.sends -= 1
        if pending.sends == 0:
            self.counters.sent -= 1
        else:
            self.counters.resent -= 1

    def refuse(self, pending: Pending) -> bool:
        """Close a request that can never be sent; False when it was closed already."""
        if not self.is_open(pending):
            return False
        self.counters.refused += 1
        self._close(pending, answered=False)
        return True

    def reply(self, correlation: bytes, now: int) -> Pending | None:
        """Return the request which this reply answers, now closed; None when it answers none (counted)."""
        pending = self._open.get(correlation)
        if pending is None:
            self._count_stray(correlation)
            return None
        pending.answered_ns = now
        self.counters.answered += 1
        self._close(pending, answered=True)
        if pending.sends == 1:
            self._learn(pending, now - pending.sent_ns)
        return pending

    def forget(self, pending: Pending) -> None:
        """Close a request that its caller has cancelled."""
        if self.is_open(pending):
            self.counters.cancelled += 1
            self._close(pending, answered=False)

    def due(self, now: int) -> Due:
        """Take what is due: resends (the caller calls `sent` for each) and the expired, now closed."""
        found = Due()
        while self._timers and self._timers[0][0] <= now:
            due_ns, _, pending = heapq.heappop(self._timers)
            if not self._live(pending, due_ns):
                continue
            if now < pending.deadline_ns:
                found.resend.append(pending)
                continue
            self.counters.lost += 1
            self._close(pending, answered=False)
            found.expired.append(pending)
        return found

    def postpone(self, pending: Pending) -> None:
        """Leave a request unsent until its deadline or `all_open`: there is no connection."""
        self._arm(pending, pending.deadline_ns)

    def all_open(self) -> list[Pending]:
        """Every open request, oldest first: what a new connection must carry again."""
        return list(self._open.values())

    def next_due_ns(self) -> int | None:
        """When `due` next has something to do; None when nothing is open."""
        while self._timers and not self._live(self._timers[0][2], self._timers[0][0]):
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def drain(self) -> Iterator[Pending]:
        """Close every request: the client ends."""
        for pending in self.all_open():
            self._close(pending, answered=False)
            yield pending

    def _live(self, pending: Pending, due_ns: int) -> bool:
        return self.is_open(pending) and pending.due_ns == due_ns

    def _arm(self, pending: Pending, due_ns: int) -> None:
        pending.due_ns = due_ns
        heapq.heappush(self._timers, (due_ns, next(self._ticket), pending))
        if len(self._timers) > 2 * len(self._open) + _STALE_TIMERS:
            # Answered requests leave their timers behind; at a high rate most of the heap would be such.
            self._timers = [timer for timer in self._timers if self._live(timer[2], timer[0])]
            heapq.heapify(self._timers)

    def _close(self, pending: Pending, *, answered: bool) -> None:
        del self._open[pending.correlation]
        # A stale timer may still hold the request; it must not hold the payload.
        pending.encoded = pending.encoded.without_payload()
        self._closed[pending.correlation] = answered
        if len(self._closed) > MEMORY:
            self._closed.popitem(last=False)

    def _count_stray(self, correlation: bytes) -> None:
        answered = self._closed.get(correlation)
        if answered is None:
            self.counters.foreign += 1
        elif answered:
            self.counters.duplicates += 1
        else:
            self.counters.late += 1

    def _learn(self, pending: Pending, round_trip_ns: int) -> None:
        known = self._round_trip_ns.get(pending.target, round_trip_ns)
        self._round_trip_ns[pending.target] = known + (round_trip_ns - known) // _SMOOTHING

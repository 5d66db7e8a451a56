"""The thread that sends: by schedule (open loop), by answers (closed loop), or now and then (sparse traffic).

An open loop waits for no answer. Where it falls behind its own schedule it sends at once what is due, and the tally has
the delay: a slow generator is told apart from a slow device. It sleeps until shortly before a request is due and then
only gives way: a loop that spins would keep the thread that stamps the answers from running.
"""

from __future__ import annotations

import threading
import time
from queue import Empty, SimpleQueue

from edged.bench.ledger import Ledger
from edged.bench.plan import Case, ClosedLoad, OpenLoad, SparseLoad
from edged.bench.tally import Tally
from edged.bench.target import Target
from edged.clock import NS_PER_MS, NS_PER_S, now_ns

# A sleep ends up to this much late (timer slack and wake-up); so much earlier it is left.
_EARLY_NS = 80_000
# How long at most nobody looks at deadlines, or at whether it was interrupted.
_SLICE_NS = 20 * NS_PER_MS
# From the call to the first request.
_LEAD_NS = 10 * NS_PER_MS
# After the last answer, for one that comes twice.
_GRACE_NS = 200 * NS_PER_MS
# An interrupted run waits so long for what is open.
_INTERRUPTED_NS = NS_PER_S
_REFUSED_S = 0.01


class Generator:
    """Runs one case. stop: set to end it early. `ended` must be called whenever a request ends.

    sent: how many, with those of the warm-up. stopped_ns: until when requests were sent, known once `run` has returned.
    """

    def __init__(self, target: Target, case: Case, tally: Tally, stop: threading.Event) -> None:
        self._target, self._case, self._tally, self._stop = target, case, tally, stop
        self._ends: SimpleQueue[None] = SimpleQueue()
        self.sent = 0
        self._end_ns = 0
        self.stopped_ns = 0

    def ended(self) -> None:
        """Note that a request ended: a closed loop may send the next one."""
        if not isinstance(self._case.load, OpenLoad):
            self._ends.put(None)

    def run(self, ledger: Ledger) -> None:
        """Send it all, then wait for what is open: each request has its deadline."""
        load = self._case.load
        if isinstance(load, ClosedLoad):
            self._closed(ledger, load)
        elif isinstance(load, SparseLoad):
            self._sparse(ledger, load)
        else:
            self._open(ledger, load)
        # In order it lasts until its end, though the last request is a little before.
        self.stopped_ns = now_ns() if self._stop.is_set() or not self._end_ns else self._end_ns
        self._drain(ledger)

    def _open(self, ledger: Ledger, load: OpenLoad) -> None:
        start_ns = now_ns() + _LEAD_NS
        for offset in load.offsets():
            due_ns = start_ns + offset
            if not self._admits(due_ns, start_ns) or not self._until(due_ns, ledger):
                return
            self._send(ledger, due_ns)

    def _closed(self, ledger: Ledger, load: ClosedLoad) -> None:
        start_ns = now_ns()
        for _ in range(load.concurrency):
            self._ends.put(None)
        while self._await_end(ledger):
            due_ns = now_ns()
            if not self._admits(due_ns, start_ns):
                return
            if not self._send(ledger, due_ns):
                time.sleep(_REFUSED_S)  # it takes nothing now: asking again at once would only burn the processor

    def _sparse(self, ledger: Ledger, load: SparseLoad) -> None:
        start_ns = now_ns()
        for offset in load.offsets():
            due_ns = start_ns + offset
            if not self._admits(due_ns, start_ns) or not self._until(due_ns, ledger):
                return
            self._send(ledger, due_ns)
            for _ in range(load.followers):
                if not self._await_end(ledger):
                    return
                self._send(ledger, now_ns(), follows=True)
            if not self._await_end(ledger):
                return

    def _send(self, ledger: Ledger, due_ns: int, *, follows: bool = False) -> bool:
        number = ledger.ask(due_ns, follows=follows)
        self.sent += 1
        if self._target.send(number, self._case.question):
            return True
        ledger.unsent(number)
        return False

    def _admits(self, due_ns: int, start_ns: int) -> bool:
        """Whether a request that is due then still belongs to the run; the first one after the warm-up begins it."""
        span = self._case.span
        if not self._tally.begun and self.sent >= span.warmup_requests:
            by_time = start_ns + int(span.warmup_s * NS_PER_S)
            if due_ns >= by_time:
                begin_ns = due_ns if span.warmup_requests else by_time
                self._end_ns = begin_ns + int(span.seconds * NS_PER_S)
                self._tally.begin(begin_ns)
        return not self._tally.begun or due_ns < self._end_ns

    def _until(self, due_ns: int, ledger: Ledger) -> bool:
        """Sleep until then; False when the run was stopped."""
        while (left_ns := due_ns - now_ns()) > 0 and not self._stop.is_set():
            if left_ns > _EARLY_NS:
                ledger.expire(now_ns())
                time.sleep(min(left_ns - _EARLY_NS, _SLICE_NS) / NS_PER_S)
            else:
                time.sleep(0)
        # Behind its schedule it never sleeps, and deadlines pass all the same.
        ledger.expire(now_ns())
        return not self._stop.is_set()

    def _await_end(self, ledger: Ledger) -> bool:
        """Wait until a request ends; False when the run was stopped."""
        while not self._stop.is_set():
            ledger.expire(now_ns())
            try:
                self._ends.get(timeout=_SLICE_NS / NS_PER_S)
            except Empty:
                continue
            return True
        return False

    def _drain(self, ledger: Ledger) -> None:
        limit_ns = now_ns() + _INTERRUPTED_NS
        while len(ledger) and not (self._stop.is_set() and now_ns() > limit_ns):
            ledger.expire(now_ns())
            time.sleep(_SLICE_NS / 4 / NS_PER_S)
        ledger.abandon()
        # Also when it was interrupted: until when it counts is known only here.
        time.sleep(_GRACE_NS / NS_PER_S)

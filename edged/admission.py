"""The way in to one model's worker: a queue bounded in requests and in bytes, and the deadlines of what is inside.

Rules it keeps:
- A request takes room from `admit` until somebody claims it, not until the worker gets to it: what waits behind a
  hung invoke is answered at its deadline and makes room.
- Full means one of two things, as configured: the new request is refused (reject), or the oldest waiting one is
  answered RESOURCE_EXHAUSTED in its place (drop_oldest).
- Past its deadline a request is answered at once, by the sweeper's own thread, whatever the worker is doing.
- Housekeeping is a mark among the requests, one at most, which the worker comes to in its turn.
The worker blocks on a SimpleQueue: no polling, and no lock handed over with a request.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import math
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from edged.affinity import ThreadPolicy
from edged.clock import NS_PER_MS, NS_PER_S, now_ns
from edged.errors import Code, RequestError
from edged.request import Request

log = logging.getLogger(__name__)

Fail = Callable[[Request, RequestError], None]
ORDINARY = ThreadPolicy()
_NEVER_NS = 1 << 63  # after every time


@dataclass(frozen=True)
class Bounds:
    """How much may wait for one model."""

    max_requests: int
    max_bytes: int
    overflow: Literal["reject", "drop_oldest"]


class _Mark(Enum):
    NUDGE = "nudge"


def _nothing() -> None:
    """What a worker does that has nothing to keep."""


class Admission:
    """The bounded queue of one model. `fail` claims a request and sends an error reply."""

    def __init__(self, bounds: Bounds, sweeper: Sweeper, fail: Fail) -> None:
        self._bounds, self._sweeper, self._fail = bounds, sweeper, fail
        self._queue: queue.SimpleQueue[Request | _Mark | None] = queue.SimpleQueue()
        self._nudged = False
        self._cleanings = 0  # begun and ended: odd during one
        self._lock = threading.Lock()
        self._closed: RequestError | None = None
        self.requests = 0
        self.bytes = 0

    def admit(self, request: Request) -> None:
        """Take the request in.

        Raises RequestError: RESOURCE_EXHAUSTED when there is no room for it now, INVALID_ARGUMENT when there never
        will be, or what `close` was given.
        """
        if request.size > self._bounds.max_bytes:
            what = f"{request.size} bytes, the queue holds {self._bounds.max_bytes} in all"
            raise RequestError(Code.INVALID_ARGUMENT, f"the payload is too large: {what}")
        while not self._put(request):
            if self._bounds.overflow == "reject" or not self._drop_oldest():
                raise self._full()
        self._sweeper.watch(request)

    def take(self, idle: Callable[[], None] = _nothing) -> Request | None:
        """Block until a request nobody has answered yet is there; None after `close`. The worker's thread only.

        idle: called meanwhile, after each `nudge`.
        """
        while True:
            request = self._next(None)
            if request is _Mark.NUDGE:
                self._nudged = False  # before the call, so that a nudge during it is not lost
                idle()
            elif request is None or not request.claimed:
                return request

    def more(self, until_ns: int) -> Request | None:
        """Return another such request, waiting for it until `until_ns`; None when none comes. The worker's thread only.

        A nudge, or the end, is left to `take`, and nothing is waited for any longer.
        """
        while True:
            try:
                request = self._next(max(0.0, (until_ns - now_ns()) / NS_PER_S))
            except queue.Empty:
                return None
            if not isinstance(request, Request):
                self._queue.put(request)
                return None
            if not request.claimed:
                return request

    def nudge(self) -> None:
        """Let the worker call its `idle` when it has taken what is queued now; once, however often this is called."""
        with self._lock:
            if not self._nudged:
                self._nudged = True
                self._queue.put(_Mark.NUDGE)

    def close(self, error: RequestError) -> None:
        """Refuse every later `admit` with `error`; `take` returns None once all that was admitted before is taken."""
        with self._lock:
            self._closed = error
            self._queue.put(None)

    def abandon(self, error: RequestError) -> None:
        """`close`, and answer what still waits with `error` instead of leaving it to the worker."""
        self.close(error)
        for request in self._drain():
            if isinstance(request, Request):
                self._fail(request, error)
        self._queue.put(None)

    def _next(self, timeout_s: float | None) -> Request | _Mark | None:
        """Take what is first in the queue; raises queue.Empty when nothing comes in time."""
        seen = self._cleanings
        found = self._queue.get(timeout=timeout_s)
        return found if seen == self._cleanings and seen % 2 == 0 else self._in_turn(found)

    def _in_turn(self, taken: Request | _Mark | None) -> Request | _Mark | None:
        """Return what is first, once a cleaning is over: what it left may have come before `taken`."""
        with self._lock:
            first, *rest = sorted([*self._drain(), taken], key=_turn)
            for one in rest:
                self._queue.put(one)
        return first

    def _put(self, request: Request) -> bool:
        """Take room and queue in one step, so that nothing gets in behind `close`; False when there is no room."""
        with self._lock:
            if self._closed is not None:
                raise self._closed.with_traceback(None)
            if self.requests >= self._bounds.max_requests or self.bytes + request.size > self._bounds.max_bytes:
                return False
            self.requests += 1
            self.bytes += request.size
            request.settle, request.admitted_ns = self._settle, now_ns()
            self._queue.put(request)
            if self._queue.qsize() > 2 * self._bounds.max_requests:
                self._forget_answered()
            return True

    def _forget_answered(self) -> None:
        # While an invoke hangs nobody takes, and what the sweeper answers stays in the queue: it would grow for ever.
        self._cleanings += 1
        for request in self._drain():
            if not isinstance(request, Request) or not request.claimed:
                self._queue.put(request)
        self._cleanings += 1

    def _drain(self) -> list[Request | _Mark | None]:
        found: list[Request | _Mark | None] = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._queue.get_nowait())
        return found

    def _settle(self, request: Request) -> None:
        with self._lock:
            self.requests -= 1
            self.bytes -= request.size

    def _drop_oldest(self) -> bool:
        """Answer the oldest waiting request with an error; False when none waits (only the one in service)."""
        try:
            oldest = self._queue.get_nowait()
            if oldest is _Mark.NUDGE:  # it goes to the end, which is where it would be had it come now
                self._queue.put(oldest)
                oldest = self._queue.get_nowait()
        except queue.Empty:
            return False
        if not isinstance(
            oldest, Request
        ):  # put back: closing, so nothing may be admitted any more, or the nudge alone
            self._queue.put(oldest)
            return False
        self._fail(oldest, RequestError(Code.RESOURCE_EXHAUSTED, "dropped for a newer request", 0))
        return True

    def _full(self) -> RequestError:
        waiting = f"{self.requests} requests, {self.bytes} bytes waiting"
        return RequestError(Code.RESOURCE_EXHAUSTED, f"the queue is full: {waiting}", 100)


def _turn(one: Request | _Mark | None) -> float:
    """Return what orders a queue: requests as they were admitted, then a nudge, then the end."""
    if isinstance(one, Request):
        return one.admitted_ns
    return math.inf if one is None else _NEVER_NS


class Sweeper:
    """One thread for all models that answers each request whose deadline has passed.

    policy: of the thread; a busy model must not hold up the answer that it is late. scheduling: what was achieved.
    """

    def __init__(self, fail: Fail, policy: ThreadPolicy = ORDINARY) -> None:
        self._fail, self._policy, self.scheduling = fail, policy, ""
        self._heap: list[tuple[int, int, Request]] = []
        self._serial = 0
        self._prune_at = 1024
        self._lock = threading.Lock()  # taken by itself: a condition's own methods cost as much as all else here
        self._changed = threading.Condition(self._lock)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="edged-deadlines", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def watch(self, request: Request) -> None:
        """Answer `request` DEADLINE_EXCEEDED once its deadline passes, unless it was claimed before."""
        with self._lock:
            self._serial += 1
            heapq.heappush(self._heap, (request.deadline_ns, self._serial, request))
            if self._heap[0][2] is request:
                self._changed.notify()
            elif len(self._heap) >= self._prune_at:
                self._prune()

    def stop(self) -> None:
        """End the thread; what it watched stays with its other owners."""
        with self._lock:
            self._stopping = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _prune(self) -> None:
        # Answered requests stay in the heap until their deadline; forget them before they add up.
        self._heap = [entry for entry in self._heap if not entry[2].claimed]
        heapq.heapify(self._heap)
        self._prune_at = max(1024, 2 * len(self._heap))

    def _forget_first_answered(self) -> None:
        # Else the thread would wake at each deadline, one a request, for nothing but to find the request answered.
        while self._heap and self._heap[0][2].claimed:
            heapq.heappop(self._heap)

    def _run(self) -> None:
        self.scheduling = self._policy.apply()
        while True:
            due = self._next_due()
            if due is None:
                return
            if not due.claimed:
                self._expire(due)

    def _expire(self, request: Request) -> None:
        budget_ms = (request.deadline_ns - request.received_ns) // NS_PER_MS
        try:
            self._fail(request, RequestError(Code.DEADLINE_EXCEEDED, f"not answered within {budget_ms} ms"))
        except Exception:  # top of the thread: one reply that cannot be sent must not end all other deadlines
            log.exception("an expired request could not be answered")

    def _next_due(self) -> Request | None:
        with self._lock:
            while not self._stopping:
                self._forget_first_answered()
                left_ns = self._heap[0][0] - now_ns() if self._heap else None
                if left_ns is not None and left_ns <= 0:
                    return heapq.heappop(self._heap)[2]
                self._changed.wait(None if left_ns is None else left_ns / NS_PER_S)
        return None

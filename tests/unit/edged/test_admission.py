"""The bounded queue and the deadlines of what is in it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.requests import Inbox
from support.rig import BOUNDS

from edged.admission import Admission, Bounds, Sweeper
from edged.answering import answer
from edged.clock import NS_PER_S, now_ns
from edged.errors import Code, RequestError
from edged.figures import ModelFigures
from edged.request import Reply, Request


class Rig:
    """An admission with a running sweeper, and an inbox for what is answered."""

    def __init__(self) -> None:
        self.inbox, self.figures = Inbox(), ModelFigures()
        self.sweeper = Sweeper(self.fail)

    def fail(self, request: Request, error: RequestError) -> None:
        answer(request, Reply.failure(error), self.figures)

    def admission(self, **bounds: object) -> Admission:
        return Admission(Bounds(**{**BOUNDS, **bounds}), self.sweeper, self.fail)  # type: ignore[arg-type]


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.sweeper.start()
    yield rig
    rig.sweeper.stop()


def test_requests_are_taken_in_the_order_they_came(rig: Rig) -> None:
    """First in, first out."""
    admission = rig.admission()
    sent = [rig.inbox.request() for _ in range(5)]
    for request in sent:
        admission.admit(request)
    assert [admission.take() for _ in sent] == sent


def test_a_full_queue_refuses_the_newest(rig: Rig) -> None:
    """Bounded in requests: the third of two is refused RESOURCE_EXHAUSTED, retryable, with a time to wait."""
    admission = rig.admission(max_requests=2)
    admission.admit(rig.inbox.request())
    admission.admit(rig.inbox.request())
    with pytest.raises(RequestError) as caught:
        admission.admit(rig.inbox.request())
    assert caught.value.code is Code.RESOURCE_EXHAUSTED
    assert caught.value.retryable
    assert caught.value.retry_after_ms


def test_bytes_are_bounded_too(rig: Rig) -> None:
    """Two payloads of 60 bytes do not fit into 100; one does again once the first is answered."""
    admission = rig.admission(max_bytes=100)
    first = rig.inbox.request(b"x" * 60)
    admission.admit(first)
    with pytest.raises(RequestError, match="RESOURCE_EXHAUSTED"):
        admission.admit(rig.inbox.request(b"x" * 60))
    first.claim()
    admission.admit(rig.inbox.request(b"x" * 60))
    assert (admission.requests, admission.bytes) == (1, 60)


def test_a_payload_larger_than_the_queue_is_the_senders_mistake(rig: Rig) -> None:
    """Sending it again cannot help, and with drop_oldest it must not push everything else out."""
    admission = rig.admission(max_bytes=100, overflow="drop_oldest")
    admission.admit(rig.inbox.request(b"x" * 50))
    with pytest.raises(RequestError) as caught:
        admission.admit(rig.inbox.request(b"x" * 101))
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert admission.requests == 1


def test_drop_oldest_answers_the_oldest_and_takes_the_new_one(rig: Rig) -> None:
    """Nothing vanishes: the request that makes room gets an error reply."""
    admission = rig.admission(max_requests=2, overflow="drop_oldest")
    old, middle, new = (rig.inbox.request() for _ in range(3))
    for request in (old, middle, new):
        admission.admit(request)
    answered, reply = rig.inbox.replies.get(timeout=1)
    assert answered is old
    assert reply.error is not None
    assert reply.error.code is Code.RESOURCE_EXHAUSTED
    assert [admission.take(), admission.take()] == [middle, new]


def test_a_deadline_is_kept_while_nobody_takes(rig: Rig) -> None:
    """No worker at all: the sweeper answers, not before the deadline, and the room is free again."""
    admission = rig.admission(max_requests=1)
    request = rig.inbox.request(deadline_ms=60)
    admission.admit(request)
    reply = rig.inbox.get()
    assert time.monotonic_ns() >= request.deadline_ns
    assert reply.error is not None
    assert reply.error.code is Code.DEADLINE_EXCEEDED
    admission.admit(rig.inbox.request())


def test_deadlines_of_answered_requests_wake_nobody(rig: Rig) -> None:
    """A hundred requests that were answered, each with a deadline of its own: the sweeper sleeps through them."""
    admission = rig.admission(max_requests=200)
    for number in range(100):
        request = rig.inbox.request(deadline_ms=100 + number)
        admission.admit(request)
        answer(request, Reply(b"", ""), rig.figures)
    thread = Path(f"/proc/self/task/{rig.sweeper._thread.native_id}/status")

    def slept() -> int:
        return int(thread.read_text().split("\nvoluntary_ctxt_switches:")[1].split()[0])

    before = slept()
    time.sleep(0.3)
    assert slept() - before < 10


def test_an_earlier_deadline_overtakes_a_later_one(rig: Rig) -> None:
    """A short deadline behind a long one is not held back by it."""
    admission = rig.admission()
    admission.admit(rig.inbox.request(deadline_ms=60_000))
    short = rig.inbox.request(deadline_ms=50)
    admission.admit(short)
    assert rig.inbox.replies.get(timeout=5)[0] is short


def test_an_answered_request_is_neither_swept_nor_taken(rig: Rig) -> None:
    """Claimed by somebody else: one reply in all, and the worker never sees it."""
    admission = rig.admission()
    first, second = rig.inbox.request(deadline_ms=40), rig.inbox.request()
    admission.admit(first)
    admission.admit(second)
    rig.fail(first, RequestError(Code.UNAVAILABLE, "by the test"))
    time.sleep(0.1)
    assert admission.take() is second
    assert rig.inbox.count() == 1


def test_the_heap_forgets_answered_requests(rig: Rig) -> None:
    """10,000 answered requests with far deadlines leave no 10,000 entries behind."""
    admission = rig.admission()
    for _ in range(10_000):
        request = rig.inbox.request(deadline_ms=600_000)
        admission.admit(request)
        request.claim()
    assert len(rig.sweeper._heap) <= 1024


def test_close_lets_the_worker_finish_what_waits(rig: Rig) -> None:
    """The end mark comes after what was admitted before it."""
    admission = rig.admission()
    request = rig.inbox.request()
    admission.admit(request)
    admission.close(RequestError(Code.UNAVAILABLE, "going"))
    assert admission.take() is request
    assert admission.take() is None


def test_abandon_answers_everything_that_waits(rig: Rig) -> None:
    """The end of a drain leaves nobody without a reply."""
    admission = rig.admission()
    for _ in range(3):
        admission.admit(rig.inbox.request())
    admission.abandon(RequestError(Code.UNAVAILABLE, "going"))
    assert [rig.inbox.get().error.code for _ in range(3)] == [Code.UNAVAILABLE] * 3  # type: ignore[union-attr]
    assert admission.requests == 0


def test_the_bounds_hold_under_many_threads(rig: Rig) -> None:
    """Eight threads push 500 requests each through a queue of 16 while one takes: admitted = answered + refused."""
    admission, refused = rig.admission(max_requests=16), []
    highest = 0

    def push() -> None:
        for _ in range(500):
            try:
                admission.admit(rig.inbox.request(deadline_ms=600_000))
            except RequestError:
                refused.append(1)

    threads = [threading.Thread(target=push) for _ in range(8)]
    for thread in threads:
        thread.start()
    taken = 0
    while any(thread.is_alive() for thread in threads) or admission.requests:
        highest = max(highest, admission.requests)
        if admission.requests:
            request = admission.take()
            assert request is not None
            request.claim()
            taken += 1
    assert taken + len(refused) == 4000
    assert highest <= 16
    assert admission.bytes == 0


def test_nothing_gets_in_behind_close(rig: Rig) -> None:
    """A request that comes after the end is refused at once, with the reason given, and nobody waits for it."""
    admission = rig.admission()
    admission.abandon(RequestError(Code.UNAVAILABLE, "going"))
    with pytest.raises(RequestError, match="UNAVAILABLE: going"):
        admission.admit(rig.inbox.request())
    assert admission.requests == 0
    assert admission.take() is None


def test_a_hung_worker_does_not_let_the_queue_grow(rig: Rig) -> None:
    """Nobody takes; 3,000 requests come and expire: what is held stays within twice the bound."""
    admission = rig.admission(max_requests=16)
    for number in range(3000):
        request = rig.inbox.request(deadline_ms=60_000)
        admission.admit(request)
        if number % 300:
            rig.fail(request, RequestError(Code.DEADLINE_EXCEEDED, "as the sweeper does"))
    assert admission._queue.qsize() <= 33
    waiting = [admission.take() for _ in range(10)]
    assert [request.claimed for request in waiting if request] == [False] * 10


def test_one_reply_that_cannot_be_sent_does_not_end_the_deadlines(rig: Rig) -> None:
    """The first requester's answer raises; the second is still answered at its deadline."""
    admission = rig.admission()
    broken = rig.inbox.request(deadline_ms=20)

    def raising(*_: object) -> None:
        msg = "no way out"
        raise OSError(msg)

    broken.respond = raising
    admission.admit(broken)
    second = rig.inbox.request(deadline_ms=60)
    admission.admit(second)
    assert rig.inbox.replies.get(timeout=5)[0] is second


def taken(admission: Admission) -> list[object]:
    """What a worker comes to, in order, until the end; an idle call is "idle"."""
    found: list[object] = []
    while (request := admission.take(lambda: found.append("idle"))) is not None:
        found.append(request)
    return found


def test_a_nudge_is_taken_in_its_turn(rig: Rig) -> None:
    """Between the requests that were there and those that came after; many nudges are one."""
    admission = rig.admission()
    first, second = rig.inbox.request(), rig.inbox.request()
    admission.admit(first)
    for _ in range(3):
        admission.nudge()
    admission.admit(second)
    admission.close(RequestError(Code.UNAVAILABLE, "over"))
    assert taken(admission) == [first, "idle", second]


def test_a_nudge_during_the_idle_call_is_not_lost(rig: Rig) -> None:
    """What it is about may have come too late for the call that runs."""
    admission = rig.admission()
    calls: list[int] = []

    def idle() -> None:
        calls.append(1)
        if len(calls) == 1:
            admission.nudge()
        else:
            admission.close(RequestError(Code.UNAVAILABLE, "over"))

    admission.nudge()
    assert admission.take(idle) is None
    assert len(calls) == 2


def test_a_nudge_takes_no_room_and_is_not_dropped(rig: Rig) -> None:
    """The oldest request makes way for a newer one, whatever lies before it; the nudge stays."""
    admission = rig.admission(max_requests=2, overflow="drop_oldest")
    admission.nudge()
    sent = [rig.inbox.request() for _ in range(3)]
    for request in sent:
        admission.admit(request)
    assert rig.inbox.get().error is not None
    admission.close(RequestError(Code.UNAVAILABLE, "over"))
    found = taken(admission)
    assert [item for item in found if item != "idle"] == sent[1:]
    assert found.count("idle") == 1


def test_only_a_nudge_waits_behind_the_one_in_service(rig: Rig) -> None:
    """Nothing can be dropped: the newest is refused, as without it."""
    admission = rig.admission(max_requests=1, overflow="drop_oldest")
    admission.admit(rig.inbox.request())
    admission.take()
    admission.nudge()
    with pytest.raises(RequestError):
        admission.admit(rig.inbox.request())
    admission.close(RequestError(Code.UNAVAILABLE, "over"))
    assert taken(admission) == ["idle"]


def test_a_nudge_does_not_survive_an_abandoned_queue(rig: Rig) -> None:
    """What waits is answered, and the worker ends; none is taken in later."""
    admission = rig.admission()
    admission.admit(rig.inbox.request())
    admission.nudge()
    admission.abandon(RequestError(Code.UNAVAILABLE, "gone"))
    admission.nudge()
    assert taken(admission) == []
    assert rig.inbox.count() == 1


def test_a_nudge_stays_while_the_queue_is_cleaned(rig: Rig) -> None:
    """What was answered behind a hung invoke is forgotten, the nudge is not."""
    admission = rig.admission(max_requests=2)
    admission.nudge()
    for _ in range(8):
        request = rig.inbox.request()
        admission.admit(request)
        answer(request, Reply(b"", ""), rig.figures)
    assert admission._queue.qsize() < 8
    admission.close(RequestError(Code.UNAVAILABLE, "over"))
    assert taken(admission) == ["idle"]


class _Interrupted:
    """A queue that lets the worker take one in the middle of a cleaning: after two were drained."""

    def __init__(self, inner: queue.SimpleQueue[object]) -> None:
        self.inner, self.drained = inner, 0
        self.go_on, self.has_taken = threading.Event(), threading.Event()

    def get(self, *, timeout: float | None) -> object:
        self.go_on.wait(10)
        found = self.inner.get(timeout=timeout)
        self.has_taken.set()
        return found

    def get_nowait(self) -> object:
        self.drained += 1
        if self.drained == 3:
            self.go_on.set()
            assert self.has_taken.wait(10)
        return self.inner.get_nowait()

    def put(self, one: object) -> None:
        self.inner.put(one)

    def qsize(self) -> int:
        return self.inner.qsize()


@pytest.mark.parametrize("gathering", [False, True])
def test_the_order_stays_when_the_worker_comes_back_during_a_cleaning(rig: Rig, gathering: bool) -> None:
    """Its inference hung, what expired behind it is forgotten, and it takes while that is done."""
    admission = rig.admission(max_requests=4)
    admission._queue = _Interrupted(admission._queue)  # type: ignore[assignment, arg-type]
    waiting, found = [rig.inbox.request() for _ in range(4)], list[object]()

    def work() -> None:
        for _ in waiting:
            found.append(admission.more(now_ns() + NS_PER_S) if gathering else admission.take())

    worker = threading.Thread(target=work)
    worker.start()
    for request in waiting[:3]:
        admission.admit(request)
    for _ in range(5):
        expired = rig.inbox.request()
        admission.admit(expired)
        rig.fail(expired, RequestError(Code.DEADLINE_EXCEEDED, "as the sweeper does"))
    admission.admit(waiting[3])
    worker.join(10)
    assert [waiting.index(one) for one in found] == [0, 1, 2, 3]  # type: ignore[arg-type]

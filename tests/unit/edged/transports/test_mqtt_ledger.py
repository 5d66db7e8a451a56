"""The book of unfinished messages: bounds, marks told early, losses."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from edged.clock import NS_PER_S, now_ns
from edged.transports.counters import Counters
from edged.transports.mqtt_ledger import LARGE, Entry, Ledger


def _ledger(max_bytes: int = 1000, max_messages: int = 10) -> Ledger:
    return Ledger(max_bytes, max_messages, Counters())


def test_bounds_in_bytes_and_messages() -> None:
    """Room is refused at either bound and given back by `release`."""
    ledger = _ledger(max_bytes=100, max_messages=2)
    assert ledger.reserve(60)
    assert not ledger.reserve(41)
    assert ledger.reserve(40)
    assert not ledger.reserve(0)
    ledger.release(60)
    assert ledger.reserve(60)


def test_sent_once_although_written_again() -> None:
    """A message at QoS 1 that is written on a second connection does not call `on_sent` again."""
    ledger, marks = _ledger(), list[int]()
    ledger.reserve(5)
    ledger.enter(7, Entry(5, 1, marks.append))
    ledger.written(7, 111)
    ledger.written(7, 222)
    ledger.done(7)
    assert marks == [111]
    assert ledger.load() == (0, 0)


def test_marks_may_come_before_the_entry() -> None:
    """The network thread can be faster than the publishing one: nothing is lost, the early mark counts."""
    for qos in (0, 1):
        ledger, marks = _ledger(), list[int]()
        ledger.reserve(5)
        ledger.written(7, 111)
        ledger.done(7)
        assert ledger.enter(7, Entry(5, qos, marks.append), settled=True)
        assert marks == [111]
        assert ledger.load() == (0, 0)


def test_lost_before_it_was_entered() -> None:
    """At QoS 0, settled without a mark means that the connection died: the caller learns it, the room is free."""
    ledger, marks = _ledger(), list[int]()
    ledger.reserve(5)
    assert not ledger.enter(7, Entry(5, 0, marks.append), settled=True)
    assert (marks, ledger.load()) == ([], (0, 0))


def test_a_lost_connection_takes_qos_0_and_leaves_qos_1() -> None:
    """What paho resends stays in the book."""
    ledger = _ledger()
    for mid, qos in enumerate((0, 1, 0)):
        ledger.reserve(10)
        ledger.enter(mid, Entry(10, qos, None))
    assert ledger.begin() == 2
    assert ledger.load() == (10, 1)
    assert ledger.largest_unacknowledged() == 10


def _waiting(*messages: tuple[int, int]) -> Ledger:
    """A ledger with messages 0, 1, … of these sizes and QoS."""
    ledger = _ledger(10 * LARGE)
    for mid, (size, qos) in enumerate(messages):
        ledger.reserve(size)
        ledger.enter(mid, Entry(size, qos, None))
    return ledger


def _named(ledger: Ledger) -> tuple[int, bool] | None:
    found = ledger.suspect()
    return None if found is None else (found.size, found.stuck_ns == 0)


def test_what_a_connection_may_have_died_of() -> None:
    """The first that is not acknowledged, of a broker that has answered something; the same one on the next."""
    ledger = _waiting((900, 1), (LARGE, 1), (LARGE + 1, 1))
    for mid in range(3):
        ledger.written(mid, now_ns())
    assert _named(ledger) is None  # nothing was answered
    ledger.answered()
    assert _named(ledger) is None  # the first is a small one
    ledger.done(0)
    assert _named(ledger) == (LARGE, True)
    who = ledger.suspect()
    ledger.begin()
    assert _named(ledger) is None
    ledger.answered()
    assert _named(ledger) == (LARGE, False)
    ledger.written(1, now_ns())
    assert ledger.suspect() == who
    ledger.done(1)
    assert _named(ledger) == (LARGE + 1, False)


def test_an_acknowledgement_of_what_came_later_acquits() -> None:
    """The broker has gone past it."""
    ledger = _waiting((LARGE, 1), (900, 1))
    for mid in range(2):
        ledger.written(mid, now_ns())
    ledger.done(1)
    assert _named(ledger) is None


def test_at_qos_0_what_was_written_last_is_named() -> None:
    """By topic and size, as it is gone: the largest in the last second that nothing acknowledged follows."""
    ledger = _waiting((LARGE + 1, 0), (LARGE, 0), (900, 0), (900, 1))
    ledger.answered()
    for mid in range(3):
        ledger.done(mid)
    found = ledger.suspect()
    assert found is not None
    assert (found.size, found.who, found.stuck_ns) == (LARGE + 1, ("", LARGE + 1), 0)
    ledger.written(3, now_ns())
    assert ledger.suspect() == found
    ledger.done(3)
    assert ledger.suspect() is None


def test_what_is_not_all_written_is_named() -> None:
    """At QoS 0 as well, while the kernel has half of it; and for how long it has waited."""
    ledger = _waiting((LARGE, 0), (LARGE + 1, 0), (LARGE + 2, 1))
    ledger.answered()
    before = now_ns()
    found = ledger.suspect()
    assert found is not None
    assert (found.size, found.who) == (LARGE, ("", LARGE))
    assert 0 < found.stuck_ns < now_ns() - before + NS_PER_S
    ledger.written(2, now_ns())  # it was, so what is before it in the book was as well
    assert _named(ledger) == (LARGE + 2, True)


def test_what_was_written_long_ago_is_no_suspect() -> None:
    """A broker hangs up at once over what it does not take."""
    ledger = _waiting((LARGE, 0))
    ledger.answered()
    ledger.done(0, now_ns() - 2 * NS_PER_S)
    assert (ledger.suspect(), ledger.largest()) == (None, 0)


def test_refused_is_told_before_done() -> None:
    """Whoever hears that nothing more will be done knows by then how it ended."""
    ledger, told = _ledger(), list[str]()
    ledger.admit(1, Entry(5, 1, None, lambda: told.append("done"), lambda: told.append("refused")))
    ledger.done(1, refused=True)
    assert told == ["refused", "done"]


def test_a_callback_that_raises_is_counted() -> None:
    """Nothing of the caller's reaches the network thread."""
    counters = Counters()
    ledger = Ledger(100, 10, counters)
    ledger.reserve(1)
    ledger.enter(1, Entry(1, 0, lambda ns: 1 // 0 if ns else None))
    ledger.written(1, 5)
    assert counters.snapshot() == {"callback_errors": 1}


def test_wait_empty_wakes_at_the_last_message() -> None:
    """The flush of `stop` ends with the last message, not with the timeout."""
    ledger = _ledger()
    ledger.reserve(1)
    ledger.enter(1, Entry(1, 1, None))
    assert not ledger.wait_empty(0.01)
    threading.Timer(0.05, ledger.done, (1,)).start()
    assert ledger.wait_empty(30)


def test_admitted_before_it_is_published() -> None:
    """Room and entry in one step, refused at either bound; withdrawn, nothing of it is left."""
    ledger = _ledger(max_bytes=100, max_messages=2)
    assert ledger.admit(1, Entry(60, 1, None))
    assert not ledger.admit(2, Entry(41, 1, None))
    assert ledger.admit(2, Entry(40, 0, None))
    assert not ledger.admit(3, Entry(0, 0, None))
    ledger.withdraw(2)
    assert (ledger.load(), ledger.in_use(1), ledger.in_use(2)) == ((60, 1), True, False)


def test_written_as_the_connection_ends() -> None:
    """The network thread has given the message up as lost; that it was written after all leaves nothing behind."""
    ledger, marks = _ledger(), list[int]()
    ledger.admit(70_000, Entry(5, 0, marks.append))
    ledger.begin()
    ledger.done(70_000, 111)
    assert ledger.enter(70_000, Entry(5, 0, marks.append)) == (marks == [])
    assert ledger.in_use(70_000)


def test_an_acknowledgement_overtakes_the_publishing_thread() -> None:
    """It wrote the message; before it says so, the broker has answered: sent once, at the time of the write."""
    for answered_first in (True, False):
        ledger, marks = _ledger(), list[int]()
        entry = Entry(5, 1, marks.append)
        ledger.admit(7, entry)
        entry.written_ns = 111
        for tell in (lambda: ledger.done(7), lambda: ledger.written_here(entry))[:: 1 if answered_first else -1]:  # noqa: B023
            tell()
        assert marks == [111]
        assert ledger.load() == (0, 0)
        assert ledger.admit(7, Entry(5, 1, marks.append))  # nothing of the former one is left
        assert marks == [111]


@given(st.lists(st.tuples(st.sampled_from(["enter", "written", "done"]), st.integers(1, 4)), max_size=40))
def test_any_order_of_marks_keeps_the_balance(steps: list[tuple[str, int]]) -> None:
    """Whatever comes in whatever order: room is never negative, and each `on_sent` is called at most once."""
    ledger, calls = _ledger(10**6, 10**6), dict[int, int]()
    for number, (step, mid) in enumerate(steps):
        if step == "enter":
            ledger.reserve(3)
            ledger.enter(mid, Entry(3, 1, lambda _ns, n=number: calls.update({n: calls.get(n, 0) + 1})))  # type: ignore[misc]
        elif step == "written":
            ledger.written(mid, 1)
        else:
            ledger.done(mid)
        used, messages = ledger.load()
        assert used == 3 * messages >= 0
    assert set(calls.values()) <= {1}

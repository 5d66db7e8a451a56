"""The book of unfinished messages: bounds, marks told early, losses."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from edged.transports.counters import Counters
from edged.transports.mqtt_ledger import Entry, Ledger


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
    assert ledger.done(7)
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
    assert ledger.lose_unacknowledged() == 2
    assert ledger.load() == (10, 1)
    assert ledger.largest_unacknowledged() == 10


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

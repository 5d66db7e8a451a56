"""The table of open requests, with a clock that the test turns by hand (milliseconds as ns)."""

from __future__ import annotations

import pytest

from edged.client.exchange import MEMORY, Exchange, Target
from edged.client.payloads import Encoded

MS = 1_000_000
HAR = Target("press-07", "har")


@pytest.fixture
def exchange() -> Exchange:
    return Exchange(250 * MS)


def _open(exchange, *, now=0, deadline_ms=10_000, target=HAR):
    return exchange.open(target, Encoded("raw", b"payload"), deadline_ms, now)


def _ask(exchange, **how):
    pending = _open(exchange, **how)
    exchange.sent(pending, pending.created_ns)
    return pending


def _send_times(exchange, until_ms):
    """When a request that nobody answers is sent, in ms, by polling each ms."""
    pending, times = _ask(exchange), [0]
    for ms in range(until_ms):
        for due in exchange.due(ms * MS).resend:
            times.append(ms)
            exchange.sent(due, ms * MS)
    return times, pending


def test_resends_double_until_the_deadline(exchange):
    """250 ms, then twice as long each time, and nothing once the deadline has passed."""
    times, _ = _send_times(exchange, 12_000)
    assert times == [0, 250, 750, 1750, 3750, 7750]
    assert exchange.counters.lost == 1
    assert exchange.counters.resent == 5
    assert exchange.counters.sent == 1
    assert len(exchange) == 0


def test_slow_model_is_not_asked_again_too_early(exchange):
    """The first wait grows to four round trips of the same model, and only of that one."""
    for second in range(40):
        pending = _ask(exchange, now=second * 1000 * MS)
        exchange.reply(pending.correlation, pending.created_ns + 200 * MS)
    assert _ask(exchange, now=100_000 * MS).due_ns == (100_000 + 800) * MS
    assert _ask(exchange, now=100_000 * MS, target=Target("press-07", "other")).due_ns == (100_000 + 250) * MS


def test_round_trip_of_a_resent_request_is_not_learnt(exchange):
    """It is unknown which send was answered (Karn's rule)."""
    pending = _ask(exchange)
    exchange.sent(pending, 250 * MS)
    exchange.reply(pending.correlation, 5000 * MS)
    assert _ask(exchange, now=6000 * MS).due_ns == 6250 * MS


def test_answered_request_is_not_sent_again(exchange):
    """Its timer dies with it."""
    pending = _ask(exchange)
    assert exchange.reply(pending.correlation, 10 * MS) is pending
    assert exchange.next_due_ns() is None
    assert not exchange.due(60_000 * MS)
    assert exchange.counters.answered == 1


def test_replies_that_answer_nothing_are_told_apart(exchange):
    """A second answer is a duplicate, one after the deadline is late, one never asked for is foreign."""
    answered, expired = _ask(exchange), _ask(exchange, deadline_ms=100)
    exchange.reply(answered.correlation, 1)
    assert exchange.reply(answered.correlation, 2) is None
    assert exchange.due(100 * MS).expired == [expired]
    assert exchange.reply(expired.correlation, 101 * MS) is None
    assert exchange.reply(b"somebody else's", 3) is None
    counters = exchange.counters
    assert (counters.answered, counters.duplicates, counters.late, counters.foreign) == (1, 1, 1, 1)


def test_deadline_is_the_last_moment_not_the_first_after(exchange):
    """At its deadline a request is given up, one ns before it is not."""
    pending = _ask(exchange, deadline_ms=100)
    assert not exchange.due(100 * MS - 1).expired
    assert exchange.due(100 * MS).expired == [pending]


def test_postponed_request_waits_for_a_connection(exchange):
    """Without a connection there is nothing to resend, but the deadline holds."""
    pending = _open(exchange)
    exchange.postpone(pending)
    assert not exchange.due(9_999 * MS)
    assert exchange.all_open() == [pending]
    assert exchange.due(10_000 * MS).expired == [pending]
    assert exchange.counters.sent == 0


def test_correlations_are_unique_and_name_the_client():
    """16 bytes; two clients share none, and a client never repeats one."""
    exchanges = [Exchange(1), Exchange(1)]
    found = {_open(exchange).correlation for exchange in exchanges for _ in range(100)}
    assert len(found) == 200
    assert {len(correlation) for correlation in found} == {16}
    assert {correlation[:8] for correlation in found} == {exchange.instance for exchange in exchanges}


def test_forgotten_request_leaves_no_payload(exchange):
    """Cancelling frees the bytes at once, although its timer is still in the heap; a second time changes nothing."""
    pending = _ask(exchange)
    exchange.forget(pending)
    exchange.forget(pending)
    assert pending.encoded.payload == b""
    assert exchange.counters.cancelled == 1
    assert exchange.next_due_ns() is None


def test_memory_of_closed_requests_is_bounded(exchange):
    """The oldest are forgotten: their repeats count as foreign, newer ones still as duplicates."""
    correlations = []
    for _ in range(MEMORY + 1):
        pending = _ask(exchange)
        correlations.append(pending.correlation)
        exchange.reply(pending.correlation, 1)
    exchange.reply(correlations[0], 2)
    exchange.reply(correlations[1], 2)
    assert (exchange.counters.foreign, exchange.counters.duplicates) == (1, 1)
    assert len(exchange._closed) == MEMORY


def test_timers_of_answered_requests_do_not_pile_up(exchange):
    """20,000 quick requests in one resend interval leave a small heap."""
    for _ in range(20_000):
        pending = _ask(exchange)
        exchange.reply(pending.correlation, 1)
    assert len(exchange._timers) < 2000


def test_drain_closes_everything(exchange):
    """What is drained is neither open nor due any more."""
    asked = [_ask(exchange) for _ in range(3)]
    assert list(exchange.drain()) == asked
    assert len(exchange) == 0
    assert not exchange.due(10**18)

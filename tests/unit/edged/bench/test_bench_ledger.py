"""Which answer belongs to which request, and what is counted: nothing vanishes, nothing counts twice."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from edged.bench.ledger import Ledger, numbers
from edged.bench.tally import POINTS, Tally
from edged.clock import NS_PER_MS, NS_PER_S, now_ns

PATIENCE_NS = 50 * NS_PER_MS


class Book:
    """A ledger whose tally counts from the start. ends: how many requests ended."""

    def __init__(self, seconds: float = 10.0) -> None:
        self.tally, self.ends = Tally(seconds), 0
        self.tally.begin(0)
        self.ledger = Ledger(self.tally, PATIENCE_NS, numbers(), self._end)

    def _end(self) -> None:
        self.ends += 1


def test_an_answer_counts_once_and_from_the_time_it_was_due() -> None:
    """Latency is from when the schedule meant it to be sent; the second answer is a double, a stranger's is foreign."""
    book, due = Book(), now_ns() - 30 * NS_PER_MS
    number = book.ledger.ask(due)
    here = now_ns()
    book.ledger.answered(number, here, "")
    book.ledger.answered(number, here, "")
    book.ledger.answered(number + 1, here, "")
    book.ledger.answered(0, here, "")
    counts = book.tally.counts
    assert (counts.asked, counts.ok, counts.doubled, counts.foreign, counts.late) == (1, 1, 1, 2, 0)
    assert book.tally.latency.max_ns == here - due
    assert 30 * NS_PER_MS <= book.tally.lateness.max_ns <= here - due
    assert (book.ends, len(book.ledger)) == (1, 0)


def test_silence_is_missing_and_counts_as_long_as_was_waited() -> None:
    """Given up once; its late answer is late, one more after that is a double."""
    book, due = Book(), now_ns()
    number = book.ledger.ask(due)
    book.ledger.expire(now_ns())
    assert book.tally.counts.missing == 0
    book.ledger.expire(now_ns() + PATIENCE_NS)
    book.ledger.answered(number, now_ns(), "")
    book.ledger.answered(number, now_ns(), "")
    counts = book.tally.counts
    assert (counts.ok, counts.missing, counts.late, counts.doubled) == (0, 1, 1, 1)
    assert book.tally.latency.max_ns == pytest.approx(PATIENCE_NS, abs=20 * NS_PER_MS)
    assert book.ends == 1


def test_an_answer_after_the_patience_is_late_whoever_looks_first() -> None:
    """Also where nobody has given the request up yet, it is missing and its answer late."""
    book = Book()
    number = book.ledger.ask(now_ns())
    book.ledger.answered(number, now_ns() + 2 * PATIENCE_NS, "")
    book.ledger.expire(now_ns() + 2 * PATIENCE_NS)
    counts = book.tally.counts
    assert (counts.ok, counts.missing, counts.late) == (0, 1, 1)


def test_an_answer_to_an_earlier_run_is_late() -> None:
    """Numbers go on: what came for the run before is not taken for one of this."""
    shared, tally = numbers(), Tally(1.0)
    earlier = Ledger(tally, PATIENCE_NS, shared, lambda: None).ask(now_ns())
    Ledger(tally, PATIENCE_NS, shared, lambda: None).answered(earlier, now_ns(), "")
    assert (tally.counts.late, tally.counts.doubled) == (1, 0)


def test_what_was_not_sent_and_what_is_abandoned() -> None:
    """Both are counted, and neither waits."""
    book = Book()
    book.ledger.unsent(book.ledger.ask(now_ns()))
    book.ledger.ask(now_ns())
    book.ledger.abandon()
    counts = book.tally.counts
    assert (counts.asked, counts.unsent, counts.unfinished, len(book.ledger)) == (2, 1, 1, 0)


def test_errors_are_counted_by_code_and_are_no_latencies() -> None:
    """A refusal is quick: in the percentiles it would flatter. An expired deadline was waited for: it is in them."""
    book = Book()
    for code in ("RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"):
        book.ledger.answered(book.ledger.ask(now_ns()), now_ns(), code)
    assert dict(book.tally.counts.errors) == {"RESOURCE_EXHAUSTED": 2, "DEADLINE_EXCEEDED": 1}
    assert (book.tally.counts.ok, book.tally.latency.count) == (0, 1)


def test_the_warm_up_does_not_count() -> None:
    """What was due before the beginning is in no figure, whenever its answer comes."""
    tally = Tally(1.0)
    ledger = Ledger(tally, PATIENCE_NS, numbers(), lambda: None)
    early = ledger.ask(now_ns())
    tally.begin(now_ns())
    ledger.answered(early, now_ns(), "")
    ledger.answered(ledger.ask(now_ns()), now_ns(), "")
    assert (tally.counts.asked, tally.counts.ok, tally.latency.count, tally.lateness.count) == (1, 1, 1, 1)


def test_percentiles_are_those_of_numpy() -> None:
    """Within 1 % of the exact ones, over six decades."""
    tally = Tally(10.0)
    tally.begin(0)
    values = np.random.default_rng(3).lognormal(15, 2, 100_000).astype(np.int64) + 1000
    for value in values.tolist():
        tally.answered(0, value, "", follows=False)
    ordered = np.sort(values)
    for q, rank in ((50, 50_000), (90, 90_000), (99, 99_000), (99.9, 99_900)):
        assert tally.latency.percentile(q) == pytest.approx(ordered[rank - 1], rel=0.01)


def test_pieces_of_time_are_by_when_a_request_was_due_and_bounded() -> None:
    """Ten requests a second for an hour make at most `POINTS` pieces; the minutes at the ends are read from them."""
    tally = Tally(3600.0)
    tally.begin(0)
    for i in range(36_000):
        due = i * NS_PER_S // 10
        tally.answered(due, due + (1 if due < 1800 * NS_PER_S else 2) * NS_PER_MS, "", follows=False)
    slots = tally.slots()
    assert len(slots) <= POINTS
    assert sum(slot.latency.count for _, slot in slots) == 36_000
    assert [at for at, _ in slots[:3]] == [0.0, 6.0, 12.0]
    first, last = tally.between(0, 60), tally.between(3540, 3600)
    assert (first.count, last.count) == (600, 600)
    assert (first.max_ns, last.max_ns) == (NS_PER_MS, 2 * NS_PER_MS)


def test_many_without_an_answer_are_not_kept_for_ever() -> None:
    """A dead device for a day costs bounded memory; the latest ones are still known."""
    book = Book()
    asked = [book.ledger.ask(now_ns()) for _ in range(100_010)]
    book.ledger.expire(now_ns() + 2 * PATIENCE_NS)
    assert book.tally.counts.missing == 100_010
    for number in itertools.chain(asked[:1], asked[-1:]):
        book.ledger.answered(number, now_ns(), "")
    assert (book.tally.counts.late, book.tally.counts.doubled) == (1, 1)

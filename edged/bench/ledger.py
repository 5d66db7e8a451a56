"""Which request an answer belongs to, which have waited too long, and which answers came twice.

Numbers go on from one run to the next, so that an answer to an earlier run is known as such. `answered` runs on the
network thread, everything else on the sender's; what both touch are single operations on a dict or a set.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from edged.bench.tally import Tally
from edged.clock import now_ns

# So many requests without an answer are remembered, to tell a late answer from a doubled one.
_MEMORY = 100_000


class Entry(NamedTuple):
    """An open request: when it was meant to be sent, when it was, and whether it is not the first after a pause."""

    due_ns: int
    sent_ns: int
    follows: bool


class Ledger:
    """The open requests of one run. patience_ns: from the send until an answer is missing.

    on_end: called whenever a request ends, on either thread. numbers: shared by all runs.
    """

    def __init__(self, tally: Tally, patience_ns: int, numbers: Iterator[int], on_end: Callable[[], object]) -> None:
        self._tally, self._patience_ns, self._numbers, self._on_end = tally, patience_ns, numbers, on_end
        self._open: dict[int, Entry] = {}
        self._order: deque[tuple[int, int]] = deque()
        self._given_up: dict[int, None] = {}
        self._first = self._last = next(numbers)

    def __len__(self) -> int:
        return len(self._open)

    def ask(self, due_ns: int, *, follows: bool = False) -> int:
        """Enter a request that is about to be sent; returns its number."""
        number = self._last = next(self._numbers)
        sent_ns = now_ns()
        self._tally.asked(due_ns, sent_ns)
        self._open[number] = Entry(due_ns, sent_ns, follows)
        self._order.append((sent_ns + self._patience_ns, number))
        return number

    def unsent(self, number: int) -> None:
        """Take back a request that the transport did not take."""
        entry = self._open.pop(number, None)
        if entry is not None:
            self._tally.unsent(entry.due_ns)
            self._on_end()

    def answered(self, number: int, here_ns: int, code: str) -> None:
        """Note an answer."""
        entry = self._open.pop(number, None)
        if entry is None:
            self._tally.stray(self._kind(number))
        elif here_ns > entry.sent_ns + self._patience_ns:
            self._give_up(entry)
            self._tally.stray("late")
        else:
            self._tally.answered(entry.due_ns, here_ns, code, follows=entry.follows)
            self._on_end()

    def expire(self, now: int) -> None:
        """Give up every request that has waited long enough."""
        while self._order and self._order[0][0] < now:
            _, number = self._order.popleft()
            self._given_up[number] = None  # before it is closed: its answer may come in between
            entry = self._open.pop(number, None)
            if entry is None:
                self._given_up.pop(number, None)  # unless the same answer came once more meanwhile
                continue
            self._give_up(entry)
            if len(self._given_up) > _MEMORY:
                del self._given_up[next(iter(self._given_up))]

    def abandon(self) -> None:
        """Close every open request: the run was interrupted."""
        for number in list(self._open):
            entry = self._open.pop(number, None)
            if entry is not None:
                self._tally.unfinished(entry.due_ns)

    def _give_up(self, entry: Entry) -> None:
        self._tally.missing(entry.due_ns, entry.sent_ns + self._patience_ns, follows=entry.follows)
        self._on_end()

    def _kind(self, number: int) -> str:
        if number in self._given_up:
            self._given_up.pop(number, None)
            return "late"
        if number <= self._first:
            return "late" if number > 0 else "foreign"
        return "doubled" if number <= self._last else "foreign"


def numbers() -> Iterator[int]:
    """Return the numbers of a session's requests, from 1."""
    return itertools.count(1)

"""How long something may take that comes once in the life of a process: it is opened, it infers for the first time."""

from __future__ import annotations


class Patience:
    """How long something may take that comes once in the life of a process, in `ns`.

    `most_ns` while nothing is known; else `times` what it was known to take, and never less than `floor_ns`. Each time
    it is late it is given twice as long the next time: what was known may have come out of a cache that is gone since.
    It is never more than `most_ns`, or twice what is known where that is more.
    """

    def __init__(self, times: float, floor_ns: int, most_ns: int) -> None:
        self._times, self._floor_ns, self._most_ns = times, floor_ns, most_ns
        self._known_ns = self._late = 0

    @property
    def ns(self) -> int:
        """What it may take."""
        if not self._known_ns:
            return self._most_ns
        most_ns = max(self._most_ns, 2 * self._known_ns)
        return min(most_ns, max(self._floor_ns, int(self._times * self._known_ns)) << min(self._late, 32))

    def took(self, ns: int) -> None:
        """Take note of one that was done: the slowest counts."""
        self._known_ns, self._late = max(self._known_ns, ns), 0

    def late(self) -> None:
        """Take note of one that was not."""
        self._late += 1

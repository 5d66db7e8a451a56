"""When Python looks for cycles of objects: between requests, never because one of them made an object too many.

Reference counts free nearly everything at once; only cycles wait for the collector, and an ordinary one runs in
whichever thread happens to make the object that is one too many, while it holds up all others. So once the models are
ready everything that is there is collected and set aside (it will not be looked at again), the collector's own
schedule is turned off, and the main thread looks after it: as soon as it finds nothing in flight, or, where requests
never leave a gap, when many objects have come together. Memory is bounded either way: what can be forgotten is looked
for by generation, as the interpreter's schedule does it, with wider limits. What was set aside is looked at again (some
15 ms) only where memory has grown.

The interpreter's lock is handed over sooner from then on, too. A thread that waits for it asks for it only after the
switch interval, 5 ms by default; so long would a finished inference wait for the main thread, which takes some
milliseconds for a report.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence

# New objects, then collections of the generation before, after which a generation is due: between requests, and beside
# them. Python's own are 700, 10, 10.
IDLE = (500, 5, 5)
BUSY = (10_000, 20, 20)
SWITCH_S = 0.0005
PATIENCE = 20  # turns that `resettle` waits for a gap


class Collection:
    """The schedule of one process, the interpreter's own until it is settled first.

    busy: whether a request is in flight. grown: whether there is enough memory to give back. settled: called after
    everything was collected; the time to give it back. One thread calls all but `resettle`.
    """

    def __init__(self, busy: Callable[[], bool], grown: Callable[[], bool], settled: Callable[[], None]) -> None:
        self._busy, self._grown, self._settled = busy, grown, settled
        self._held = False
        self._switch_s = 0.0  # what it was before
        self._waits = 0  # turns left before it is settled again, busy or not; 0 when nothing asks for it

    def settle(self) -> None:
        """Collect everything and set what is left aside, at once; that takes some milliseconds."""
        self._waits = 0
        if self._held:
            gc.unfreeze()
        else:
            self._held, self._switch_s = True, sys.getswitchinterval()
            gc.disable()
            sys.setswitchinterval(SWITCH_S)
        gc.collect()
        gc.freeze()
        self._settled()

    def resettle(self) -> None:
        """Have it settled in the next gap between requests: all is ready, or another model serves."""
        self._waits = PATIENCE

    def turn(self) -> None:
        """Collect if it is time to; to be called now and then."""
        busy = self._busy()
        if self._waits == 1 or (self._waits and not busy):
            self._settle_again()
        elif self._waits:
            self._waits -= 1
        if not self._held:
            return
        generation = due(gc.get_count(), BUSY if busy else IDLE)
        if generation is not None:
            gc.collect(generation)

    def _settle_again(self) -> None:
        """Settle it, or where memory has not grown set aside what came since (a millisecond)."""
        if not self._held or self._grown():
            self.settle()
            return
        self._waits = 0
        gc.collect()
        gc.freeze()

    def release(self) -> None:
        """Give the schedule back to the interpreter."""
        if self._held:
            self._held = False
            gc.unfreeze()
            gc.enable()
            sys.setswitchinterval(self._switch_s)


def due(counts: Sequence[int], limits: Sequence[int]) -> int | None:
    """Return the oldest generation whose count is above its limit; None when none is."""
    found = (age for age in reversed(range(len(limits))) if counts[age] > limits[age])
    return next(found, None)

"""When Python looks for cycles of objects: between requests, never because one of them made an object too many.

Reference counts free nearly everything at once; only cycles wait for the collector, and an ordinary one runs in
whichever thread happens to make the object that is one too many, while it holds up all others. So once the models are
ready everything that is there is collected and set aside (it will not be looked at again), the collector's own
schedule is turned off, and the main thread looks after it: as soon as it finds nothing in flight, or, where requests
never leave a gap, when many objects have come together.

Each object is looked at once, soon after it was made: what outlives that is set aside too. The interpreter's own
schedule comes back to it, and that takes the longer the more there is: 20 ms for the replies that a daemon remembers,
in which no other thread gets the interpreter's lock. What became garbage only after it was set aside is looked for
(some 15 ms, in a gap) where memory has grown by `LEAK`.

The interpreter's lock is handed over sooner from then on, too. A thread that waits for it asks for it only after the
switch interval, 5 ms by default; so long would a finished inference wait for the main thread, which takes some
milliseconds for a report.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

from edged.memory import SLACK

# New objects after which they are looked at: between requests, and beside them.
IDLE, BUSY = 500, 10_000
LEAK = 32 << 20  # bytes: more than the memory of replies takes by default
SWITCH_S = 0.0005
PATIENCE = 20  # turns that `resettle` waits for a gap


class Collection:
    """The schedule of one process, the interpreter's own until it is settled first.

    busy: whether a request is in flight. grown: by how many bytes the process has grown since `settled`, which is
    called after everything was collected; the time to give memory back. One thread calls all but `resettle`.
    """

    def __init__(self, busy: Callable[[], bool], grown: Callable[[], int], settled: Callable[[], None]) -> None:
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

    @property
    def waiting(self) -> bool:
        """Whether it waits for a gap."""
        return self._waits > 0

    def turn(self) -> None:
        """Collect if it is time to; to be called now and then."""
        busy = self._busy()
        if self._waits == 1 or (self._waits and not busy):
            self._settle_again()
        elif self._waits:
            self._waits -= 1
        if not self._held:
            return
        if gc.get_count()[0] > (BUSY if busy else IDLE):
            gc.collect(0)
            gc.freeze()
            if not self._waits and self._grown() > LEAK:
                self.resettle()

    def _settle_again(self) -> None:
        """Settle it, or where memory has not grown set aside what came since (a millisecond)."""
        if not self._held or self._grown() > SLACK:
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

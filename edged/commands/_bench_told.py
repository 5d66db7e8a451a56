"""How far `edged bench` is, on a terminal."""

from __future__ import annotations

import threading

from edged.bench.plan import Case
from edged.bench.tally import Tally
from edged.clock import NS_PER_S, now_ns
from edged.commands.progress import Progress

_EVERY_S = 0.5


class Ticker:
    """Redraws the line of the case that runs, on a thread of its own, where there is a line that moves.

    cases: how many there will be, 0 where that is not known.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._done, self._number = threading.Event(), 0
        self._now: tuple[Case, Tally, int] | None = None
        self._thread = threading.Thread(target=self._run, name="edged-bench-tick", daemon=True)
        self.cases = 0

    def start(self) -> None:
        """Begin, where anybody sees it."""
        if self._progress.live:
            self._progress.show("waiting for the device")
            self._thread.start()

    def watch(self, case: Case, tally: Tally) -> None:
        """Tell of this case from now on."""
        self._number += 1
        self._now = (case, tally, now_ns())

    def done(self) -> None:
        """End, and clear the line."""
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()
        self._progress.done()

    def _run(self) -> None:
        while not self._done.wait(_EVERY_S):
            if self._now is not None:
                self._progress.show(self._line(*self._now))

    def _line(self, case: Case, tally: Tally, since_ns: int) -> str:
        counts = tally.counts
        place = f"[{self._number}/{self.cases}] " if self.cases > 1 else f"[{self._number}] " if not self.cases else ""
        # A case that is over waits for its last answers and the device's metrics.
        passed_s = (now_ns() - (tally.begin_ns if tally.begun else since_ns)) / NS_PER_S
        when = f"{min(passed_s, case.span.seconds):.0f}/{case.span.seconds:.0f} s" if tally.begun else "warm-up"
        failed = sum(counts.errors.values())
        lost = f", {counts.missing + counts.unsent} missing" if counts.missing or counts.unsent else ""
        return f"{place}{case.label}: {when}, {counts.ok:,} ok, {failed:,} errors{lost}"

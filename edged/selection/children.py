"""Runs one measurement after the other, each in a child process that may crash, hang or be killed."""

from __future__ import annotations

import logging
import signal
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from delegates.select import Measured
from edged import childprocess

if TYPE_CHECKING:
    from edged.engines.measure import Job

log = logging.getLogger(__name__)

# Memory that was short a moment ago may be there now; a model that needs too much is refused after the last pause.
PAUSES_S = (0.5, 2.0)
# The child ends what hangs by itself, and can then tell what it knows; this is for a child that hangs as a whole.
GRACE_S = 5.0


class _Guard:
    """The watch over a child's time, and over whether its answer is still wanted."""

    def __init__(self, seconds: float, stopped: threading.Event) -> None:
        self._stopped, self._patience, self.broken = stopped, childprocess.Patience(seconds), ""

    def tick(self) -> bool:
        over = self._patience.tick()
        self.broken = "was stopped" if self._stopped.is_set() else self._patience.broken
        return over or self._stopped.is_set()


class Measurer:
    """Starts the children. `stop` may be called on any thread, the rest belongs to one at a time."""

    def __init__(self) -> None:
        self.stopped = threading.Event()

    def stop(self) -> None:
        """End the child that runs now, if one does, and start no other."""
        self.stopped.set()

    def measure(self, job: Job, row: Measured) -> Measured:
        """Measure, and again after each pause while it is SIGKILL that ends the child: that is no verdict.

        row: what is told of the candidate where the child cannot.
        """
        pauses = iter(PAUSES_S)
        while not self.stopped.is_set():
            try:
                return self._ask(job)
            except childprocess.NoAnswerError as exc:
                pause_s = next(pauses, None) if exc.code == -signal.SIGKILL else None
                if pause_s is None or self.stopped.wait(pause_s):
                    return self._without_answer(row, exc)
                log.warning("the process that loaded %s %s; trying again", row.label, exc)
        return self._without_answer(row, None)

    def _without_answer(self, row: Measured, error: childprocess.NoAnswerError | None) -> Measured:
        if error is None or self.stopped.is_set():
            return replace(row, verdict="failed", reason="the process that loaded it was stopped")
        return replace(
            row,
            verdict="failed",
            reason=f"the process that loaded it {error}",
            crashed=childprocess.crashed(error.code),
            hung=error.code is None,
        )

    def _ask(self, job: Job) -> Measured:
        with childprocess.start_answering("edged.engines.measure", given=job.dump()) as child:
            guard = _Guard(job.seconds + GRACE_S, self.stopped)
            return Measured(**childprocess.guarded_answer(child, guard))

"""All that one command runs, and what it came to."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edged.bench import document, host, probe
from edged.bench.document import Doc
from edged.bench.knee import Search
from edged.bench.plan import Case, ClosedLoad, at_rate
from edged.bench.process import exists
from edged.bench.target import Target
from edged.bench.trial import Trials, Watch
from edged.clock import NS_PER_S, now_ns, wall_s

# In flight while the saturation is looked for.
_SATURATING = 16
# The first metrics of a device come within its interval, 10 s where nothing else is configured.
_FIRST_METRICS_S = 12.0
_POLL_S = 0.05


@dataclass
class Session:
    """One target and everything that is run against it. A signal handler may set `stop`."""

    target: Target
    numbers: Iterator[int]
    stop: threading.Event
    watch: Watch
    pid: int | None = None

    def __post_init__(self) -> None:
        self._trials = Trials(self.target, self.numbers, self.stop, self.pid, self.watch)

    def await_state(self, models: Sequence[str], timeout_s: float) -> None:
        """Wait until the target has told of these models, or the time is over."""
        until = now_ns() + int(timeout_s * NS_PER_S)
        while not all(map(self.target.model, models)) and now_ns() < until and not self.stop.is_set():
            time.sleep(_POLL_S)

    def prepare(self, cases: Sequence[Case], timeout_s: float) -> None:
        """Ask each question once. Raises UnavailableError, BadDataError."""
        if self.pid is not None:
            exists(self.pid)
        for question in dict.fromkeys(case.question for case in cases):
            probe.ready(self.target, question, self.numbers, timeout_s, self.stop)
        self._await_metrics()

    def runs(self, cases: Sequence[Case]) -> list[Doc]:
        """Run every case, until it is interrupted."""
        return [self._trials.run(case) for case in cases if not self.stop.is_set()]

    def knee(self, case: Case, p99_ms: float) -> tuple[list[Doc], dict[str, Any]]:
        """Look for the knee of a case's question; returns every trial by rate, and what was found."""
        closed = replace(case, load=ClosedLoad(_SATURATING))
        saturated = self._trials.run(closed, figures=False)
        search = Search(lambda rate: self._trial(at_rate(case, rate)), p99_ms)
        found = search.find(saturated["ok_per_s"])
        return [*sorted(search.runs, key=lambda run: run["load"]["rate"]), saturated], found

    def _trial(self, case: Case) -> Doc | None:
        if self.stop.is_set():
            return None
        run = self._trials.run(case, figures=False)
        return None if run["interrupted"] else run

    def _await_metrics(self) -> None:
        """Wait until a device that tells its state has published its figures anew, now that nothing is open.

        The stages are told by the difference to these.
        """
        since = now_ns()
        until = since + int(_FIRST_METRICS_S * NS_PER_S)
        while "state" in self.target.facts() and now_ns() < until and not self.stop.wait(_POLL_S):
            told = self.target.told()
            if told is not None and told.received_ns > since:
                return


def result(session: Session, words: Sequence[str], runs: Sequence[Doc], knee: dict[str, Any] | None = None) -> Doc:
    """Return the whole document. words: the command line after its first word."""
    return {
        "format": document.FORMAT,
        "tool": "edged bench",
        "ts": wall_s(),
        "command": host.command(["edged", *words]),
        "host": host.facts(),
        "target": dict(session.target.facts()),
        "pid": session.pid,
        "interrupted": session.stop.is_set(),
        "knee": knee,
        "runs": list(runs),
    }

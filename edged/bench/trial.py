"""One case from the first request to its figures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from edged.bench import document, metrics
from edged.bench.document import Doc
from edged.bench.generator import Generator
from edged.bench.ledger import Ledger
from edged.bench.metrics import Told
from edged.bench.plan import Case
from edged.bench.process import Sampler
from edged.bench.tally import Tally
from edged.bench.target import Target
from edged.clock import NS_PER_MS, NS_PER_S, now_ns

# At its deadline a request is answered that this is over, and that answer has to travel: only then it is missing.
GRACE_MS = 500
# Beyond the device's own interval.
_METRICS_LATE_S = 2.0
_POLL_S = 0.02
_ONE_STATE = "the model keeps state: all requests, the warm-up too, went on with the one state of this user, in turn"

# Told while a case runs: what it is, its counts so far.
Watch = Callable[[Case, Tally], None]


@dataclass(frozen=True)
class Trials:
    """Runs cases against one target. pid: of the device's process on this machine. stop: set to end early."""

    target: Target
    numbers: Iterator[int]
    stop: threading.Event
    pid: int | None
    watch: Watch

    def run(self, case: Case, *, figures: bool = True) -> Doc:
        """Run one case; returns its document. figures False leaves out what the device counts itself."""
        tally = Tally(case.span.seconds)
        generator = Generator(self.target, case, tally, self.stop)
        patience_ns = (case.question.deadline_ms + GRACE_MS) * NS_PER_MS
        ledger = Ledger(tally, patience_ns, self.numbers, generator.ended)
        sampler = Sampler(self.target, self.pid, case.span.seconds)
        before = self.target.told()
        self.target.listen(ledger.answered)
        self.watch(case, tally)
        sampler.start()
        try:
            generator.run(ledger)
        finally:
            sampler.stop()
        seconds = max(0.0, (generator.stopped_ns - tally.begin_ns) / NS_PER_S) if tally.begun else 0.0
        found = document.of_case(case, tally, seconds, interrupted=self.stop.is_set())
        if self.target.model(case.question.model).get("keyed"):
            found["notes"].append(_ONE_STATE)
        if figures:
            counted = metrics.difference(before, self._next_metrics(before), case.question.model)
            found["stages"] = document.stages(counted, tally.latency, generator.sent)
        return found | {"process": document.drift(sampler.samples)}

    def _next_metrics(self, before: Told | None) -> Told | None:
        """Wait for metrics that were published after the last answer; those of before where there will be none."""
        if before is None:
            return None
        since = now_ns()
        until = since + int((before.interval_s + _METRICS_LATE_S) * NS_PER_S)
        while not self.stop.is_set() and now_ns() < until:
            told = self.target.told()
            if told is not None and told.received_ns > since:
                return told
            time.sleep(_POLL_S)
        return self.target.told()

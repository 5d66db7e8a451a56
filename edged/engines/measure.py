"""One candidate, opened as it would be served, checked and timed in a process of its own.

`python -m edged.engines.measure JOB` (JOB: `dump` of a `Job`) prints one JSON line, the fields of a `Measured`. A file
or a library that kills the process that loads it costs one child here. The parent is `edged.selection`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from delegates.select import Measured
from edged import bundle, childprocess
from edged.affinity import ThreadPolicy
from edged.bundle import Bundle
from edged.clock import NS_PER_MS, NS_PER_S, now_ns
from edged.engines import agreement, golden, opening
from edged.engines.agreement import Compared, Worst
from edged.engines.base import Array, Engine, EngineLostError
from edged.engines.candidate import Candidate
from edged.engines.randominputs import RandomInputs
from edged.errors import EdgedError
from edged.golden import Golden
from edged.shown import one_line

# Of the figures, of the warm-up before them, and of the random inputs: how many inferences, and about how long.
MIN_TIMED, MAX_TIMED, TIMED_S = 3, 1000, 1.0
MAX_WARM, WARM_S = 10, 0.25
MIN_DRAWN, MAX_DRAWN, DRAWN_S = 2, 16, 2.0
# What the runtimes put behind the words of a delegate that refuses a model.
_ADDED = "Restored original execution plan after delegate application failure."
# What a runtime, a library or a bundle raises when it refuses.
REFUSALS = (EdgedError, RuntimeError, ValueError, OSError, MemoryError, SystemError)


@dataclass(frozen=True)
class Job:
    """What to measure. bundle: path, model_sha256: of what must lie there. cache: of the delegate, if it keeps one.

    seconds: for everything; what hangs is ended before.
    """

    bundle: Path
    model_sha256: str
    candidate: Candidate
    policy: ThreadPolicy = field(default_factory=ThreadPolicy)
    cache: Path | None = None
    seconds: float = 120.0

    def dump(self) -> str:
        """Return it as text for a command line."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def load(cls, text: str) -> Job:
        """Read what `dump` made."""
        given = json.loads(text)
        policy = ThreadPolicy(tuple(given["policy"]["cpus"]), given["policy"]["realtime"])
        cache = Path(given["cache"]) if given["cache"] else None
        candidate = Candidate(**given["candidate"])
        return cls(Path(given["bundle"]), given["model_sha256"], candidate, policy, cache, given["seconds"])


def measure(job: Job) -> Measured:
    """Open, check, time. What the candidate cannot do is told by the row's verdict and reason, never raised."""
    gauge = _Gauge(job)
    try:
        return gauge.run()
    except EngineLostError as exc:
        return dataclasses.replace(gauge.row, verdict="failed", reason=str(exc), crashed=_crashed(exc), hung=_hung(exc))
    except REFUSALS as exc:
        return dataclasses.replace(gauge.row, verdict="failed", reason=_why(exc, gauge.row.delegate))


class _Gauge:
    """Fills `row` in, step by step, so that a failure leaves what was found before it."""

    def __init__(self, job: Job) -> None:
        one = job.candidate
        self.row = Measured(one.label, one.runtime, one.create().name, one.threads, one.options)
        self._job, self._end_ns = job, now_ns() + int(job.seconds * NS_PER_S)
        self._cpu = not one.create().isolated

    def run(self) -> Measured:
        loaded = bundle.read(self._job.bundle)
        if loaded.model_sha256 != self._job.model_sha256:
            return dataclasses.replace(self.row, verdict="failed", reason="the bundle changed while it was measured")
        engine = self._open(loaded)
        try:
            self._first(engine)
            return self._judge(engine, loaded)
        finally:
            engine.close()

    def _open(self, loaded: Bundle) -> Engine:
        job, started = self._job, now_ns()
        engine = opening.open_as_served(
            loaded, job.candidate, job.policy, cache=job.cache, timeout_s=self._left_ns() / NS_PER_S
        )
        self._note(open_ms=_ms(started), mapping=engine.info.mapping)
        self._note(nodes_taken=engine.info.nodes_delegated, nodes_total=engine.info.nodes_total)
        return engine

    def _first(self, engine: Engine) -> None:
        if hasattr(engine, "limit_ns"):
            engine.limit_ns = self._left_ns()
        started = now_ns()
        engine.invoke()
        self._note(first_ms=_ms(started))

    def _judge(self, engine: Engine, loaded: Bundle) -> Measured:
        if engine.info.nodes_delegated == 0 and not self._cpu:
            total = f"{engine.info.nodes_total} " if engine.info.nodes_total else ""
            reason = f"takes none of the model's {total}ops, so it would be the CPU by another name"
            return dataclasses.replace(self.row, verdict="refused", reason=reason)
        samples = loaded.golden()
        if samples is not None and not self._agrees(_on_golden(engine, loaded, samples)):
            return self.row
        self._time(engine)
        if not self._cpu:
            found = _on_random(engine, loaded, samples, self._job.candidate.runtime)
            if found is None and samples is None:
                reason = "there are no golden samples, and the CPU cannot run the model: nothing to compare with"
                return dataclasses.replace(self.row, verdict="refused", reason=reason)
            if found is not None and not self._agrees(found):
                return self.row
        return dataclasses.replace(self.row, verdict="agrees")

    def _agrees(self, found: Worst) -> bool:
        """Note it if it is the worst so far; a refusal is noted in any case."""
        if found.ratio > 1:
            shown = found.ratio if np.isfinite(found.ratio) else None
            self._note(verdict="refused", reason=found.text, worst=shown, worst_what=found.text)
            return False
        if self.row.worst is None or found.ratio > self.row.worst:
            self._note(worst=found.ratio, worst_what=found.text)
        return True

    def _time(self, engine: Engine) -> None:
        taken = timed(engine)
        p50, p99 = np.percentile(taken, [50, 99]) / 1000
        self._note(p50_us=round(float(p50), 2), p99_us=round(float(p99), 2), samples=len(taken))
        self._note(rss_bytes=resident(getattr(engine, "pid", os.getpid())))

    def _note(self, **found: Any) -> None:
        self.row = dataclasses.replace(self.row, **found)

    def _left_ns(self) -> int:
        return max(1, self._end_ns - now_ns())


def timed(engine: Engine) -> list[int]:
    """Return the ns of 3 to 1000 inferences, for about a second, after a warm-up of ten or a quarter of a second."""
    for _ in _bounded(1, MAX_WARM, WARM_S):
        engine.invoke()
    taken: list[int] = []
    for _ in _bounded(MIN_TIMED, MAX_TIMED, TIMED_S):
        started = now_ns()
        engine.invoke()
        taken.append(now_ns() - started)
    return taken


def _bounded(least: int, most: int, seconds: float) -> Any:
    """Yield 0, 1, … `least` numbers in any case, then further ones up to `most` while there is time."""
    end_ns = now_ns() + int(seconds * NS_PER_S)
    for number in range(most):
        if number >= least and now_ns() >= end_ns:
            return
        yield number


def _on_golden(engine: Engine, loaded: Bundle, samples: Golden) -> Worst:
    found = max(golden.differences(engine, loaded, samples), key=lambda d: agreement.ratio(d.error, d.tolerance))
    return Worst(agreement.ratio(found.error, found.tolerance), str(found))


def _on_random(engine: Engine, loaded: Bundle, samples: Golden | None, runtime: str) -> Worst | None:
    """Compare with the runtime's own kernels on the CPU; None where these cannot run the model."""
    try:
        reference = opening.open_here(loaded, Candidate.of(runtime, "cpu", {"xnnpack": False}))
    except REFUSALS:
        return None
    default = opening.open_here(loaded, Candidate(runtime))
    tolerances = {} if samples is None else samples.tolerance
    compared = [Compared(spec, tolerances.get(spec.name, 0.0)) for spec in loaded.manifest.outputs]
    inputs = RandomInputs(loaded, samples)
    for number in _bounded(MIN_DRAWN, MAX_DRAWN, DRAWN_S):
        answers = [_answers(one, inputs.draw(number)) for one in (engine, reference, default)]
        for one, mine, wanted, usual in zip(compared, *answers, strict=True):
            one.add(mine, wanted, usual)
    return agreement.worst(compared)


def _answers(engine: Engine, inputs: Sequence[Array]) -> list[Array]:
    for array, drawn in zip(engine.inputs, inputs, strict=True):
        np.copyto(array, drawn)
    engine.invoke()
    return [output.copy() for output in engine.outputs]


def resident(pid: int) -> int | None:
    """Return the resident bytes of a process, shared pages included; None where the system does not tell."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def _why(error: BaseException, name: str) -> str:
    """Return an error's text in one line, without what a row tells anyway and what a runtime adds to every refusal."""
    text = one_line(error).removeprefix(f"{name}: ")
    return text.replace(_ADDED, "").strip() or text


def _crashed(error: EngineLostError) -> bool:
    """Whether its own doing ended the process. SIGKILL was somebody else's: ours, for a hang, or for want of memory."""
    text = str(error)
    return text.startswith(("was killed by SIG", "ended with")) and "SIGKILL" not in text


def _hung(error: EngineLostError) -> bool:
    """Whether it was ended because it was late."""
    return str(error).startswith(("gave no answer within", "did not open within"))


def _ms(started_ns: int) -> float:
    return round((now_ns() - started_ns) / NS_PER_MS, 2)


def main(argv: Sequence[str]) -> int:
    """Measure one job; the row goes to standard output, also when the model, the library or the runtime refuses."""
    childprocess.die_with_parent()
    job = Job.load(argv[0])
    job.policy.apply()
    sys.stdout.write("\n" + json.dumps(asdict(measure(job))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

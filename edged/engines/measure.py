"""One candidate, opened as it would be served, checked and timed in a process of its own.

`python -m edged.engines.measure` reads a `Job` as `dump` made it, and prints one JSON line, the fields of a `Measured`.
A file or a library that kills the process that loads it costs one child here. The parent is `edged.selection`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
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
from edged.engines.tflite_words import told
from edged.golden import Golden
from edged.memory import resident

# Of the figures, of the warm-up before them, and of the random inputs: how many inferences, and about how long.
MIN_TIMED, MAX_TIMED, TIMED_S = 3, 1000, 1.0
MAX_WARM, WARM_S = 10, 0.25
MIN_DRAWN, MAX_DRAWN, DRAWN_S = 2, 16, 2.0


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
    seconds: float = opening.PATIENCE_S

    def dump(self) -> str:
        """Return it as text; of any length, as the options may be."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def load(cls, text: str) -> Job:
        """Read what `dump` made."""
        given = json.loads(text)
        policy = ThreadPolicy.of(given["policy"])
        cache = Path(given["cache"]) if given["cache"] else None
        candidate = Candidate(**given["candidate"])
        return cls(Path(given["bundle"]), given["model_sha256"], candidate, policy, cache, given["seconds"])


def measure(job: Job) -> Measured:
    """Open, check, time. What the candidate cannot do is told by the row's verdict and reason, never raised."""
    gauge = _Gauge(job)
    try:
        return gauge.run()
    except EngineLostError as exc:
        # No matter which status: code that is loaded has no business to end the process.
        crashed = childprocess.own_doing(exc.code)
        return dataclasses.replace(gauge.row, verdict="failed", reason=str(exc), crashed=crashed, hung=exc.hung)
    except opening.REFUSALS as exc:
        return dataclasses.replace(gauge.row, verdict="failed", reason=told(exc))


class _Gauge:
    """Fills `row` in, step by step, so that a failure leaves what was found before it."""

    def __init__(self, job: Job) -> None:
        self.row = job.candidate.unmeasured()
        self._job, self._end_ns = job, now_ns() + int(job.seconds * NS_PER_S)
        self._cpu = not job.candidate.create().isolated

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
        if not self._cpu and (reason := opening.takes_none(engine.info)):
            return dataclasses.replace(self.row, verdict="refused", reason=reason)
        samples = loaded.golden()
        compared = _compared(loaded, samples)
        if samples is not None:
            with self._unused(engine, loaded) as unused:
                which = self._fitting(samples, in_order=loaded.manifest.stateful)
                known = _on_golden(unused, loaded, samples, compared, which)
            if not self._agrees(known):
                return self.row
        self._time(engine)
        if not self._cpu:
            within_s, runtime = self._share_s(DRAWN_S), self._job.candidate.runtime
            found = _on_random(engine, loaded, samples, runtime, compared, within_s)
            if found is None and samples is None:
                reason = "there are no golden samples, and the CPU cannot run the model: nothing to compare with"
                return dataclasses.replace(self.row, verdict="refused", reason=reason)
            if found is not None and not self._agrees(found):
                return self.row
        return dataclasses.replace(self.row, verdict="agrees")

    @contextlib.contextmanager
    def _unused(self, engine: Engine, loaded: Bundle) -> Iterator[Engine]:
        """Hand out the engine; of a model that keeps state another one, as the samples begin with its first state."""
        if not loaded.manifest.stateful:
            yield engine
            return
        job = self._job
        with contextlib.closing(opening.open_as_served(loaded, job.candidate, job.policy)) as unused:
            yield unused

    def _fitting(self, samples: Golden, *, in_order: bool) -> Iterator[int]:
        """Yield the samples for which there is time, one in any case, spread over all of them; count them.

        in_order: the first ones, one after the other.
        """
        end_ns = now_ns() + self._left_ns() // 2
        order = range(samples.samples) if in_order else golden.spread(samples.samples)
        for count, sample in enumerate(order, 1):
            yield sample
            self._note(checked=count)
            if now_ns() >= end_ns:
                return

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
        taken = timed(engine, self._share_s(WARM_S), self._share_s(TIMED_S))
        p50, p99 = np.percentile(taken, [50, 99]) / 1000
        self._note(p50_us=round(float(p50), 2), p99_us=round(float(p99), 2), samples=len(taken))
        self._note(rss_bytes=resident(getattr(engine, "pid", os.getpid())))

    def _note(self, **found: Any) -> None:
        self.row = dataclasses.replace(self.row, **found)

    def _left_ns(self) -> int:
        return max(1, self._end_ns - now_ns())

    def _share_s(self, most_s: float) -> float:
        """Return how long one step may take, so that something is left for the next."""
        return min(most_s, self._left_ns() / 2 / NS_PER_S)


def timed(engine: Engine, warm_s: float = WARM_S, timed_s: float = TIMED_S) -> list[int]:
    """Return the ns of 3 to 1000 inferences, for about a second, after a warm-up of ten or a quarter of a second."""
    for _ in _bounded(1, MAX_WARM, warm_s):
        engine.invoke()
    taken: list[int] = []
    for _ in _bounded(MIN_TIMED, MAX_TIMED, timed_s):
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


def _compared(loaded: Bundle, samples: Golden | None) -> list[Compared]:
    tolerances = {} if samples is None else samples.tolerance
    return [Compared(spec, tolerances.get(spec.name, 0.0)) for spec in loaded.manifest.outputs]


def _on_golden(
    engine: Engine, loaded: Bundle, samples: Golden, compared: Sequence[Compared], which: Iterable[int]
) -> Worst:
    """Judge by the bundle's tolerances; `compared` takes the answers too, and judges their columns in the end."""
    outputs = {spec.name: place for place, spec in enumerate(loaded.manifest.outputs)}
    worst = Worst(0.0, "")
    for found in golden.differences(engine, loaded, samples, which):
        place = outputs[found.output]
        compared[place].add_known(engine.outputs[place], samples.reference[found.output][found.sample])
        ratio = agreement.ratio(found.error, found.tolerance)
        if not worst.text or ratio > worst.ratio:
            worst = Worst(ratio, str(found))
    return worst


def _on_random(
    engine: Engine, loaded: Bundle, samples: Golden | None, runtime: str, compared: Sequence[Compared],
    within_s: float = DRAWN_S,
) -> Worst | None:  # fmt: skip
    """Compare with the runtime's own kernels on the CPU, and with what `compared` took before; None for nothing at all.

    Raises what `engine` does; nothing that the CPU's kernels raise, for that is not the delegate's doing: these may be
    unable to run the model, or refuse an input.
    """
    inputs, count = RandomInputs(loaded, samples), 0
    with ExitStack() as stack:
        reference = _on_cpu(loaded, Candidate.of(runtime, "cpu", {"xnnpack": False}), stack)
        default = _on_cpu(loaded, Candidate(runtime), stack)
        for number in _bounded(MIN_DRAWN, MAX_DRAWN, within_s):
            drawn = inputs.draw(number)
            wanted = reference(drawn)
            if wanted is None:  # nobody can tell what would be right
                continue
            answers, usual = _answers(engine, drawn), default(drawn)
            for place, one in enumerate(compared):
                one.add(answers[place], wanted[place], None if usual is None else usual[place])
            count += 1
    return agreement.worst(compared) if count or samples is not None else None


def _on_cpu(loaded: Bundle, candidate: Candidate, stack: ExitStack) -> Callable[[Sequence[Array]], list[Array] | None]:
    """Return what answers on the CPU, with None what it refuses; all where it does not open. stack: closes it."""
    try:
        engine = opening.open_here(loaded, candidate)
    except opening.REFUSALS:
        return lambda _: None
    stack.callback(engine.close)

    def answer(inputs: Sequence[Array]) -> list[Array] | None:
        try:
            return _answers(engine, inputs)
        except opening.REFUSALS:
            return None

    return answer


def _answers(engine: Engine, inputs: Sequence[Array]) -> list[Array]:
    for array, drawn in zip(engine.inputs, inputs, strict=True):
        np.copyto(array, drawn)
    engine.invoke()
    return [output.copy() for output in engine.outputs]


def _ms(started_ns: int) -> float:
    return round((now_ns() - started_ns) / NS_PER_MS, 2)


def main() -> int:
    """Measure one job; the row goes to standard output, also when the model, the library or the runtime refuses."""
    childprocess.die_with_parent()
    job = Job.load(sys.stdin.read())
    job.policy.apply()
    sys.stdout.write("\n" + json.dumps(asdict(measure(job))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

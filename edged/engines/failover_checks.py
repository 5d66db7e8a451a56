"""What a delegate is judged by while it serves: the time it may take, finite numbers, and its golden samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edged.bundle import Bundle, TensorSpec
from edged.clock import NS_PER_MS, NS_PER_S, now_ns
from edged.engines.base import Array, Engine, EngineLostError, GuardedEngine
from edged.engines.failover_samples import DrawnSamples, GoldenSamples
from edged.engines.patience import Patience
from edged.latency import FEW, Histogram

# The first inference of a process that was just opened may compile, load and allocate: where nothing is known of it.
FIRST_NS = 60 * NS_PER_S
# And the least that it is given where something is known.
FIRST_FLOOR_NS = NS_PER_S
# Until there are enough inferences for a percentile, where none was measured.
FEW_FLOORS = 4
# How often the limit is looked at again: each time there are twice as many inferences, in the end after so many.
_OFTEN = 10_000


class HangLimit:
    """How long an inference may take before it counts as a hang, in `ns`.

    `factor` times the P99 of its own inferences, and never less than `floor_ms`. Before there are FEW of them it is
    `factor` times the slowest one seen, or times `p99_us` as measured before; and where none was measured, never less
    than FEW_FLOORS floors.
    first: of the first inference of a process. It is `factor` times the slowest first one that is known, `first_ms` as
    measured before among them, or times `p99_us`, and never less than FIRST_FLOOR_NS and FEW_FLOORS floors; FIRST_NS
    while none is known. `ns` is the same before there is any inference, where `p99_us` says nothing either.
    """

    def __init__(
        self, factor: float, floor_ms: int, p99_us: float | None = None, first_ms: float | None = None
    ) -> None:  # fmt: skip
        self._factor, self._floor_ns = factor, floor_ms * NS_PER_MS
        self._measured_ns = int((p99_us or 0) * 1000)
        self.first = Patience(factor, max(FIRST_FLOOR_NS, FEW_FLOORS * self._floor_ns), FIRST_NS)
        if first_ms is not None:
            self.first.took(max(self._measured_ns, int(first_ms * NS_PER_MS)))
        self._seen = Histogram()
        self._count, self._next = 0, FEW
        self.ns = self.first.ns if p99_us is None else self._by_few()

    def record(self, ns: int) -> None:
        """Take the duration of an inference."""
        self._seen.record(ns)
        self._count += 1
        if self._count >= self._next:
            self._next = min(2 * self._count, self._count + _OFTEN)
            self.ns = max(self._floor_ns, int(self._factor * (self._seen.percentile(99) or 0)))
        elif self._count < FEW:
            self.ns = self._by_few()

    def _by_few(self) -> int:
        slowest_ns = max(self._measured_ns, self._seen.max_ns)
        floors = 1 if self._measured_ns else FEW_FLOORS
        return max(floors * self._floor_ns, int(self._factor * slowest_ns))


class Finite:
    """Whether the outputs that can hold NaN or an infinity do. specs: of all outputs, in order."""

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        # What is dequantized from whole numbers is finite. The masks are held: nothing is allocated at a request.
        self._able = [
            (index, spec.name, np.empty(spec.shape, bool))
            for index, spec in enumerate(specs)
            if spec.wire_dtype.kind == "f" and not spec.converts
        ]

    def holds(self, outputs: Sequence[Array]) -> bool:
        """Return whether all values are finite."""
        for index, _, mask in self._able:
            np.isfinite(outputs[index], out=mask)
            if not mask.all():
                return False
        return True

    def blame(self, outputs: Sequence[Array], other: Sequence[Array]) -> str:
        """Say where `outputs` are not finite though `other`, of the same input, are; empty when nowhere."""
        for index, name, _ in self._able:
            count = int(np.count_nonzero(~np.isfinite(outputs[index]) & np.isfinite(other[index])))
            if count:
                return f"output {name!r}: {count} of {other[index].size} values are not finite"
        return ""


class Examiner:
    """Runs samples with known answers, one after the other and round again, on whichever engine is to be judged.

    They are the bundle's golden samples; where it has none, those of `learn`. samples: how many there are.
    It needs no lock: one engine is judged at a time, by the thread that owns it.
    """

    def __init__(self, bundle: Bundle, limit: HangLimit) -> None:
        self._bundle, self.limit = bundle, limit
        found = bundle.golden()
        self._known: GoldenSamples | DrawnSamples | None = None if found is None else GoldenSamples(bundle, found)
        self._next = 0

    @property
    def samples(self) -> int:
        """See the class."""
        return 0 if self._known is None else self._known.count

    def learn(self, stand_in: Engine) -> None:
        """Where there are no golden samples, let the stand-in answer inputs that nobody chose, to compare with later.

        Raises what its `invoke` does, unless it is the input's doing.
        """
        if self._known is None:
            drawn = DrawnSamples(self._bundle, stand_in)
            self._known = drawn if drawn.count else None

    def one(self, engine: Engine) -> int:
        """Run the next sample; without samples, run what is in the inputs. Returns the ns of the inference.

        Raises RuntimeError with the difference when the answer is beyond its tolerance, and what `invoke` raises.
        """
        if self._known is None:
            return _timed(engine)
        index = self._next = (self._next + 1) % self._known.count
        self._known.fill(engine, index)
        taken_ns = _timed(engine)
        wrong = self._known.wrong(engine, index)
        if wrong is not None:
            raise RuntimeError(f"wrong numbers: {wrong}")
        return taken_ns

    def admit(self, engine: GuardedEngine, count: int) -> None:
        """Let a process that was just opened answer `count` samples, or more where only more can tell, after a first
        one, which may be slow.

        Raises as `one`.
        """
        if self._known is not None:
            self._known.begin()
            count = max(count, self._known.at_least)
        self._first(engine)
        for _ in range(count):
            engine.limit_ns = self.limit.ns
            self.limit.record(self.one(engine))

    def _first(self, engine: GuardedEngine) -> None:
        engine.limit_ns = self.limit.first.ns
        try:
            taken_ns = self.one(engine)
        except EngineLostError as exc:
            if exc.hung:
                self.limit.first.late()
            raise
        self.limit.first.took(taken_ns)


def _timed(engine: Engine) -> int:
    started_ns = now_ns()
    engine.invoke()
    return now_ns() - started_ns

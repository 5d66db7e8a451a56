"""What a delegate is judged by while it serves: the time it may take, finite numbers, and its golden samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from edged.bundle import Bundle, TensorSpec
from edged.clock import NS_PER_MS, NS_PER_S, now_ns
from edged.engines import golden
from edged.engines.base import Array, Engine, GuardedEngine
from edged.golden import Golden
from edged.latency import FEW, Histogram

# The first inference of a process that was just opened may compile, load and allocate.
FIRST_NS = 60 * NS_PER_S
# Until there are enough inferences for a percentile.
FEW_FLOORS = 4
# How often the limit is looked at again: each time there are twice as many inferences, in the end after so many.
_OFTEN = 10_000


class HangLimit:
    """How long an inference may take before it counts as a hang, in `ns`.

    `factor` times the P99 of its own inferences, and never less than `floor_ms`. Before there are FEW of them it is
    `factor` times the slowest one seen, or times `p99_us` as measured before, and never less than FEW_FLOORS floors.
    Before there is even one it is FIRST_NS, or what `p99_us` says.
    """

    def __init__(self, factor: float, floor_ms: int, p99_us: float | None = None) -> None:
        self._factor, self._floor_ns = factor, floor_ms * NS_PER_MS
        self._measured_ns = int((p99_us or 0) * 1000)
        self._seen = Histogram()
        self._count, self._next = 0, FEW
        self.ns = FIRST_NS if p99_us is None else self._by_few()

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
        return max(FEW_FLOORS * self._floor_ns, int(self._factor * slowest_ns))


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
    """Runs golden samples, one after the other and round again, on whichever engine is to be judged.

    It needs no lock: one engine is judged at a time, by the thread that owns it.
    """

    def __init__(self, bundle: Bundle, limit: HangLimit) -> None:
        self._bundle, self.limit = bundle, limit
        found = bundle.golden()
        self._samples = [] if found is None else [_only(found, index) for index in range(found.samples)]
        self._next = 0

    @property
    def samples(self) -> int:
        """How many golden samples there are."""
        return len(self._samples)

    def one(self, engine: Engine) -> None:
        """Run the next golden sample; without samples, run what is in the inputs.

        Raises RuntimeError with the difference when the answer is beyond its tolerance, and what `invoke` raises.
        """
        if not self._samples:
            engine.invoke()
            return
        index = self._next = (self._next + 1) % len(self._samples)
        for difference in golden.differences(engine, self._bundle, self._samples[index]):
            if not difference.agrees:
                raise RuntimeError(f"wrong numbers: {dataclasses.replace(difference, sample=index)}")

    def admit(self, engine: GuardedEngine, count: int) -> None:
        """Let a process that was just opened answer `count` samples after a first one, which may be slow.

        Raises as `one`.
        """
        engine.limit_ns = FIRST_NS
        self.one(engine)
        for _ in range(count):
            engine.limit_ns, started_ns = self.limit.ns, now_ns()
            self.one(engine)
            self.limit.record(now_ns() - started_ns)


def _only(samples: Golden, index: int) -> Golden:
    """Return the golden samples with but one of them."""
    inputs, reference, floats = (
        {name: array[index : index + 1] for name, array in group.items()}
        for group in (samples.inputs, samples.reference, samples.float_outputs)
    )
    return Golden(inputs, reference, floats, samples.tolerance)

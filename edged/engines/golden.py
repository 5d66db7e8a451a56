"""The golden check: known inputs through an engine, its outputs against the bundle's CPU reference."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from edged.bundle import Bundle
from edged.engines.base import Array, Engine
from edged.golden import Golden

# The golden section: its multiples, modulo 1, are spread evenly however many of them are taken.
_SECTION = 0.618


@dataclass(frozen=True)
class Difference:
    """One output of one golden sample: its largest error, NaN where it is not a number, and how large it may be."""

    sample: int
    output: str
    error: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        """Whether it is within the tolerance."""
        return self.error <= self.tolerance  # so that NaN fails

    def __str__(self) -> str:
        where = f"golden sample {self.sample}, output {self.output!r}"
        if math.isnan(self.error):
            return f"{where}: not a number (NaN)"
        return f"{where}: off by {self.error:.6g}, tolerance {self.tolerance:.6g}"


def differences(
    engine: Engine, bundle: Bundle, golden: Golden, which: Iterable[int] | None = None
) -> Iterator[Difference]:
    """Run every golden sample, or those of `which`, and yield how far each output is from its reference.

    Runs on the engine's own thread. Raises what `invoke` raises.
    """
    for sample in range(golden.samples) if which is None else which:
        fill(engine, bundle, golden, sample)
        engine.invoke()
        yield from compared(engine, bundle, golden, sample)


def spread(count: int) -> Iterator[int]:
    """Yield 0 … count - 1, each once, in an order in which the first few lie all over it."""
    step = next(step for step in range(max(1, round(count * _SECTION)), count + 2) if math.gcd(step, count) == 1)
    return (number * step % count for number in range(count))


def fill(engine: Engine, bundle: Bundle, golden: Golden, sample: int) -> None:
    """Put one golden sample into the inputs."""
    for spec, array in zip(bundle.manifest.inputs, engine.inputs, strict=True):
        np.copyto(array, golden.inputs[spec.name][sample])


def compared(engine: Engine, bundle: Bundle, golden: Golden, sample: int) -> Iterator[Difference]:
    """Yield how far each output is from the reference of that sample."""
    for spec, output in zip(bundle.manifest.outputs, engine.outputs, strict=True):
        error = largest_error(output, golden.reference[spec.name][sample])
        yield Difference(sample, spec.name, error, golden.tolerance[spec.name])


def disagreement(engine: Engine, bundle: Bundle, golden: Golden) -> str | None:
    """Run the golden samples; return None when all agree, else one line on the first difference beyond tolerance.

    An output agrees when it is finite and |output - reference| <= the bundle's tolerance for it, element by element.
    Runs on the engine's own thread. Raises what `invoke` raises.
    """
    wrong = (difference for difference in differences(engine, bundle, golden) if not difference.agrees)
    return next(map(str, wrong), None)


def largest_error(output: Array, reference: Array) -> float:
    """Return the largest |output - reference| of two arrays of one shape, in float64: 0 when empty, NaN for NaN."""
    difference = np.abs(output.astype(np.float64) - reference.astype(np.float64))
    return float(difference.max()) if difference.size else 0.0

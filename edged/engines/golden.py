"""The golden check: known inputs through an engine, its outputs against the bundle's CPU reference."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from edged.bundle import Bundle
from edged.engines.base import Array, Engine
from edged.golden import Golden


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


def differences(engine: Engine, bundle: Bundle, golden: Golden) -> Iterator[Difference]:
    """Run every golden sample, and yield how far each output is from its reference.

    Runs on the engine's own thread. Raises what `invoke` raises.
    """
    for sample in range(golden.samples):
        for spec, array in zip(bundle.manifest.inputs, engine.inputs, strict=True):
            np.copyto(array, golden.inputs[spec.name][sample])
        engine.invoke()
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

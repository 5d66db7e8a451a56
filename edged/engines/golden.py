"""The golden check: known inputs through an engine, its outputs against the bundle's CPU reference."""

from __future__ import annotations

import numpy as np

from edged.bundle import Bundle
from edged.engines.base import Array, Engine
from edged.golden import Golden


def disagreement(engine: Engine, bundle: Bundle, golden: Golden) -> str | None:
    """Run every golden sample; return None when all agree, else one line on the first difference beyond tolerance.

    An output agrees when it is finite and |output - reference| <= the bundle's tolerance for it, element by element.
    Runs on the engine's own thread. Raises what `invoke` raises.
    """
    for sample in range(golden.samples):
        for spec, array in zip(bundle.manifest.inputs, engine.inputs, strict=True):
            np.copyto(array, golden.inputs[spec.name][sample])
        engine.invoke()
        for spec, output in zip(bundle.manifest.outputs, engine.outputs, strict=True):
            error = largest_error(output, golden.reference[spec.name][sample])
            tolerance = golden.tolerance[spec.name]
            if not error <= tolerance:  # so that NaN fails
                return f"golden sample {sample}, output {spec.name!r}: off by {error:.6g}, tolerance {tolerance:.6g}"
    return None


def largest_error(output: Array, reference: Array) -> float:
    """Return the largest |output - reference| of two arrays of one shape, in float64: 0 when empty, NaN for NaN."""
    difference = np.abs(output.astype(np.float64) - reference.astype(np.float64))
    return float(difference.max()) if difference.size else 0.0

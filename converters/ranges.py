"""The range of values that calibration saw of each input, and how much of the evaluation data lies outside it.

An integer model clips what lies outside: such values cannot come out right, however good the model is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from converters.samples import Samples
from edged.bundle import InputRange

# Of samples; a few outliers are to be expected of any calibration data.
_MUCH = 0.1


@dataclass(frozen=True)
class Outside:
    """Evaluation data beyond the calibrated range of one input: the share of samples that hold any, and of values."""

    input: str
    samples: float
    values: float


def ranges(samples: Samples) -> tuple[InputRange, ...]:
    """Return what calibration saw of each input, by name."""
    return tuple(InputRange(name, float(a.min()), float(a.max())) for name, a in sorted(samples.arrays.items()))


def outside(calibrated: tuple[InputRange, ...], evaluation: Samples) -> tuple[Outside, ...]:
    """Return, for each float input with a calibrated range, how much of the evaluation data lies outside it."""
    found = []
    for known in sorted(calibrated, key=lambda known: known.input):
        array = evaluation.arrays.get(known.input)
        if array is None or array.dtype.kind != "f" or not array.size:
            continue
        # Limits in the data's own dtype: what calibrated was of this dtype too.
        low, high = np.array([known.minimum, known.maximum], array.dtype)
        beyond = ((array < low) | (array > high)).reshape(len(array), -1)
        found.append(Outside(known.input, float(beyond.any(axis=1).mean()), float(beyond.mean())))
    return tuple(found)


def warnings(found: tuple[Outside, ...]) -> list[str]:
    """Say of which inputs much of the evaluation data lies beyond what calibration saw."""
    return [
        f"input {one.input!r}: {one.samples:.0%} of the evaluation samples go beyond what calibration saw: "
        "is --calibration scaled as the model's input is?"
        for one in found
        if one.samples >= _MUCH
    ]

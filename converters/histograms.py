"""How the errors of each output are spread."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from converters.report import Histogram
from converters.samples import Array

# Odd, so that one bin is centred on no error at all.
BINS = 41


def of(floats: Mapping[str, Array], converted: Mapping[str, Array]) -> tuple[Histogram, ...]:
    """Return one histogram of converted - float for every output of real numbers, symmetric about 0."""
    return tuple(_one(name, floats[name], converted[name]) for name in sorted(floats) if floats[name].dtype.kind == "f")


def _one(name: str, floats: Array, converted: Array) -> Histogram:
    finite = np.isfinite(floats) & np.isfinite(converted)
    error = converted[finite].astype(np.float64) - floats[finite].astype(np.float64)
    reach = float(np.abs(error).max(initial=0.0)) or 1.0
    counts, edges = np.histogram(error, bins=BINS, range=(-reach, reach))
    return Histogram(name, tuple(float(f"{edge:.6g}") for edge in edges), tuple(int(count) for count in counts))

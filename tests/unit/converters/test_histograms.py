"""Error histograms: every error is in a bin, and no error at all is in the middle one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from converters import histograms

VALUES = arrays.arrays(np.float32, (5, 1, 3), elements=st.floats(-1e6, 1e6, width=32))


@given(VALUES, VALUES)
def test_every_error_is_counted_once(floats: np.ndarray, converted: np.ndarray) -> None:  # type: ignore[type-arg]
    """The counts are those of numpy's own digitize over the printed edges, up to their rounding."""
    (found,) = histograms.of({"o": floats}, {"o": converted})
    assert len(found.edges) == len(found.counts) + 1
    assert sum(found.counts) == floats.size
    assert found.edges[0] == -found.edges[-1]
    error = converted.astype(np.float64) - floats
    assert np.abs(error).max() <= found.edges[-1] * (1 + 1e-5)


def test_no_error_is_in_the_middle() -> None:
    """A perfect file has one bar, at nothing; whole numbers and what is not finite have no histogram."""
    floats = np.ones((4, 1, 2), np.float32)
    (found,) = histograms.of({"k": np.arange(4), "o": floats}, {"k": np.arange(4), "o": floats})
    assert found.output == "o"
    middle = len(found.counts) // 2
    assert found.counts[middle] == 8
    assert found.edges[middle] < 0 < found.edges[middle + 1]
    broken = floats.copy()
    broken[0] = np.inf
    assert sum(histograms.of({"o": broken}, {"o": broken})[0].counts) == 6

"""Calibrated ranges by input, and evaluation data beyond them."""

from __future__ import annotations

import numpy as np
import pytest

from converters import ranges
from converters.ranges import Outside
from converters.samples import Samples
from edged.bundle import InputRange


def test_ranges_are_what_was_seen() -> None:
    """The smallest and the largest value of each input, by name."""
    found = ranges.ranges(Samples("f", {"x": np.array([[1.0, -2.0], [3.0, 0.0]])}))
    assert [(r.input, r.minimum, r.maximum) for r in found] == [("x", -2.0, 3.0)]


def test_the_share_outside_is_of_samples_and_of_values() -> None:
    """Two of four samples hold values beyond [-1, 2]: three of twelve values; the limits themselves are inside."""
    data = np.array([[0, 1, 2], [-1, 2, 0], [-1.5, 0, 3], [0, 2.5, 0]], np.float32)[:, np.newaxis]
    found = ranges.outside((InputRange("x", -1.0, 2.0),), Samples("e", {"x": data}))
    assert found == (Outside("x", samples=0.5, values=0.25),)


def test_the_calibration_data_lies_inside_its_own_range() -> None:
    """float32 limits that went through Python's floats come back as they were: nothing is outside."""
    data = np.random.default_rng(0).normal(size=(50, 1, 7)).astype(np.float32)
    samples = Samples("c", {"x": data, "ids": np.arange(50).reshape(50, 1)})
    assert ranges.outside(ranges.ranges(samples), samples) == (Outside("x", 0.0, 0.0),)


def test_ranges_are_bound_by_name() -> None:
    """Each input is compared with its own range, in whatever order; whole numbers and unknown inputs are not."""
    known = (InputRange("b", 0.0, 10.0), InputRange("a", 0.0, 1.0), InputRange("ids", 0, 1), InputRange("gone", 0, 1))
    arrays = {"a": np.full((2, 1), 5.0), "b": np.full((2, 1), 5.0), "ids": np.full((2, 1), 9)}
    assert ranges.outside(known, Samples("e", arrays)) == (Outside("a", 1.0, 1.0), Outside("b", 0.0, 0.0))


@pytest.mark.parametrize("shape", [(1, 4), (1, 2, 2), (4,)])
def test_shares_do_not_depend_on_the_shape(shape: tuple[int, ...]) -> None:
    """Any rank, scalars of a batch too: one value of four outside in one sample of two."""
    data = np.zeros((2, *shape), np.float32)
    data.reshape(2, 4)[1, 3] = 9
    assert ranges.outside((InputRange("x", 0.0, 1.0),), Samples("e", {"x": data})) == (Outside("x", 0.5, 0.125),)


def test_much_beyond_the_range_is_a_warning() -> None:
    """Calibration at another scale leaves most samples outside: said in a line; a few outliers are not."""
    assert ranges.warnings((Outside("x", 0.05, 0.01),)) == []
    (said,) = ranges.warnings((Outside("x", 1.0, 0.4), Outside("y", 0.0, 0.0)))
    assert "input 'x': 100% of the evaluation samples go beyond what calibration saw" in said

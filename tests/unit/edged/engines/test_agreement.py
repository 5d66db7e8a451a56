"""How far off an answer may be: by dtype, by what two CPU implementations differ, and never NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.tinymodel import spec

from edged.engines.agreement import Compared, ratio, worst
from edged.engines.base import Array

FLOAT = spec("y", (4,))
INT8 = spec("y", (4,), "int8", scale=0.5, zero_point=3)
STEPS = spec("y", (4,), "int8", scale=0.5, zero_point=3, io="quantized")
CLASSES = spec("y", (4,), "int64")


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


def compared(found: Array, reference: Array, default: Array | None = None, of: Any = FLOAT, given: float = 0.0) -> Any:
    one = Compared(of, given)
    one.add(found, reference, default)
    return one.worst()


REFERENCE = floats(0, 1, -8, 4)


def test_the_error_is_a_share_of_the_tolerance() -> None:
    """2^-8 of the largest reference value, 8, is 1/32: off by 1/64 is one half, and the text has both numbers."""
    found = compared(REFERENCE + floats(0, 0, 1 / 64, 0), REFERENCE)
    assert found.ratio == pytest.approx(0.5, rel=1e-3)
    assert found.text == "random inputs, output 'y': off by 0.015625, tolerance 0.031251"


def test_half_precision_passes_and_a_wrong_layer_does_not() -> None:
    """A chain of 64 layers rounded to half precision each is within the tolerance; one percent too much is not."""
    rng = np.random.default_rng(1)
    exact, half = rng.normal(size=1000), None
    half = exact.astype(np.float16)
    for _ in range(64):
        factor = rng.uniform(0.9, 1.1, 1000)
        exact, half = exact * factor, (half.astype(np.float64) * factor).astype(np.float16)
    of = spec("y", (1000,))
    reference = exact.astype(np.float32)
    assert compared(half.astype(np.float32), reference, of=of).ratio < 1
    assert compared(reference * np.float32(1.01), reference, of=of).ratio > 1


@pytest.mark.parametrize(("of", "step"), [(INT8, 0.5), (STEPS, 1)])
def test_quantized_outputs_may_be_two_steps_off(of: Any, step: float) -> None:
    """In the client's units, real values or steps; three are wrong."""
    reference = np.array([0, 10, -20, 30], of.wire_dtype)
    for steps, agrees in ((2, True), (3, False)):
        found = (reference + np.array([0, 0, steps * step, 0])).astype(of.wire_dtype)
        assert (compared(found, reference, of=of).ratio <= 1) == agrees


def test_what_two_cpu_implementations_differ_by_is_allowed_threefold() -> None:
    """The default kernels are off by .1 themselves: .3 agrees, .31 does not."""
    default = REFERENCE + floats(0.1, 0, 0, 0)
    assert compared(REFERENCE + floats(0, 0.2999, 0, 0), REFERENCE, default).ratio < 1
    assert compared(REFERENCE + floats(0, 0.31, 0, 0), REFERENCE, default).ratio > 1


def test_a_cpu_that_answers_rubbish_does_not_make_everything_right() -> None:
    """Ten times the rule of the dtype is the end of it."""
    assert compared(REFERENCE + floats(0, 0.4, 0, 0), REFERENCE, REFERENCE + 100).ratio > 1


def test_the_bundles_own_tolerance_holds_where_it_is_larger() -> None:
    """It was found on the model's own data."""
    assert compared(REFERENCE + 1, REFERENCE, given=2.0).ratio == pytest.approx(0.5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_no_number_where_the_cpu_has_one_never_agrees(value: float) -> None:
    """Whatever the tolerance."""
    found = compared(floats(0, value, -8, 4), REFERENCE, given=1e9)
    assert found.ratio == np.inf
    assert "NaN or infinite" in found.text


def test_where_the_reference_has_no_number_nothing_is_compared() -> None:
    """The logarithm of a negative input is nobody's mistake."""
    reference = floats(np.nan, 1, np.inf, 4)
    assert compared(floats(5, 1, -5, 4), reference).ratio == 0
    assert compared(floats(np.nan, 1, np.inf, 4), reference).ratio == 0


def test_class_numbers_may_differ_in_a_tenth_of_the_elements() -> None:
    """Not by how much, which says nothing; a flip near a border is honest, one in five is not."""
    reference = np.arange(20)
    one, five = reference.copy(), reference.copy()
    one[3] = 900
    five[:5] = 0
    of = spec("y", (20,), "int64")
    assert compared(one, reference, of=of).ratio == pytest.approx(0.5)
    assert compared(five, reference, of=of).ratio > 1
    assert "of the elements differ" in compared(five, reference, of=of).text


def test_the_worst_of_all_inputs_and_outputs_is_told() -> None:
    """A good input after a bad one does not hide it; of two outputs the worse one is named."""
    first, second = Compared(FLOAT), Compared(spec("z", (4,)))
    first.add(REFERENCE + 1, REFERENCE)
    first.add(REFERENCE, REFERENCE)
    second.add(REFERENCE, REFERENCE)
    assert "'y': off by 1" in worst([second, first]).text


@pytest.mark.parametrize(
    ("error", "tolerance", "share"), [(0, 0, 0), (1, 0, np.inf), (np.nan, 1, np.inf), (1, 4, 0.25)]
)
def test_a_share_of_nothing_is_defined(error: float, tolerance: float, share: float) -> None:
    """No error is none, even where none is allowed."""
    assert ratio(error, tolerance) == share

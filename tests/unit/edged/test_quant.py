"""Quantization against a formula written with Python's own exact numbers, and its edges."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged import quant
from edged.bundle import TensorSpec

RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}
SCALES = st.integers(-10, 3).map(lambda e: 2.0**e)  # powers of two: the division is exact, so ties are ties


def spec(dtype: str, scale: float, zero_point: int, shape: tuple[int, ...] = (1,)) -> TensorSpec:
    return TensorSpec("x", dtype, shape, scale, zero_point)


@given(st.floats(-1e6, 1e6, width=32), st.sampled_from(sorted(RANGES)), SCALES, st.integers(-100, 100))
def test_quantize_is_the_specs_formula(real: float, dtype: str, scale: float, zero_point: int) -> None:
    """q = clip(round(real / scale) + zero_point), by exact decimals, ties to even."""
    low, high = RANGES[dtype]
    exact = int((Decimal(real) / Decimal(scale)).to_integral_value(ROUND_HALF_EVEN)) + zero_point
    got = quant.quantize(np.array([real], np.float32), spec(dtype, scale, zero_point))
    assert got.dtype == dtype
    assert got[0] == min(max(exact, low), high)


@given(st.sampled_from(sorted(RANGES)), st.floats(1e-6, 1e3), st.integers(-100, 100), st.data())
def test_dequantize_is_the_specs_formula(dtype: str, scale: float, zero_point: int, data: st.DataObject) -> None:
    """real = scale * (q - zero_point), within one rounding of float32."""
    q = data.draw(st.integers(*RANGES[dtype]))
    got = quant.dequantize(np.array([q], dtype), spec(dtype, scale, zero_point))
    assert got.dtype == np.float32
    assert got[0] == pytest.approx(float(np.float32(scale)) * (q - zero_point), rel=2e-7)


@pytest.mark.parametrize("dtype", sorted(RANGES))
def test_every_integer_survives_there_and_back(dtype: str) -> None:
    """Dequantize, then quantize, is the identity on the whole range."""
    low, high = RANGES[dtype]
    every = np.arange(low, high + 1).astype(dtype)
    s = spec(dtype, 0.0371, 5, every.shape)
    np.testing.assert_array_equal(quant.quantize(quant.dequantize(every, s), s), every)


@pytest.mark.parametrize(("real", "want"), [(3e38, 127), (-3e38, -128), (1e9, 127), (-1e9, -128), (63.6, 127)])
def test_values_outside_saturate(real: float, want: int) -> None:
    """Far outside too, where the division itself overflows float32; without a warning (they are errors here)."""
    assert quant.quantize(np.array([real], np.float32), spec("int8", 0.5, 0))[0] == want
    if abs(real) > 1e30:
        assert quant.quantize(np.array([real], np.float32), spec("int8", 1e-6, 0))[0] == want


@pytest.mark.parametrize(("real", "want"), [(0.25, 0), (0.75, 2), (1.25, 2), (-0.25, 0), (-0.75, -2), (1.75, 4)])
def test_ties_go_to_even(real: float, want: int) -> None:
    """As XNNPACK rounds; round-half-up would give 1, 2, 3."""
    assert quant.quantize(np.array([real], np.float32), spec("int8", 0.5, 0))[0] == want


def test_the_in_place_forms_write_where_they_are_told() -> None:
    """The hot path's forms fill the arrays they are given and leave `real` alone."""
    real = np.array([[0.5, -1.0]], np.float32)
    s = spec("int8", 0.5, 3, (1, 2))
    out, scratch, back = np.zeros((1, 2), np.int8), np.empty((1, 2), np.float32), np.empty((1, 2), np.float32)
    quant.quantize_into(real, s, out, scratch)
    quant.dequantize_into(out, s, back)
    assert out.tolist() == [[4, 1]]
    assert back.tolist() == real.tolist() == [[0.5, -1.0]]

"""What the codecs share: values are named shortly, and NaN and Inf are found without an allocation in the good case."""

from __future__ import annotations

import json
import math
import tracemalloc

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given

from edged.bundle import Signature, TensorSpec
from edged.codecs import common
from edged.errors import Code, RequestError


@given(hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=4)))
def test_all_finite_is_what_isfinite_says(array: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> None:
    """The bits tell of every NaN and Inf, and nothing finite is taken for one."""
    assert common.all_finite(array) == bool(np.isfinite(array).all())


@pytest.mark.parametrize(("dtype", "bits"), [("float16", "uint16"), ("float32", "uint32"), ("float64", "uint64")])
def test_the_edges_of_both_ranges(dtype: str, bits: str) -> None:
    """The largest finite values, both infinities, and NaNs of every kind (quiet, signalling, either sign), by bits."""
    info = np.finfo(dtype)
    infinity = int(np.array(np.inf, dtype).view(bits))
    sign = 1 << (info.bits - 1)
    for pattern in (infinity, infinity + 1, infinity | (1 << (info.nmant - 1)), infinity | ((1 << info.nmant) - 1)):
        for number in (pattern, pattern | sign):
            array = np.zeros(100, bits)
            array[57] = number
            assert not common.all_finite(array.view(dtype)), hex(number)
    assert common.all_finite(np.array([info.max, info.min, info.tiny, -0.0], dtype))


@pytest.mark.parametrize("dtype", [">f4", ">c16", "<f8"])
def test_any_byte_order_any_layout(dtype: str) -> None:
    """Other byte orders, views with gaps and a single number are looked at as well."""
    array = np.zeros((4, 6), dtype)
    assert common.all_finite(array[::2, 1::2])
    assert common.all_finite(array[0, 0:0])
    array[2, 3] = np.nan
    assert not common.all_finite(array[::2, 1::2])
    assert not common.all_finite(array[2, 3].reshape(()))
    assert common.all_finite(np.arange(3))


def test_a_bad_array_costs_no_memory_either() -> None:
    """A payload that is refused allocates nothing of its size while it is looked at."""
    array = np.full(1_000_000, np.nan, np.float32)
    tracemalloc.start()
    assert not common.all_finite(array)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize(("dtype", "value"), [("float32", 3e38), ("float64", 1.7e308), ("float16", 65504.0)])
def test_large_values_are_finite(dtype: str, value: float) -> None:
    """Values whose sum would be Inf; no warning escapes (warnings are errors here)."""
    assert common.all_finite(np.full(1000, value, dtype))
    assert not common.all_finite(np.array([value, np.inf, -np.inf], dtype))


def test_complex_is_looked_at_too() -> None:
    """An infinite imaginary part counts."""
    assert common.all_finite(np.ones(3, np.complex64))
    assert not common.all_finite(np.array([1, complex(0, np.inf)], np.complex64))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_finite_array_costs_no_memory(dtype: str) -> None:
    """A megabyte of good values is checked with less than 100 kB of memory."""
    array = np.ones(1_000_000, dtype)
    tracemalloc.start()
    common.all_finite(array)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize("bad", [[1, 2], [0, 255]])
def test_a_bool_must_be_zero_or_one(bad: list[int]) -> None:
    """Other bytes would be a bool that is neither True nor False."""
    array = np.array([bad], np.uint8).view(np.bool_)
    with pytest.raises(RequestError, match=r"\[0, 1\]"):
        common.accept(array, TensorSpec("m", "bool", (1, 2)))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([1, 2], "a list of 2"),
        ({"a": 1}, "an object"),
        (b"abc", "3 bytes"),
        (None, "None"),
        (True, "True"),
        ("x" * 1000, "'" + "x" * 39 + "…"),
        (10**4000, "an integer of 13288 bits"),
        (1 << 100_000, "an integer of 100001 bits"),  # more digits than Python will print
        ({1}, "a set"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_is_named_shortly(value: object, text: str) -> None:
    """An error reply never repeats a client's megabytes, and naming a value never fails."""
    assert common.describe(value) == text


LONGEST = "-1.2345678901234567e-300"


def printed(shape: tuple[int, ...], level: int = 1) -> int:
    """Count the characters json.dumps(indent=2) writes for the longest numbers in `shape`, at this level."""
    if not shape:
        return len(LONGEST)
    inner = shape[0] * (printed(shape[1:], level + 1) + 2 * (level + 1) + 2) - 1  # blanks, line end, comma
    return inner + 2 * level + 3


@pytest.mark.parametrize("shape", [(1, 3), (1, 1100, 6), (1, 224, 224, 3), (16, 50, 50, 1, 1)], ids=str)
def test_the_bound_takes_what_is_printed_prettily_and_not_much_more(shape: tuple[int, ...]) -> None:
    """Counted against json.dumps where that is small; above it is the bound, and not far above."""
    if math.prod(shape) < 10_000:
        text = json.dumps({"instances": np.full(shape, float(LONGEST)).tolist()}, indent=2)
        assert len(text) == printed(shape) + len('{\n  "instances": \n}')
    signature = Signature((TensorSpec("x", "float32", shape),), ())
    common.refuse_too_large(printed(shape), signature, text=True)
    with pytest.raises(RequestError, match=r"a payload of \d+ bytes.*'x'.*at most \d+ bytes") as caught:
        common.refuse_too_large(4 * printed(shape) + common.ALLOWANCE + 1_000, signature, text=True)
    assert caught.value.code is Code.INVALID_ARGUMENT

"""Nested lists into tensors: strict about types and shapes, exact at each dtype's edges, safe for any structure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.bundle import TensorSpec
from edged.codecs import nested
from edged.errors import Code, RequestError


def fill(value: object, dtype: str, shape: tuple[int, ...] = (1, 2)) -> np.ndarray[Any, Any]:
    array = np.zeros(shape, dtype)
    nested.fill(value, TensorSpec("x", dtype, shape), array)
    return array


@pytest.mark.parametrize(
    ("value", "dtype", "want"),
    [
        ([[1, 2.5]], "float32", [[1.0, 2.5]]),
        ([[10**30, -(10**30)]], "float32", [[np.float32(1e30), np.float32(-1e30)]]),  # JavaScript writes 1e20 so
        ([[3, -4]], "int8", [[3, -4]]),
        ([[-128, 127]], "int8", [[-128, 127]]),
        ([[0, 255]], "uint8", [[0, 255]]),
        ([[2**64 - 1, 0]], "uint64", [[2**64 - 1, 0]]),  # numpy alone would make floats of these two
        ([[-(2**63), 2**63 - 1]], "int64", [[-(2**63), 2**63 - 1]]),
        ([[2**53 + 1, 1.0]], "int64", [[2**53 + 1, 1]]),
        ([[True, False]], "bool", [[True, False]]),
    ],
)
def test_values_are_exact(value: object, dtype: str, want: list[Any]) -> None:
    """Each dtype at its ends, and mixtures that numpy would round on its own."""
    assert fill(value, dtype).tolist() == want


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        ([[1, True]], "float32", r"'x' at \[0\]\[1\]: expected a number \(float32\), got True"),
        ([[True, True]], "float32", "got True"),
        ([[1, "2"]], "float32", "got '2'"),
        ([["nan", 1]], "float32", "got 'nan'"),
        ([[None, 1]], "float32", r"\[0\]\[0\].*got None"),
        ([[1, {"b64": "AAAA"}]], "float32", "base64 is for strings"),
        ([[1, {"v": 1}]], "float32", "got an object"),
        ([[1, [2]]], "float32", "got a list of 1"),
        ([[1, 3.5e38]], "float32", r"\[0\]\[1\].*at most 3.40282e\+38.*got 3.5e\+38"),
        ([[1, 70000]], "float16", "at most 65504"),
        ([[1, float("inf")]], "float32", "got inf"),
        ([[float("nan"), 1]], "float64", "got nan"),
        ([[1, 10**4000]], "float64", "integer of 13288 bits"),
        ([[1, 128]], "int8", r"-128 to 127 \(int8\), got 128"),
        ([[-1, 1]], "uint8", r"\[0\]\[0\]: expected 0 to 255"),
        ([[1, 10**4000]], "int64", "integer of 13288 bits"),
        ([[1, 1.5]], "int8", "expected an integer"),
        ([[1, 1e300]], "int64", "integer of"),
        ([[1, float("inf")]], "int32", "got inf"),
        ([[1, float("nan")]], "int32", "got nan"),
        ([[1, True]], "int32", "got True"),
        ([[1, "1"]], "int32", "got '1'"),
        ([[1, 0]], "bool", "true or false"),
    ],
)
def test_wrong_values_are_named(value: object, dtype: str, message: str) -> None:
    """The error has the input, the position, what was wanted and what was there."""
    with pytest.raises(RequestError, match=message) as caught:
        fill(value, dtype)
    assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (5, r"expected shape \[2, 3\], got \[\]"),
        ([], r"got \[0\]"),
        ([[1, 2, 3]], r"got \[1, 3\]"),
        ([1, 2], r"got \[2\]"),
        ([[[1, 2, 3], [1, 2, 3]]], r"got \[1, 2, 3\]"),
        ([[1, 2, 3], [1, 2]], r"at \[1\]: expected a list of 3, got a list of 2"),
        ([[1, 2, 3], 4], r"at \[1\]: expected a list of 3, got 4"),
        ([[1, 2, 3], {"a": 1}], r"at \[1\]: expected a list of 3, got an object"),
        ("ab", r"got \[\]"),
    ],
)
def test_wrong_shapes_are_named(value: object, message: str) -> None:
    """A regular list of another shape says both shapes; a ragged one says where it is ragged."""
    with pytest.raises(RequestError, match=message):
        fill(value, "float32", (2, 3))


def test_a_scalar_input_takes_a_number() -> None:
    """An input without dimensions is one value, and its errors have no position."""
    assert fill(2.5, "float32", ()) == np.float32(2.5)
    with pytest.raises(RequestError, match="got a list of 1"):
        fill([2.5], "float32", ())
    with pytest.raises(RequestError, match=r"'x': expected a number.*got None"):
        fill(None, "float32", ())


def test_an_input_without_elements() -> None:
    """Zero-sized dimensions are filled by empty lists of the right depth."""
    assert fill([[]], "int8", (1, 0)).shape == (1, 0)
    with pytest.raises(RequestError):
        fill([], "int8", (1, 0))


def test_complex_inputs_are_said_to_be_unsupported() -> None:
    """JSON has no complex numbers; the answer names the formats that do."""
    with pytest.raises(RequestError, match="raw or as npy") as caught:
        fill([[1, 2]], "complex64")
    assert caught.value.code is Code.UNIMPLEMENTED


def test_shared_and_endless_lists_cost_no_more_than_the_input() -> None:
    """One list held 10^30 times over, one within itself and one huge string are refused at once, with little memory."""
    shared: list[object] = [1.0] * 10
    for _ in range(30):
        shared = [shared] * 10
    endless: list[object] = []
    endless.append(endless)
    for value in (shared, endless, [endless], [[endless, endless]], [["x" * 10_000_000] * 2]):
        with pytest.raises(RequestError):
            fill(value, "float32", (1, 2))


LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
ANYTHING = st.recursive(LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))


@given(ANYTHING, st.sampled_from(["float16", "float32", "float64", "int8", "uint8", "int32", "uint64", "bool"]))
def test_any_structure_is_filled_or_refused(value: object, dtype: str) -> None:
    """Nothing but RequestError comes out, and what is taken is what numpy makes of the same values."""
    try:
        got = fill(value, dtype, (2, 1))
    except RequestError:
        return
    np.testing.assert_array_equal(got, np.array(value, object).astype(dtype))

"""Binding arrays to inputs: by name, with dtype, shape, count and finiteness checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from converters.samples import InputInfo, bind
from edged.errors import BadDataError

A = InputInfo("a", "float32", (1, 4))
B = InputInfo("b", "float32", (1, 2, 3))


def good(count: int = 6) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    return {
        "b": generator.normal(size=(count, 2, 3)).astype(np.float32),
        "a": generator.normal(size=(count, 1, 4)).astype(np.float32),
    }


def test_names_decide_not_the_order() -> None:
    """Arrays given in another order land at their own inputs, with the batch added where it is missing."""
    raw = good()
    samples = bind(raw, (A, B), "f.npz")
    assert samples.count == 6
    np.testing.assert_array_equal(samples.arrays["a"], raw["a"])
    np.testing.assert_array_equal(samples.arrays["b"], raw["b"][:, np.newaxis])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"aa": np.zeros((6, 4), np.float32)}, r"'aa' is no input of the model \(did you mean 'a'\?\)"),
        ({"b": None}, "no array for input 'b'"),
        ({"a": np.zeros((6, 5), np.float32)}, r"has shape \[6, 5\], wanted \[count, 1, 4\] or \[count, 4\]"),
        ({"a": np.zeros((5, 4), np.float32)}, "different numbers of samples"),
        ({"a": np.zeros((6, 4), np.int64)}, "holds int64, the model takes float32"),
        ({"a": np.zeros((6, 4), np.uint8)}, "holds uint8, the model takes float32"),
        ({"a": np.full((6, 4), "x")}, "holds text"),
        ({"a": np.full((6, 4), 1e39)}, "sample 0 holds NaN or Inf"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(change: dict[str, Any], says: str) -> None:
    """Each mistake is one BadDataError that names the source, the input and what was wanted."""
    raw = {name: array for name, array in (good() | change).items() if array is not None}
    with pytest.raises(BadDataError, match=says) as caught:
        bind(raw, (A, B), "f.npz")
    assert str(caught.value).startswith("f.npz")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_sample_that_is_not_finite_is_named_by_its_number(value: float) -> None:
    """One bad value among many thousand samples is found, and its sample's number told."""
    raw = np.ones((300_000, 4), np.float32)
    raw[271_828, 2] = value
    with pytest.raises(BadDataError, match="input 'a': sample 271828 holds NaN or Inf"):
        bind({"a": raw}, (A,), "f.npy")


def test_no_sample_is_refused() -> None:
    """An empty array is no data."""
    with pytest.raises(BadDataError, match="holds no sample"):
        bind({"a": np.zeros((0, 4), np.float32)}, (A,), "f.npy")


def test_float64_is_cast_and_said() -> None:
    """A wider float is used, with a note; the values are numpy's own rounding."""
    raw = np.random.default_rng(1).normal(size=(3, 4))
    samples = bind({"a": raw}, (A,), "f.npy")
    np.testing.assert_array_equal(samples.arrays["a"][:, 0], raw.astype(np.float32))
    assert samples.arrays["a"].dtype == np.float32
    assert "float64 is cast to float32" in samples.notes[0]


def test_pixels_are_taken_as_they_are_and_said() -> None:
    """uint8 images for a float image input are 0 to 255; a person may have meant something else, so it is said."""
    info = InputInfo("image", "float32", (1, 4, 5, 3))
    pixels = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3)).astype(np.uint8)
    samples = bind({"image": pixels}, (info,), "f.npz")
    np.testing.assert_array_equal(samples.arrays["image"][:, 0], pixels.astype(np.float32))
    assert "0 to 255" in samples.notes[0]


def test_whole_numbers_are_cast_only_where_they_fit() -> None:
    """int64 indices fit an int32 input unless one is too large; floats are no indices."""
    info = InputInfo("ids", "int8", (1, 2))
    assert bind({"ids": np.array([[1, -5], [127, 3]])}, (info,), "f").arrays["ids"].dtype == np.int8
    with pytest.raises(BadDataError, match="sample 1 does not fit int8"):
        bind({"ids": np.array([[1, -5], [128, 3]])}, (info,), "f")
    with pytest.raises(BadDataError, match="holds float64, the model takes int8"):
        bind({"ids": np.zeros((2, 2))}, (info,), "f")


def test_rows_fill_batches() -> None:
    """With a batch of 2 five rows make two samples; the row left over is told, and labels follow."""
    info = InputInfo("a", "float32", (2, 4))
    raw = np.arange(20, dtype=np.float32).reshape(5, 4)
    samples = bind({"a": raw}, (info,), "f", np.arange(5))
    np.testing.assert_array_equal(samples.arrays["a"], raw[:4].reshape(2, 2, 4))
    assert "the last 1 rows fill no batch of 2" in samples.notes[0]
    assert samples.labels is not None
    np.testing.assert_array_equal(samples.labels, [[0, 1], [2, 3]])


def test_labels_must_be_as_many_as_rows() -> None:
    """Three labels for two samples is a mistake in the file."""
    with pytest.raises(BadDataError, match="3 labels for 2 rows"):
        bind({"a": np.ones((2, 4), np.float32)}, (A,), "f", np.arange(3))


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ((6, 3, 2), r"transposed: x\.transpose\(0, 2, 1\)"),
        ((6, 6), r"x\.reshape\(-1, 2, 3\), if the values"),
        ((2, 3), r"a single sample: x\[np\.newaxis\]"),
        ((6, 2, 3, 1), r"an axis too many: x\[\.\.\., 0\]"),
        ((6, 5, 5), r"\[count, 2, 3\]$"),
    ],
)
def test_a_wrong_shape_is_refused_with_what_was_forgotten(shape: tuple[int, ...], says: str) -> None:
    """The hint is an expression that, applied to the array, gives what the model takes; where none would, no hint."""
    with pytest.raises(BadDataError, match=says):
        bind({"b": np.ones(shape, np.float32)}, (B,), "f.npz")


def test_an_image_in_the_other_layout_is_named() -> None:
    """NCHW for an NHWC model, and grey images without their channel."""
    image, grey = InputInfo("i", "float32", (1, 4, 6, 3)), InputInfo("i", "float32", (1, 4, 6, 1))
    with pytest.raises(BadDataError, match=r"transposed: x\.transpose\(0, 2, 3, 1\)"):
        bind({"i": np.ones((5, 3, 4, 6), np.float32)}, (image,), "f.npz")
    with pytest.raises(BadDataError, match=r"the last axis is missing: x\[\.\.\., np\.newaxis\]"):
        bind({"i": np.ones((5, 4, 6), np.float32)}, (grey,), "f.npz")


@pytest.mark.parametrize("shape", [(4,), (4, 3), (4, 1, 3)])
def test_labels_of_a_regression_are_floats(shape: tuple[int, ...]) -> None:
    """One target a sample, several, or with the batch: kept as they are, bit for bit."""
    targets = np.random.default_rng(0).normal(size=shape)
    found = bind({"a": np.ones((4, 4), np.float32)}, (A,), "f", targets).labels
    assert found is not None
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, targets)


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (np.array([0.5, np.nan, 1, 2]), "the label of sample 1 is NaN or Inf"),
        (np.array(3), "the labels are a single value"),
        (np.array([b"a", b"b", b"c", b"d"]), r"labels of dtype \|S1 \(whole numbers, names \(str\) or floats\)"),
    ],
)
def test_labels_that_are_none_are_refused(labels: npt.NDArray[Any], says: str) -> None:
    """A NaN among targets is named by its sample; bytes and scalars are no labels."""
    with pytest.raises(BadDataError, match=says):
        bind({"a": np.ones((4, 4), np.float32)}, (A,), "f", labels)


def test_true_and_false_are_classes_1_and_0() -> None:
    """A boolean label is the class number that it stands for."""
    found = bind({"a": np.ones((2, 4), np.float32)}, (A,), "f", np.array([True, False])).labels
    assert found is not None
    assert found.tolist() == [1, 0]

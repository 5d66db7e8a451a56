"""Labels of evaluation data: what they are about, and in which form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from converters.labels import bind, class_numbers, doubts
from converters.parity import Labels
from edged.errors import BadDataError

GENERATOR = np.random.default_rng(0)


def softmax(*shape: int) -> np.ndarray[Any, Any]:
    powers = np.exp(GENERATOR.normal(size=shape))
    return (powers / powers.sum(-1, keepdims=True)).astype(np.float32)


def test_class_numbers_from_names() -> None:
    """Labels in --eval may be names of --labels; an unknown name is told."""
    names = ("sit", "walk")
    assert class_numbers(names, np.array(["walk", "sit", "walk"]), "e.npz", 3, 9).tolist() == [1, 0, 1]
    assert class_numbers(names, np.array([1, 0]), "e.npz", 2, 9).tolist() == [1, 0]
    with pytest.raises(BadDataError, match="label 'fly' is not in --labels"):
        class_numbers(names, np.array(["fly"]), "e.npz", 1, 9)
    with pytest.raises(BadDataError, match="labels of dtype float64"):
        class_numbers(names, np.array([0.5]), "e.npz", 1, 9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.bool_])
def test_one_hot_labels_are_told_from_class_numbers(dtype: type[np.generic]) -> None:
    """Keras' own form, in whatever dtype, gets the line to type; so do shares of classes."""
    hot = np.eye(3)[[2, 0, 1, 1]]
    with pytest.raises(
        BadDataError, match=r"shape \[4, 3\] for 4 rows \(looks one-hot: give class numbers, e.g. y.argmax"
    ):
        class_numbers((), hot.astype(dtype), "e.npz", 4, 9)


def test_labels_of_two_axes_that_are_not_one_hot() -> None:
    """Class numbers [samples, batch] stay, even where rows add up to 1; other shapes get another line."""
    names: tuple[str, ...] = ()
    batches = np.array([[0, 1], [1, 0]])
    assert class_numbers(names, batches, "e.npz", 4, 9) is batches
    with pytest.raises(BadDataError, match=r"shape \[2, 2\] for 2 rows \(one class for each row\)"):
        class_numbers(names, np.array([[3, 4], [5, 6]]), "e.npz", 2, 9)


def test_class_numbers_go_to_the_only_classifier() -> None:
    """Beside other outputs, softmax rows are what class numbers are about; a sequence has one for each frame."""
    floats = {"scores": softmax(5, 1, 3), "box": np.zeros((5, 1, 4, 2), np.float32)}
    found = bind(np.arange(5) % 3, floats, (), "", "e.npz")
    assert found is not None
    assert (found.output, found.targets) == ("scores", None)
    frames = bind(np.zeros((5, 7), np.int64), {"stages": softmax(5, 1, 7, 3)}, (), "", "e.npz")
    assert frames is not None
    assert frames.classes is not None


def test_class_numbers_of_sigmoid_scores() -> None:
    """A detector's scores need not add up to 1 to have one true class a row."""
    scores = np.full((5, 1, 3), 0.9, np.float32)
    found = bind(np.arange(5) % 3, {"scores": scores}, (), "", "e.npz")
    assert found is not None
    assert found.classes is not None


@pytest.mark.parametrize("shape", [(6,), (6, 1), (6, 1, 1)])
def test_targets_go_to_the_output_of_their_size(shape: tuple[int, ...]) -> None:
    """A forecast's truth is real numbers, as many as the output has."""
    truth = np.linspace(0, 1, 6).reshape(shape)
    found = bind(truth, {"next": np.zeros((6, 1, 1), np.float32)}, (), "", "e.npz")
    assert found is not None
    assert (found.output, found.classes) == ("next", None)
    assert found.targets is truth


def test_labels_that_fit_nothing_or_too_much_are_said_to() -> None:
    """Labels are never dropped in silence: nothing fits, or --postprocess must choose."""
    two = {"a": softmax(5, 1, 3), "b": softmax(5, 1, 3)}
    with pytest.raises(BadDataError, match=r"may be of several outputs: a, b \(name one in --postprocess"):
        bind(np.zeros(5, np.int64), two, (), "", "e.npz")
    chosen = bind(np.zeros(5, np.int64), two, (), "b", "e.npz")
    assert chosen is not None
    assert chosen.output == "b"
    with pytest.raises(BadDataError, match=r"labels float64\[4\] fit no output: next \[6, 1, 1\]"):
        bind(np.zeros(4), {"next": np.zeros((6, 1, 1), np.float32)}, (), "", "e.npz")


def test_no_labels() -> None:
    """Most evaluation data has none."""
    assert bind(None, {"a": softmax(5, 1, 3)}, (), "", "e.npz") is None


def test_targets_of_several_numbers() -> None:
    """Coordinates [n, 2] are targets though [batch, 2] might be classes; one-hot labels of classes stay an error."""
    floats = {"xy": GENERATOR.normal(size=(6, 1, 2)).astype(np.float32) * 9}
    truth = GENERATOR.normal(size=(6, 2))
    found = bind(truth, floats, (), "", "e.npz")
    assert found is not None
    assert found.targets is truth
    with pytest.raises(BadDataError, match="looks one-hot"):
        bind(np.eye(2)[[0, 1, 0, 1, 0, 1]], floats, (), "", "e.npz")


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ([0, 1, 3], r"label 3 is no class of the model: it has 3, numbered from 0 to 2$"),
        ([0, -1, 2], "label -1 is no class"),
        ([1, 2, 3], r"label 3 is no class .* \(the first class is 0\)"),
    ],
)
def test_numbers_that_are_no_class(numbers: list[int], says: str) -> None:
    """No answer can ever be right there: the accuracy gate would hold nothing."""
    with pytest.raises(BadDataError, match=says):
        bind(np.array(numbers), {"scores": softmax(3, 1, 3)}, (), "", "e.npz")


def test_labels_that_the_model_cannot_have_learnt() -> None:
    """An accuracy of chance and an error above the targets' own spread are told; better ones are not."""
    scores = np.eye(4, dtype=np.float32)[np.arange(40) % 4][:, np.newaxis]
    wrong = doubts(Labels("s", classes=(np.arange(40) + 1) % 4), {"s": scores}, "e.npz")
    assert wrong == ["e.npz: the labels do not fit this model: its own accuracy is 0.0%, a guess has 25.0%"]
    assert doubts(Labels("s", classes=np.arange(40) % 4), {"s": scores}, "e.npz") == []
    ramp = np.arange(10.0).reshape(10, 1, 1)
    (far,) = doubts(Labels("t", targets=ramp), {"t": ramp + 100}, "e.npz")
    assert far.endswith("its own mean absolute error is 100, they vary by 2.872 only")
    assert doubts(Labels("t", targets=ramp), {"t": ramp + 1}, "e.npz") == []
    assert doubts(None, {"t": ramp}, "e.npz") == []


def test_targets_of_another_size_than_the_output() -> None:
    """One target for an output of two numbers is no label of classes: the line tells both sizes."""
    floats = {"xy": GENERATOR.normal(size=(6, 1, 2)).astype(np.float32) * 9}
    with pytest.raises(BadDataError, match=r"labels float64\[6\] fit no output: xy \[6, 1, 2\]"):
        bind(GENERATOR.normal(size=6), floats, (), "", "e.npz")

"""Softmax against exact arithmetic and the classes of a score list sorted by hand."""

from __future__ import annotations

import math

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged import postprocess
from edged.bundle import Postprocess, Signature, TensorSpec
from edged.errors import Code, RequestError

Y = TensorSpec("y", "float32", (1, 3))
Z = TensorSpec("z", "float32", (1, 2))


def signature(*outputs: TensorSpec, labels: tuple[str, ...] = (), **post: object) -> Signature:
    return Signature((), outputs, postprocess=Postprocess(**post), labels=labels)  # type: ignore[arg-type]  # by name


@given(hnp.arrays(np.float32, st.tuples(st.integers(1, 3), st.integers(1, 6)), elements=st.floats(-1e4, 1e4, width=32)))
def test_softmax_is_the_formula(logits: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> None:
    """exp(x) / sum(exp(x)) with math.fsum, for logits whose plain exp would overflow float32 too."""
    got = postprocess.softmax(logits)
    assert got.dtype == np.float32
    for row, want_from in zip(got, logits.tolist(), strict=True):
        exps = [math.exp(x - max(want_from)) for x in want_from]
        np.testing.assert_allclose(row, [e / math.fsum(exps) for e in exps], rtol=1e-5, atol=1e-30)


def test_softmax_of_infinity_is_nan_without_a_warning() -> None:
    """It is for the codec to say that an answer is not finite (warnings are errors here)."""
    assert np.isnan(postprocess.softmax(np.array([[np.inf, 1.0]], np.float32))[0, 0])


def test_apply_leaves_what_it_need_not_touch() -> None:
    """No softmax asked for: the very objects come back, so the hot path pays nothing."""
    outputs = [np.ones((1, 3), np.float32)]
    assert postprocess.apply(outputs, signature(Y)) is outputs
    quantized = [np.ones((1, 3), np.int8)]
    assert postprocess.apply(quantized, signature(Y, softmax=True)) is quantized


def test_apply_changes_only_the_output_that_is_named() -> None:
    """The other output stays the same object, and the engine's own array is not written to."""
    outputs = [np.ones((1, 3), np.float32), np.zeros((1, 2), np.float32)]
    got = postprocess.apply(outputs, signature(Y, Z, softmax=True, output="z"))
    assert got[0] is outputs[0]
    assert got[1].tolist() == [[0.5, 0.5]]
    assert outputs[1].tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(("outputs", "name"), [((Y, Z), ""), ((Y,), "nope"), ((TensorSpec("s", "float32", ()),), "")])
def test_a_bundle_that_names_no_output_is_said_to(outputs: tuple[TensorSpec, ...], name: str) -> None:
    """Ambiguous, unknown or without a last axis: the bundle's fault, not the requester's."""
    arrays = [np.zeros(spec.shape, np.float32) for spec in outputs]
    for ask in (
        lambda: postprocess.apply(arrays, signature(*outputs, softmax=True, output=name)),
        lambda: postprocess.classes(arrays, signature(*outputs, top_k=1, output=name)),
    ):
        with pytest.raises(RequestError) as caught:
            ask()
        assert caught.value.code is Code.FAILED_PRECONDITION


SCORES = [np.array([[0.2, 0.5, 0.3]], np.float32)]


def test_the_best_classes_come_first() -> None:
    """At most top_k, with their labels, scores as the output has them."""
    got = postprocess.classes(SCORES, signature(Y, labels=("a", "b", "c"), top_k=2))
    want = [("b", 1, float(np.float32(0.5))), ("c", 2, float(np.float32(0.3)))]
    assert got == [[{"label": label, "index": index, "score": score} for label, index, score in want]]


def test_a_missing_label_is_left_out() -> None:
    """No labels, or fewer than classes: the index still tells."""
    assert postprocess.classes(SCORES, signature(Y, top_k=1)) == [[{"index": 1, "score": 0.5}]]
    got = postprocess.classes(SCORES, signature(Y, labels=("a", "b"), top_k=3))
    assert ["label" in entry for entry in got[0]] == [True, False, True]


@pytest.mark.parametrize(("threshold", "indexes"), [(0.0, [1, 2, 0]), (0.5, [1]), (0.25, [1, 2]), (0.51, [])])
def test_a_threshold_is_inclusive(threshold: float, indexes: list[int]) -> None:
    """A score equal to it stays; a row may be empty, and top_k larger than the row is no error."""
    got = postprocess.classes(SCORES, signature(Y, top_k=9, threshold=threshold))
    assert [entry["index"] for entry in got[0]] == indexes


def test_equal_scores_stand_in_index_order() -> None:
    """So that an answer is the same every time."""
    many = TensorSpec("y", "float32", (1, 200))  # below 16 every sort of numpy is stable
    got = postprocess.classes([np.full((1, 200), 0.25, np.float32)], signature(many, top_k=200))
    assert [entry["index"] for entry in got[0]] == list(range(200))


def test_a_quantized_output_is_scored_by_its_real_values() -> None:
    """scale 1/256, zero point -128: -128 is 0, 0 is 0.5; the threshold is in real values too."""
    spec = TensorSpec("y", "int8", (1, 3), 1 / 256, -128, "quantized")
    got = postprocess.classes([np.array([[-128, 0, -64]], np.int8)], signature(spec, top_k=3, threshold=0.25))
    assert got == [[{"index": 1, "score": 0.5}, {"index": 2, "score": 0.25}]]


def test_every_row_has_its_classes() -> None:
    """All axes but the last are rows; unsigned scores are not turned round by negation."""
    output = np.array([[[3, 1], [0, 2]], [[5, 5], [1, 9]]], np.uint8)
    spec = TensorSpec("y", "uint8", (2, 2, 2))
    got = postprocess.classes([output], signature(spec, top_k=1))
    assert [row[0]["index"] for row in got] == [0, 1, 0, 1]


def test_nothing_is_listed_when_nothing_is_asked() -> None:
    """top_k 0, the default."""
    assert postprocess.classes(SCORES, signature(Y)) == []

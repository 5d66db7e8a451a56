"""Figures against numpy's plain formulas, and gates that close."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from converters import parity
from converters.options import Options
from edged.errors import BadDataError

GENERATOR = np.random.default_rng(0)
SCORES = GENERATOR.normal(size=(50, 1, 4)).astype(np.float32)


def options(**changes: Any) -> Options:
    return Options(Path("m"), Path("out"), "m", 1, **changes)


def test_figures_are_the_plain_formulas() -> None:
    """Each figure equals its definition, written out with numpy."""
    noisy = SCORES + GENERATOR.normal(scale=0.1, size=SCORES.shape).astype(np.float32)
    found = parity.measure(SCORES, noisy)
    a, b = SCORES.ravel().astype(float), noisy.ravel().astype(float)
    assert found["max_abs"] == pytest.approx(max(abs(x - y) for x, y in zip(a, b, strict=True)), rel=1e-5)
    assert found["relative"] == pytest.approx(np.max(np.abs(a - b)) / np.max(np.abs(a)), rel=1e-5)
    assert found["cosine"] == pytest.approx(sum(a * b) / np.sqrt(sum(a * a) * sum(b * b)), rel=1e-5)
    assert found["snr_db"] == pytest.approx(10 * np.log10(np.mean(a**2) / np.mean((a - b) ** 2)), rel=1e-5)
    same = [int(np.argmax(x)) == int(np.argmax(y)) for x, y in zip(SCORES[:, 0], noisy[:, 0], strict=True)]
    assert found["agreement"] == pytest.approx(np.mean(same))


@given(arrays.arrays(np.float32, (3, 1, 4), elements=st.floats(-1e6, 1e6, width=32)))
def test_equal_answers_are_perfect_and_every_figure_is_a_number(values: np.ndarray[Any, Any]) -> None:
    """Whatever the values (zeros too), equality gives the best figures, all of them valid JSON numbers."""
    found = parity.measure(values, values.copy())
    assert found["max_abs"] == found["relative"] == 0
    assert found["cosine"] == pytest.approx(1)
    assert found["agreement"] == 1
    assert all(np.isfinite(list(found.values())))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((9, 1, 2), True), ((9, 1, 10_000), True), ((9, 1, 1), False), ((9, 1, 10_001), False), ((9, 1, 5, 4), False)],
)
def test_what_looks_like_a_classifier(shape: tuple[int, ...], expected: bool) -> None:
    """Rank 2 with 2 to 10,000 classes; a whole-number output is none."""
    assert parity.is_classifier(np.zeros(shape, np.float32)) is expected
    assert not parity.is_classifier(np.zeros(shape, np.int64))


def test_only_one_output_damaged_still_fails() -> None:
    """Every output is gated, and only the damaged one is named, with metric, value and threshold."""
    floats = {"class": SCORES, "onset": GENERATOR.normal(size=(50, 1, 6, 3)).astype(np.float32)}
    converted = {"class": SCORES, "onset": np.roll(floats["onset"], 1, axis=0)}
    made = parity.compare(floats, converted, options(quantize="int8"), real_data=True)
    with pytest.raises(BadDataError, match=r"output 'onset': cosine is -?0\.\d+, at least 0\.95 is asked") as caught:
        parity.enforce(made, [], options(quantize="int8"))
    assert "class" not in str(caught.value)


def test_agreement_gate() -> None:
    """Scores almost equal, classes flipped in one row of ten: cosine is content, agreement is not."""
    floats = np.tile(np.float32([1.0, 1.001]), (10, 1))[:, np.newaxis]
    converted = floats.copy()
    converted[0] = [[1.001, 1.0]]
    made = parity.compare({"o": floats}, {"o": converted}, options(quantize="int8"), real_data=True)
    assert [gate.passed for gate in made[0].gates] == [False, True]
    assert made[0].quality(10).metric == "agreement"
    on_random = parity.compare({"o": floats}, {"o": converted}, options(quantize="int8"), real_data=False)
    assert [gate.metric for gate in on_random[0].gates] == ["cosine"]
    asked = parity.compare({"o": floats}, {"o": converted}, options(min_agreement=0.9), real_data=False)
    assert [gate.passed for gate in asked[0].gates] == [True, True]


def test_max_error_gate_is_off_until_asked_for() -> None:
    """--max-error bounds the largest difference of any output."""
    converted = SCORES + np.float32(0.01)
    made = parity.compare({"o": SCORES}, {"o": converted}, options(), real_data=True)
    assert [gate.metric for gate in made[0].gates] == ["cosine"]
    made = parity.compare({"o": SCORES}, {"o": converted}, options(max_error=0.005), real_data=True)
    with pytest.raises(BadDataError, match=r"max_abs is 0\.01, at most 0\.005 is asked"):
        parity.enforce(made, [], options(max_error=0.005))


def test_nan_of_the_converted_model_is_named() -> None:
    """NaN where the SavedModel has a number is an error with the sample's number, whatever the gates say."""
    broken = SCORES.copy()
    broken[17, 0, 2] = np.nan
    with pytest.raises(BadDataError, match="answers NaN or Inf for sample 17"):
        parity.compare({"o": SCORES}, {"o": broken}, options(), real_data=True)


def test_nan_never_passes_a_gate() -> None:
    """A figure that is no number keeps no bound."""
    assert not parity.Gate("o", "cosine", float("nan"), 0.9).passed
    assert not parity.Gate("o", "max_abs", float("nan"), 0.9, at_least=False).passed


def test_a_stuck_output_is_found() -> None:
    """The same answer to every sample, where the SavedModel's answers differ; a constant SavedModel is no fault."""
    stuck = np.tile(SCORES[:1], (50, 1, 1))
    assert parity.constant_outputs({"o": SCORES}, {"o": stuck}) == ["o"]
    assert parity.constant_outputs({"o": stuck}, {"o": stuck}) == []
    with pytest.raises(BadDataError, match="output 'o': the same answer for every sample"):
        parity.enforce([], ["o"], options())


def test_whole_number_outputs_are_compared_for_equality() -> None:
    """An argmax inside the model: share of equal answers."""
    floats, converted = np.arange(10)[:, np.newaxis], np.arange(10)[:, np.newaxis].copy()
    converted[3] = 0
    made = parity.compare({"k": floats}, {"k": converted}, options(quantize="int8"), real_data=True)
    assert (made[0].gates[0].metric, made[0].gates[0].value, made[0].gates[0].passed) == ("equal", 0.9, False)


def test_accuracy_counts_rows() -> None:
    """argmax against the label, over every row of every batch."""
    scores = np.eye(4, dtype=np.float32)[[0, 1, 2, 3]].reshape(2, 2, 4)
    assert parity.accuracy(scores, np.array([[0, 1], [2, 0]])) == 0.75

"""Figures against numpy's plain formulas, and gates that close."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from converters import gates, parity
from converters.options import Options
from edged.bundle import TensorSpec
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
    assert found.get("agreement", found.get("f1", 1)) == 1
    assert all(np.isfinite(list(found.values())))


def test_only_one_output_damaged_still_fails() -> None:
    """Every output is gated, and only the damaged one is named, with metric, value and threshold."""
    floats = {"class": SCORES, "onset": GENERATOR.normal(size=(50, 1, 6, 3)).astype(np.float32)}
    converted = {"class": SCORES, "onset": np.roll(floats["onset"], 1, axis=0)}
    made = parity.compare(floats, converted, options(quantize="int8"), real_data=True)
    variance, part, cosine = gates.failures(made, [])
    assert part.startswith("output 'onset': r2_part is -")
    assert re.fullmatch(r"output 'onset': cosine is -?0\.\d+, at least 0\.95 is asked", cosine)
    assert variance.startswith("output 'onset': r2 is -")


def test_agreement_gate() -> None:
    """Scores that agree in all but two rows of twenty: every other figure is content, agreement is not."""
    generator = np.random.default_rng(5)
    floats = generator.normal(size=(20, 1, 2)).astype(np.float32)
    floats[:, 0, 1] = np.where(np.arange(20) % 2, 2, -2)
    floats[:2] = [[1.0, 1.001]]
    converted = floats.copy()
    converted[:2] = [[1.001, 1.0]]
    made = parity.compare({"o": floats}, {"o": converted}, options(quantize="int8"), real_data=True)
    passed = {gate.metric: gate.passed for gate in made[0].gates}
    assert passed == {"agreement": False, "class_f1": True, "r2": True, "r2_part": True, "cosine": True}
    assert made[0].quality(20).metric == "agreement"
    on_random = parity.compare({"o": floats}, {"o": converted}, options(quantize="int8"), real_data=False)
    assert [gate.metric for gate in on_random[0].gates] == ["r2", "r2_part", "cosine"]
    asked = parity.compare({"o": floats}, {"o": converted}, options(min_agreement=0.9), real_data=False)
    assert (asked[0].gates[0].metric, asked[0].gates[0].passed) == ("agreement", True)


def test_max_error_gate_is_off_until_asked_for() -> None:
    """--max-error bounds the largest difference of any output."""
    converted = SCORES + np.float32(0.01)
    made = parity.compare({"o": SCORES}, {"o": converted}, options(), real_data=True)
    assert "max_abs" not in [gate.metric for gate in made[0].gates]
    made = parity.compare({"o": SCORES}, {"o": converted}, options(max_error=0.005), real_data=True)
    assert "output 'o': max_abs is 0.01, at most 0.005 is asked" in gates.failures(made, [])


def test_a_file_with_clamped_constants_must_keep_its_size() -> None:
    """Answers a third smaller have a cosine of 1: only where float16 cut constants off is the size gated too."""
    powers = np.exp(SCORES)
    scores = powers / powers.sum(-1, keepdims=True)
    smaller = {"o": scores * np.float32(0.655)}
    asked = options(quantize="float16")
    assert gates.failures(parity.compare({"o": scores}, smaller, asked, real_data=True), [], ["w"]) == []
    made = parity.compare({"o": scores}, smaller, asked, real_data=True, clamped=True)
    assert gates.failures(made, [], ["w", "v"]) == [
        "output 'o': relative is 0.345, at most 0.01 is asked",
        "float16 cannot hold the values of 'w', 'v' (beyond 65504): use --quantize none or dynamic",
    ]
    near = {"o": scores * np.float32(0.995)}
    assert gates.failures(parity.compare({"o": scores}, near, asked, real_data=True, clamped=True), [], ["w"]) == []
    assert made[0].quality(50).metric == "agreement"
    whole = {"k": np.arange(6).reshape(6, 1)}
    assert gates.failures(parity.compare(whole, whole, asked, real_data=True, clamped=True), [], ["w"]) == []


@pytest.mark.parametrize(
    ("signal", "noise", "db"),
    [(100.0, 1.0, 20.0), (1.0, 100.0, -20.0), (1.0, 0.0, 300.0), (0.0, 0.0, 300.0), (0.0, 1.0, -300.0),
     (1.0, 1e-40, 300.0), (1e-40, 1.0, -300.0), (1e300, 1e-300, 300.0), (1e-300, 1e300, -300.0)],
)  # fmt: skip
def test_signal_to_noise_is_finite(signal: float, noise: float, db: float) -> None:
    """Ten times the decimal logarithm of the ratio, within ±300 dB, whatever the two sums are."""
    assert parity.snr_db(signal, noise) == pytest.approx(db)
    assert parity.MAX_SNR_DB == 300.0


def test_nan_of_the_converted_model_is_named() -> None:
    """NaN where the SavedModel has a number is an error with the sample's number, whatever the gates say."""
    broken = SCORES.copy()
    broken[17, 0, 2] = np.nan
    with pytest.raises(BadDataError, match="answers NaN or Inf for sample 17"):
        parity.compare({"o": SCORES}, {"o": broken}, options(), real_data=True)


def test_nan_never_passes_a_gate() -> None:
    """A figure that is no number keeps no bound."""
    assert not gates.Gate("o", "cosine", float("nan"), 0.9).passed
    assert not gates.Gate("o", "max_abs", float("nan"), 0.9, at_least=False).passed


def test_a_stuck_output_is_found() -> None:
    """The same answer to every sample, where the SavedModel's answers differ; a constant SavedModel is no fault."""
    stuck = np.tile(SCORES[:1], (50, 1, 1))
    assert parity.constant_outputs({"o": SCORES}, {"o": stuck}) == ["o"]
    assert parity.constant_outputs({"o": stuck}, {"o": stuck}) == []
    assert gates.failures([], ["o"]) == ["output 'o': the same answer for every sample"]


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


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.9])
def test_f1_is_that_of_the_counted_hits(threshold: float) -> None:
    """F1 at the threshold equals precision and recall counted one frame after the other."""
    floats = GENERATOR.uniform(size=(6, 1, 30, 5)).astype(np.float32)
    converted = np.clip(floats + GENERATOR.normal(scale=0.1, size=floats.shape), 0, 1).astype(np.float32)
    hits = misses = false = 0
    for a, b in zip(floats.ravel(), converted.ravel(), strict=True):
        hits += a >= threshold and b >= threshold
        misses += a >= threshold and b < threshold
        false += a < threshold and b >= threshold
    precision, recall = hits / (hits + false), hits / (hits + misses)
    found = parity.measure(floats, converted, threshold)["f1"]
    assert found == pytest.approx(2 * precision * recall / (precision + recall), rel=1e-5)


def test_f1_of_nothing_is_not_told() -> None:
    """Where neither finds anything there is nothing to agree on; the variance is held instead. False alarms are all
    that there is where the SavedModel is quiet: they fail."""
    quiet = GENERATOR.uniform(0, 0.1, size=(4, 1, 9, 3)).astype(np.float32)
    found = parity.measure(quiet, quiet)
    assert "f1" not in found
    assert found["r2"] == 1
    alarm = quiet.copy()
    alarm[0, 0, 0, 0] = 0.9
    made = parity.compare({"o": quiet}, {"o": alarm}, options(quantize="int8"), real_data=True)
    assert gates.failures(made, [])[0].startswith("output 'o': f1 is 0, ")


def test_a_lost_output_is_gated_by_its_f1() -> None:
    """Frames almost equal in every other figure, but half of the onsets just under the threshold."""
    floats = np.zeros((4, 1, 10, 8), np.float32)
    floats[:, :, :2] = 0.51
    converted = floats.copy()
    converted[:, :, 0] = 0.49
    made = parity.compare({"onset": floats}, {"onset": converted}, options(quantize="int8"), real_data=True)
    assert [(gate.metric, gate.passed) for gate in made[0].gates] == [("f1", False), ("cosine", True)]
    assert made[0].gates[0].value == pytest.approx(2 / 3, rel=1e-4)


def test_accuracy_may_not_fall_and_error_may_not_grow() -> None:
    """With labels the gates are the two that a person cares for: exactly at the limit passes, beyond it does not."""
    scores = np.tile(np.float32([0.9, 0.1]), (100, 1))[:, np.newaxis]
    worse = scores.copy()
    worse[:2] = [[0.1, 0.9]]
    labels = parity.Labels("o", classes=np.zeros(100, np.int64))
    made = parity.compare({"o": scores}, {"o": worse}, options(quantize="int8"), real_data=True, labels=labels)
    assert made[0].figures["accuracy_float"] == 1
    assert gates.failures(made, []) == ["output 'o': accuracy is 0.98, at least 0.99 is asked (--max-accuracy-loss)"]
    wider = options(quantize="int8", max_accuracy_loss=0.02)
    made = parity.compare({"o": scores}, {"o": worse}, wider, real_data=True, labels=labels)
    assert gates.failures(made, []) == []

    floats, truth = np.full((10, 1, 1), 11.0, np.float32), np.full(10, 10.0)
    targets = parity.Labels("o", targets=truth)
    for off, passes in ((0.0499, True), (0.0501, False)):
        made = parity.compare({"o": floats}, {"o": floats + np.float32(off)}, options(), real_data=True, labels=targets)
        assert made[0].figures["mae"] == pytest.approx(1 + off, rel=1e-5)
        assert next(gate for gate in made[0].gates if gate.metric == "mae").passed is passes


def test_saturation_is_counted_beyond_the_last_step() -> None:
    """int8 with scale .1 holds -12.8 to 12.7: what lies more than a step beyond is lost."""
    spec = TensorSpec("o", "int8", (1, 1), 0.1, 0)
    floats = np.array([0, 12.7, 12.79, 12.81, 1247, -12.89, -13], np.float32)
    assert parity.saturated(floats, spec) == pytest.approx(3 / 7)
    assert parity.saturated(floats, TensorSpec("o", "float32", (1, 1))) == 0


def test_margins_order_gates_of_different_kinds() -> None:
    """A margin is 0 at the bound, 1 at perfection, negative where the gate fails."""
    assert gates.Gate("o", "f1", 0.95, 0.95).margin == 0
    assert gates.Gate("o", "f1", 1.0, 0.95).margin == pytest.approx(1)
    assert gates.Gate("o", "mae", 0.0, 2.0, at_least=False).margin == 1
    assert gates.Gate("o", "mae", 3.0, 2.0, at_least=False).margin == -0.5


def test_a_lost_factor_is_seen_in_real_numbers() -> None:
    """Every answer a third too small, or a constant too large: the cosine is content, the variance is lost."""
    floats = GENERATOR.normal(size=(50, 1, 3, 2)).astype(np.float32) + np.float32(5)
    for converted, kept in ((floats * np.float32(0.7), False), (floats + np.float32(1), False), (floats, True)):
        made = parity.compare({"o": floats}, {"o": converted}, options(quantize="int8"), real_data=True)
        a, b = floats.ravel().astype(float), converted.ravel().astype(float)
        assert made[0].figures["r2"] == pytest.approx(1 - np.sum((b - a) ** 2) / np.sum((a - a.mean()) ** 2), rel=1e-4)
        assert [(gate.metric, gate.passed) for gate in made[0].gates] == [
            ("r2", kept),
            ("r2_part", kept),
            ("cosine", True),
        ]


def test_numbers_that_may_be_classes_say_so() -> None:
    """A regression of several numbers fails the agreement of classes: the line says what to do about it."""
    floats = GENERATOR.normal(size=(50, 1, 4)).astype(np.float32)
    noisy = floats + GENERATOR.normal(scale=0.5, size=floats.shape).astype(np.float32)
    made = parity.compare({"o": floats}, {"o": noisy}, options(quantize="int8"), real_data=True)
    assert "if these are no class scores: --min-agreement 0" in gates.failures(made, [])[0]
    scores = np.tile(np.float32([[0.1, 0.9]]), (50, 1, 1))
    both = parity.compare(
        {"o": floats, "c": scores}, {"o": noisy, "c": scores}, options(quantize="int8"), real_data=True
    )
    assert [gate.metric for gate in both[1].gates] == ["r2", "r2_part", "cosine"]


def test_small_columns_beside_large_ones() -> None:
    """Boxes of hundreds and scores below 1 in one tensor, along whichever axis: that the scores are lost is seen."""
    large = GENERATOR.uniform(0, 640, size=(20, 1, 30, 4))
    small = GENERATOR.uniform(-0.2, 1, size=(20, 1, 30, 3))
    floats = np.concatenate([large, small], -1).astype(np.float32)
    step = np.float32(2.5)  # what int8 holds of 0 to 640
    converted = np.rint(floats / step) * step
    for axis in (3, 2):
        a, b = (np.moveaxis(side, 3, axis) for side in (floats, converted))
        made = parity.compare({"o": a}, {"o": b}, options(quantize="int8"), real_data=True)
        assert made[0].figures["cosine"] > 0.9999
        (failure,) = gates.failures(made, [])
        assert failure.startswith("output 'o': r2_part is ")
    good = parity.compare({"o": floats}, {"o": floats + np.float32(0.01)}, options(quantize="int8"), real_data=True)
    assert gates.failures(good, []) == []


def test_a_rare_class_that_is_lost() -> None:
    """Of 200 rows 8 are of a class that is found in 3 of them: 97.5 % agree, and the class is useless."""
    floats = np.tile(np.float32([0.9, 0.1]), (200, 1, 1))
    floats[:8] = [0.1, 0.9]
    converted = floats.copy()
    converted[:5] = [0.9, 0.1]
    made = parity.compare({"o": floats}, {"o": converted}, options(quantize="int8"), real_data=True)
    assert made[0].figures["agreement"] == 0.975
    assert made[0].figures["class_f1"] == pytest.approx(2 * 3 / (8 + 3), rel=1e-5)
    (failure,) = gates.failures(made, [])
    assert failure.startswith("output 'o': class_f1 is 0.5455, at least 0.8")


@pytest.mark.parametrize("dtype", [np.bool_, np.int64])
def test_flags_are_gated_by_what_they_find(dtype: type[np.generic]) -> None:
    """8 of 200 flags are on; as many wrong ones leave 96 % equal, and nothing found."""
    floats = np.zeros((200, 1), dtype)
    floats[:8] = 1
    converted = np.roll(floats, 8, axis=0)
    made = parity.compare({"o": floats}, {"o": converted}, options(quantize="int8", min_agreement=None), real_data=True)
    assert made[0].figures["equal"] == 0.92
    assert made[0].figures["f1"] == 0
    classes = np.arange(200).reshape(200, 1)
    assert "f1" not in parity.measure(classes, classes)


def test_what_float32_cannot_tell_apart_is_constant() -> None:
    """Answers that differ in their last bits only have no variance to keep: their noise is no reason to refuse."""
    floats = np.float32(101325) * (1 + np.float32(1e-7) * GENERATOR.integers(-1, 2, (50, 1, 3)).astype(np.float32))
    found = parity.measure(floats, floats[::-1], kind="real")
    assert "r2" not in found
    assert "r2_part" not in found

"""The judge of a search: gates decide whether, margins and SNR by how much."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from converters.judge import Evaluation, Judge
from converters.options import Options
from converters.parity import Labels
from edged.bundle import TensorSpec

GENERATOR = np.random.default_rng(0)
FLOATS = {"o": GENERATOR.normal(size=(40, 1, 5)).astype(np.float32)}
SPECS = (TensorSpec("o", "float32", (1, 5)),)
INT8 = (TensorSpec("o", "int8", (1, 5), 0.05, 0),)


def judge(labels: Labels | None = None) -> Judge:
    return Judge(Evaluation({}, FLOATS, labels), Options(Path("m"), Path("out"), "m", 1, quantize="int8"))


def test_better_answers_score_higher_and_perfection_passes() -> None:
    """Scores fall as noise grows, also where no class changes, and the verdict is that of the gates."""
    noise = GENERATOR.normal(size=FLOATS["o"].shape).astype(np.float32)
    found = [judge().verdict({"o": FLOATS["o"] + np.float32(size) * noise}, SPECS) for size in (0, 1e-5, 1e-4, 0.1, 2)]
    scores = [verdict.score for verdict in found]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == len(scores)
    assert not found[0].failures
    assert found[-1].failures


def test_an_output_that_never_changes_does_not_pass() -> None:
    """A file that always answers the same may keep its cosine; it is useless."""
    stuck = {"o": np.tile(FLOATS["o"][:1], (40, 1, 1))}
    assert any("the same answer" in failure for failure in judge().verdict(stuck, SPECS).failures)


def test_integer_answers_are_compared_as_real_numbers() -> None:
    """int8 answers are dequantized; what the SavedModel answers beyond their range is told as saturated."""
    steps = np.clip(np.rint(FLOATS["o"] / 0.05), -128, 127).astype(np.int8)
    (found,) = judge().verdict({"o": steps}, INT8).outputs
    assert found.figures["max_abs"] <= 0.0251
    assert "saturated" not in found.figures
    narrow = (TensorSpec("o", "int8", (1, 5), 0.005, 0),)
    clipped = np.clip(np.rint(FLOATS["o"] / 0.005), -128, 127).astype(np.int8)
    (found,) = judge().verdict({"o": clipped}, narrow).outputs
    beyond = (FLOATS["o"] > 128 * 0.005) | (FLOATS["o"] < -129 * 0.005)
    assert abs(found.figures["saturated"] - beyond.mean()) < 1e-6


def test_labels_decide_too() -> None:
    """With labels, accuracy is a gate of its own: a flip of the right answer fails though most rows agree."""
    truth = FLOATS["o"].argmax(-1)[:, 0]
    worse = {"o": FLOATS["o"].copy()}
    worse["o"][0] = -worse["o"][0]
    assert any("accuracy is 0.975" in f for f in judge(Labels("o", classes=truth)).verdict(worse, SPECS).failures)

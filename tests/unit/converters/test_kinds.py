"""What an output holds, by its answers and by what a person says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from converters import kinds

GENERATOR = np.random.default_rng(0)
LOGITS = GENERATOR.normal(size=(9, 1, 4)).astype(np.float32)
FRAMES = GENERATOR.uniform(size=(5, 1, 20, 8)).astype(np.float32)
SOFTMAX = FRAMES / FRAMES.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (SOFTMAX, "classes"),
        (SOFTMAX[:, :, 0], "classes"),
        (FRAMES, "frames"),
        (FRAMES[:, :, 0], "frames"),
        (2 * FRAMES, "real"),
        (LOGITS, "perhaps"),
        (LOGITS[..., :1], "real"),
        (np.zeros((2, 1, 10_001), np.float32) + 2, "real"),
        (np.zeros((9, 1, 4), np.int64), "whole"),
        (np.zeros((9, 1), np.float32) - 1, "real"),
    ],
)
def test_by_itself(answers: np.ndarray[Any, Any], expected: str) -> None:
    """Softmax rows are classes whatever their rank; [batch, n] of other numbers may be classes; the rest is not."""
    assert kinds.alone(answers) == expected


def test_what_is_known_of_one_output_tells_of_the_others() -> None:
    """A detector's class scores beside its boxes; a regression with targets; the output that --postprocess names."""
    boxes = {"boxes": LOGITS, "scores": SOFTMAX[:, :, 0]}
    assert kinds.of(boxes) == {"boxes": "real", "scores": "classes"}
    assert kinds.of({"a": LOGITS, "b": LOGITS}) == {"a": "perhaps", "b": "perhaps"}
    assert kinds.of({"a": LOGITS, "b": LOGITS}, classes="b") == {"a": "real", "b": "classes"}
    assert kinds.of({"a": LOGITS}, targets="a") == {"a": "real"}
    assert kinds.of({"a": FRAMES[:, :, 0]}, classes="a") == {"a": "classes"}

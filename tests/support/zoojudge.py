"""Figures of the zoo's own, from plain numpy: they judge the converter, so they share nothing with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def accuracy(scores: Array, y: Array) -> float:
    """Return the share of samples whose highest score is the class; scores [n, classes], y [n]."""
    return float((scores.argmax(-1) == y).mean())


def agreement(a: Array, b: Array) -> float:
    """Return the share of places, [n, …, classes], where both have the same highest score."""
    return float((a.argmax(-1) == b.argmax(-1)).mean())


def mae(answers: Array, y: Array) -> float:
    """Return the mean absolute error."""
    return float(np.abs(answers.reshape(y.shape) - y).mean())


def frame_f1(converted: Array, floats: Array, threshold: float = 0.5) -> float:
    """Return the F1 of what reaches the threshold in `converted`, where `floats` tells what is right."""
    found, true = converted >= threshold, floats >= threshold
    return float(2 * (found & true).sum() / (found.sum() + true.sum()))


def worst(a: Array, b: Array) -> float:
    """Return the largest absolute difference."""
    return float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max())

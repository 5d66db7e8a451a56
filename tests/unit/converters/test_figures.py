"""Every figure has one row, and the row tells the truth about which side of it is good."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

from converters import figures, parity

# Softmax rows, scores each of its own, whole numbers, any real numbers: (SavedModel, nearly the same, far off).
_SCORES = np.array([[[0.7, 0.3]], [[0.2, 0.8]], [[0.9, 0.1]]])
_FRAMES = np.array([[[0.9, 0.8]], [[0.1, 0.2]], [[0.6, 0.1]]])
_WHOLE = np.array([[1], [2], [3]])
_REAL = np.array([[0.5], [-2.0], [4.0]])
_CASES = {
    "scores": (_SCORES, _SCORES + 0.001, _SCORES[..., ::-1]),
    "frames": (_FRAMES, _FRAMES + 0.001, 1 - _FRAMES),
    "real": (_REAL, _REAL + 0.01, _REAL[::-1]),
    "whole": (_WHOLE, _WHOLE, _WHOLE + np.array([[0], [1], [1]])),
}


@pytest.mark.parametrize("case", _CASES)
def test_the_good_side_is_the_side_of_the_better_answer(case: str) -> None:
    """Measured on an answer that is near and on one that is far off, each figure moves as its row says."""
    floats, near, far = _CASES[case]
    good, bad = parity.measure(floats, near), parity.measure(floats, far)
    assert len(good) >= 2
    for key, value in good.items():
        assert (value > bad[key]) if figures.of(key).higher else (value < bad[key])
        assert figures.of(key).meaning


def test_every_figure_that_is_defined_has_a_row() -> None:
    """The definitions are those of `converters.parity`: a name at the start of a line, or in the last one a list."""
    defined = parity.__doc__ or ""
    names = set(re.findall(r"^    (\w+)  ", defined, re.MULTILINE))
    names |= set(re.findall(r"\w+", re.sub(r"\(.*?\)", "", defined.rpartition("are given:")[2])))
    assert {figure.key for figure in figures.FIGURES} == names


def test_rows_are_told_apart() -> None:
    """No key and no name stands twice."""
    for a, b in itertools.combinations(figures.FIGURES, 2):
        assert a.key != b.key
        assert a.words != b.words


def test_what_labels_tell_comes_first() -> None:
    """An accuracy says more than a likeness; what no row knows comes last, and is shown as it is called."""
    assert figures.ordered(["zeta_1", "cosine", "mae", "saturated", "agreement", "alpha"]) == [
        "mae", "agreement", "cosine", "saturated", "alpha", "zeta_1",
    ]  # fmt: skip
    assert figures.columns(["mae", "mae_float", "accuracy_float", "cosine"]) == [
        ("accuracy_float", False), ("mae", True), ("cosine", False),
    ]  # fmt: skip
    assert figures.HEADLINES[0] == "accuracy"
    assert "accuracy_float" not in figures.HEADLINES
    shown: Any = figures.of("zeta_1")
    assert (shown.words, shown.meaning, shown.higher) == ("zeta 1", "", True)

"""The figures that a conversion is judged by: a row each, in the order a person looks for them.

How each is computed stands in `converters.parity`; here is how it is called, and which side of it is good.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Figure:
    """One figure. words: its name for a person; meaning: what it tells, for a person who does not know the name.

    higher: whether more is better. headline: whether it alone may stand for an output; the first that there is does.
    """

    key: str
    words: str
    meaning: str
    higher: bool = True
    headline: bool = False


FIGURES: Final = (
    Figure("accuracy", "accuracy", "share of rows whose class is the label", headline=True),
    Figure("accuracy_float", "accuracy of the SavedModel", "the same, of the model before it was converted"),
    Figure("mae", "mean absolute error", "mean distance from the labels", higher=False, headline=True),
    Figure("mae_float", "mean absolute error of the SavedModel", "the same, of the model before it was converted",
           higher=False),
    Figure("agreement", "argmax agreement", "share of rows for which both models find the same class", headline=True),
    Figure("class_f1", "worst class's F1", "the same of the class that fares worst: rare ones hardly count in a share"),
    Figure("f1", "F1", "how well both agree on which values reach the threshold: 1 is all, 0 none", headline=True),
    Figure("equal", "equal answers", "share of whole numbers that are the same", headline=True),
    Figure("r2", "share of the variance kept (R²)",
           "how much of what the values vary by is kept: 1 is all, 0 is no better than their mean", headline=True),
    Figure("r2_part", "worst column's R²", "the same of the column, channel or step that fares worst"),
    Figure("cosine", "cosine similarity", "whether all answers point the same way: 1 is the same, 0 unrelated",
           headline=True),
    Figure("snr_db", "signal to noise (dB)", "the answers' energy over the errors': 20 dB is an error of a tenth"),
    Figure("max_abs", "largest error", "largest distance from the SavedModel, in the output's units", higher=False),
    Figure("relative", "largest error / largest value", "the same as a share of the largest value", higher=False),
    Figure("saturated", "share beyond the range", "share of the SavedModel's values that the output cannot hold",
           higher=False),
)  # fmt: skip

_OWN = "_float"
_BY_KEY: Final = {figure.key: figure for figure in FIGURES}
HEADLINES: Final = tuple(figure.key for figure in FIGURES if figure.headline)


def of(key: str) -> Figure:
    """Return a figure's row; one that has none is shown as it is called."""
    return _BY_KEY.get(key) or Figure(key, key.replace("_", " "), "")


def columns(keys: Iterable[str]) -> list[tuple[str, bool]]:
    """Return the keys in order, each with whether the SavedModel's own figure is shown beside it, in one column."""
    found = set(keys)
    return [(key, own(key) in found) for key in ordered(found) if key.removesuffix(_OWN) not in found - {key}]


def own(key: str) -> str:
    """Return the key of the SavedModel's own figure."""
    return key + _OWN


def ordered(keys: Iterable[str]) -> list[str]:
    """Return the keys in the order of the rows; those without a row follow by name."""
    places = {figure.key: place for place, figure in enumerate(FIGURES)}
    return sorted(set(keys), key=lambda key: (places.get(key, len(places)), key))

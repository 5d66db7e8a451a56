"""The truth beside evaluation data, brought into the form that the figures need: class numbers, or targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from converters import kinds, parity
from converters.parity import Labels
from converters.samples import Array
from edged.errors import BadDataError

_ROWS_AND_CLASSES = 2


def bind(
    truth: Array | None, floats: Mapping[str, Array], names: Sequence[str], output: str, source: str
) -> Labels | None:
    """Return what `truth` says about one output, None where there is none.

    floats: the SavedModel's answers, output → [count, *shape]. names: of the classes. output: the one that was named,
    else "". Raises BadDataError for labels that fit no output, or several.
    """
    if truth is None:
        return None
    known = {name: answers for name, answers in floats.items() if output in ("", name)}
    if truth.dtype.kind == "f" and not _one_hot(truth, truth.size // truth.shape[-1]):
        return Labels(_only(_of_size(truth, known, source), source), targets=truth)
    classifiers = [name for name, answers in known.items() if kinds.alone(answers) in ("classes", "perhaps")]
    scores = classifiers or [name for name, answers in known.items() if _one_class_a_row(answers, truth)]
    if scores:
        wanted = _only(scores, source)
        classes = floats[wanted].shape[-1]
        return Labels(wanted, classes=class_numbers(names, truth, source, floats[wanted].size // classes, classes))
    return Labels(_only(_of_size(truth, known, source), source), targets=truth)


def _of_size(truth: Array, known: Mapping[str, Array], source: str) -> list[str]:
    """Return the outputs that hold as many numbers as `truth`; raises BadDataError where none does."""
    fitting = [name for name, answers in known.items() if truth.dtype.kind in "fiu" and answers.size == truth.size]
    if not fitting:
        shapes = ", ".join(f"{name} {list(answers.shape)}" for name, answers in known.items())
        raise BadDataError(source, f"labels {truth.dtype}{list(truth.shape)} fit no output: {shapes}")
    return fitting


def _one_class_a_row(answers: Array, truth: Array) -> bool:
    """Whether whole numbers or names are one for each row of several scores."""
    several = answers.dtype.kind == "f" and answers.ndim > _ROWS_AND_CLASSES and answers.shape[-1] > 1
    return several and truth.dtype.kind in "iuU" and truth.size == answers.size // answers.shape[-1]


def _only(outputs: Sequence[str], source: str) -> str:
    if len(outputs) > 1:
        advice = "name one in --postprocess: `output: NAME`"
        raise BadDataError(source, f"the labels may be of several outputs: {', '.join(outputs)}", advice)
    return outputs[0]


def doubts(labels: Labels | None, floats: Mapping[str, Array], source: str) -> list[str]:
    """Return what to say of labels that the SavedModel itself answers no better than a guess: they are another's."""
    if labels is None:
        return []
    answers = floats[labels.output]
    if labels.classes is not None:
        right, chance = parity.accuracy(answers, labels.classes), 1 / answers.shape[-1]
        said = f"its own accuracy is {right:.1%}, a guess has {chance:.1%}" if right <= chance else ""
    elif labels.targets is not None and labels.targets.size > 1:
        error, spread = parity.mean_absolute_error(answers, labels.targets), float(labels.targets.std())
        said = f"its own mean absolute error is {error:.4g}, they vary by {spread:.4g} only" if error > spread else ""
    else:
        said = ""
    return [f"{source}: the labels do not fit this model: {said}"] if said else []


def class_numbers(names: Sequence[str], truth: Array, source: str, rows: int, classes: int) -> Array:
    """Return labels as class numbers: they are numbers or `names`, one for each row, below `classes`.

    Raises BadDataError for others.
    """
    if _one_hot(truth, rows):
        shape = f"labels of shape {list(truth.shape)} for {rows} rows"
        raise BadDataError(source, shape, "looks one-hot: give class numbers, e.g. y.argmax(1)")
    if truth.size != rows:
        raise BadDataError(source, f"labels of shape {list(truth.shape)} for {rows} rows", "one class for each row")
    if truth.dtype.kind in "iu":
        _check_range(truth, classes, source)
        return truth
    if truth.dtype.kind != "U" or not names:
        raise BadDataError(source, f"labels of dtype {truth.dtype}", "class numbers, or names with --labels")
    unknown = sorted(set(truth.ravel().tolist()) - set(names))
    if unknown:
        raise BadDataError(source, f"label {unknown[0]!r} is not in --labels")
    numbers: Array = np.vectorize(list(names).index, otypes=[np.int64])(truth)
    _check_range(numbers, classes, source)
    return numbers


def _check_range(numbers: Array, classes: int, source: str) -> None:
    wrong = numbers[(numbers < 0) | (numbers >= classes)]
    if wrong.size:
        advice = "the first class is 0" if numbers.min() == 1 and numbers.max() == classes else ""
        what = f"label {wrong[0]} is no class of the model: it has {classes}, numbered from 0 to {classes - 1}"
        raise BadDataError(source, what, advice)


def _one_hot(truth: Array, rows: int) -> bool:
    """Whether it holds a share of every class where one class number is wanted."""
    if truth.ndim < _ROWS_AND_CLASSES or truth.shape[-1] < _ROWS_AND_CLASSES or truth.dtype.kind not in "fiub":
        return False
    # [samples, batch] whole numbers are class numbers, whatever they add up to.
    numbers = truth.dtype.kind in "iu" and truth.size == rows
    return not numbers and bool(np.allclose(truth.sum(axis=-1, dtype=np.float64), 1.0, atol=1e-3))

"""The SavedModel's own answers, which every converted file is held against. Runs in the TensorFlow child.

A bundle promises a fixed shape for every output. TensorFlow leaves the batch behind a recurrent layer open though it is
fixed in truth, and so does the converter; a mask leaves open what the data decide. Which of both it is shows when the
model runs: data of other kinds than the samples must get answers of the same shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np

from converters import calibrate
from converters.samples import Array, Samples
from converters.savedmodel import Loaded
from edged.errors import BadDataError
from edged.shown import first_line

# Samples of each kind that are tried for an output of an open shape.
_TRIED = 4
# TensorFlow begins its errors with the function that was being run, by a name of its own making.
_FUNCTION = re.compile(r"^\{\{.*?\}\}\s*")


def of(loaded: Loaded, samples: Samples) -> dict[str, Array]:
    """Return the SavedModel's outputs on every sample, name → [count, *shape].

    Raises BadDataError for a sample that it cannot run on or answers with NaN, and for a shape that depends on data.
    """
    answers: list[dict[str, Array]] = []
    for i in range(samples.count):
        answer = _one(loaded, samples, i)
        _check_nan(answer, samples, i)
        for name, value in answer.items():
            _check_shape(name, (answers or [answer])[0][name], value)
        answers.append(answer)
    _check_fixed(loaded, samples, answers[0])
    return {name: np.stack([answer[name] for answer in answers]) for name in sorted(answers[0])}


def _one(loaded: Loaded, samples: Samples, i: int) -> dict[str, Array]:
    import tensorflow as tf  # noqa: PLC0415  # child process only

    try:
        return loaded({name: a[i] for name, a in samples.arrays.items()})
    except tf.errors.OpError as exc:
        said = _FUNCTION.sub("", first_line(exc))
        if samples.random:
            what = f"the model cannot be run on random inputs: {said}"
            raise BadDataError("SavedModel", what, "give samples it can answer: --eval") from exc
        raise BadDataError(samples.source, f"the SavedModel cannot be run on sample {i}: {said}") from exc


def _check_nan(answer: Mapping[str, Array], samples: Samples, i: int) -> None:
    for name, value in answer.items():
        if value.dtype.kind == "f" and np.isnan(value).any():
            raise BadDataError(
                samples.source,
                f"the SavedModel itself answers NaN in output {name!r} for sample {i}",
                "give samples it can answer: --eval",
            )


def _check_shape(name: str, known: Array, found: Array) -> None:
    if found.shape != known.shape:
        shapes = f"{list(known.shape)} for one input, {list(found.shape)} for another"
        advice = "give it a fixed size in the model: mark what does not count, or fill up, instead of leaving it out"
        raise BadDataError("SavedModel", f"output {name!r} has a shape that depends on the data: {shapes}", advice)


def _check_fixed(loaded: Loaded, samples: Samples, known: Mapping[str, Array]) -> None:
    """Raise BadDataError where an output of an open shape gets another one from other data."""
    import tensorflow as tf  # noqa: PLC0415  # child process only

    for sample in _others(loaded, samples) if loaded.open_outputs else ():
        try:
            answer = loaded(sample)
        except tf.errors.OpError:  # nobody's data: the model need not take it
            continue
        for name in loaded.open_outputs:
            _check_shape(name, known[name], answer[name])


def _others(loaded: Loaded, samples: Samples) -> Iterator[dict[str, Array]]:
    """Yield samples unlike those that were given: zeros, rows that are all alike, their negatives, random ones."""
    yield {name: np.zeros_like(array[0]) for name, array in samples.arrays.items()}
    yield {name: _ramp(array[0]) if array.dtype.kind == "f" else array[0] for name, array in samples.arrays.items()}
    for i in range(min(_TRIED, samples.count)):
        yield {name: -a[i] if a.dtype.kind == "f" else a[i] for name, a in samples.arrays.items()}
    drawn = calibrate.random_samples(loaded.inputs, _TRIED)
    for i in range(_TRIED):
        yield {name: array[i] for name, array in drawn.arrays.items()}


def _ramp(like: Array) -> Array:
    """Return 0, 1, 2, … along the last axis: as boxes, all the same one, of which a detector keeps a single one."""
    steps = np.arange(like.shape[-1] if like.ndim else 1, dtype=like.dtype)
    return np.broadcast_to(steps, like.shape) if like.ndim else steps[0]

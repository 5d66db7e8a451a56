"""Arrays bound to a model's inputs by name and checked before anything uses them.

A wrong dtype, shape or a NaN in calibration data is accepted by the TensorFlow converter, or kills it; a person learns
it here, with the sample's number and the input's name.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from edged.checks import hint
from edged.errors import BadDataError

Array = npt.NDArray[Any]
# The last axis of what looks like pixels.
_CHANNELS = (1, 3, 4)
_IMAGE_RANK = 4
# A chunk of the finiteness check: bounds its memory on large arrays.
_CHUNK = 1 << 20


@dataclass(frozen=True)
class InputInfo:
    """An input of the model: signature name, numpy dtype name, full shape (batch included)."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def is_float(self) -> bool:
        """Whether it takes real numbers."""
        return np.issubdtype(np.dtype(self.dtype), np.floating)


@dataclass(frozen=True)
class Samples:
    """Checked samples: input name → array [count, *shape] in the input's dtype.

    labels: [count, …] whole numbers (classes), text (names of classes) or finite floats (what a regression should have
    answered), or None. random: nobody's data, drawn where none were given.
    """

    source: str
    arrays: Mapping[str, Array]
    labels: Array | None = None
    notes: tuple[str, ...] = ()
    random: bool = False

    @property
    def count(self) -> int:
        """How many samples there are."""
        return len(next(iter(self.arrays.values())))

    def take(self, index: npt.NDArray[np.int_]) -> Samples:
        """Return the samples at `index`, without the notes."""
        labels = None if self.labels is None else self.labels[index]
        arrays = {name: array[index] for name, array in self.arrays.items()}
        return replace(self, arrays=arrays, labels=labels, notes=())


def bind(raw: Mapping[str, Array], inputs: tuple[InputInfo, ...], source: str, labels: Array | None = None) -> Samples:
    """Bind arrays to inputs by name, check and cast them.

    Each array is [count, *shape] or, without the batch, [count, *shape[1:]]; in the second form `shape[0]` rows make
    one sample. Raises BadDataError naming the array, and the sample where it is one.
    """
    _check_names(list(raw), inputs, source)
    notes: list[str] = []
    arrays = {info.name: _checked(np.asarray(raw[info.name]), info, source, notes) for info in inputs}
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) > 1:
        raise BadDataError(source, f"the inputs have different numbers of samples: {counts}")
    count = next(iter(counts.values()))
    if count == 0:
        raise BadDataError(source, "holds no sample")
    return Samples(source, arrays, _grouped_labels(labels, count, inputs[0], source), tuple(notes))


def _check_names(names: list[str], inputs: tuple[InputInfo, ...], source: str) -> None:
    known = [info.name for info in inputs]
    missing = [name for name in known if name not in names]
    extra = [name for name in names if name not in known]
    if extra:
        raise BadDataError(
            source, f"{extra[0]!r} is no input of the model{hint(extra[0], known)}", f"inputs: {', '.join(known)}"
        )
    if missing:
        raise BadDataError(source, f"no array for input {missing[0]!r}", f"it has: {', '.join(names) or 'nothing'}")


def _checked(array: Array, info: InputInfo, source: str, notes: list[str]) -> Array:
    where = f"{source}, input {info.name!r}"
    array = _cast(_grouped(array, info, where, notes), info, where, notes)
    _check_finite(array, where)
    return array


def _grouped(array: Array, info: InputInfo, where: str, notes: list[str]) -> Array:
    """Return the array as [count, *shape]."""
    if array.ndim == len(info.shape) + 1 and array.shape[1:] == info.shape:
        return array
    if info.shape and array.ndim == len(info.shape) and array.shape[1:] == info.shape[1:]:
        batch = info.shape[0]
        whole = len(array) // batch * batch
        if whole < len(array):
            notes.append(f"{where}: the last {len(array) - whole} rows fill no batch of {batch} and are left out")
        return array[:whole].reshape((-1, *info.shape))
    wanted = f"[count, {_dims(info.shape)}]" + (f" or [count, {_dims(info.shape[1:])}]" if info.shape[1:] else "")
    raise BadDataError(
        where, f"has shape {list(array.shape)}, wanted {wanted}", _shape_hint(array.shape, info.shape[1:])
    )


def _shape_hint(found: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """Return what was most likely forgotten. wanted: one sample without its batch."""
    one = found[1:]
    if found == wanted:
        return "a single sample: x[np.newaxis]"
    if wanted[-1:] == (1,) and one == wanted[:-1]:
        return "the last axis is missing: x[..., np.newaxis]"
    if one[-1:] == (1,) and one[:-1] == wanted:
        return "an axis too many: x[..., 0]"
    axes = [order for order in itertools.permutations(range(len(one))) if tuple(one[i] for i in order) == wanted]
    if len(one) <= _IMAGE_RANK and len(axes) == 1:
        return f"transposed: x.transpose({', '.join(str(i + 1) for i in (-1, *axes[0]))})"
    if one and math.prod(one) == math.prod(wanted):
        return f"x.reshape({_dims((-1, *wanted))}), if the values are in that order"
    return ""


def _dims(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape))


def _cast(array: Array, info: InputInfo, where: str, notes: list[str]) -> Array:
    """Return the array in the input's dtype; raises BadDataError where that would change its meaning."""
    wanted = np.dtype(info.dtype)
    if array.dtype == wanted:
        return array
    if array.dtype.kind not in "fiub":
        raise BadDataError(where, f"holds {_dtype_text(array)}, the model takes {wanted.name}")
    if wanted.kind == "f":
        return _to_float(array, wanted, where, notes)
    if array.dtype.kind == "f" or (wanted.kind == "b") != (array.dtype.kind == "b"):
        raise BadDataError(where, f"holds {array.dtype.name}, the model takes {wanted.name}")
    limits = np.iinfo(wanted)
    outside = np.flatnonzero(((array < limits.min) | (array > limits.max)).reshape(len(array), -1).any(axis=1))
    if outside.size:
        raise BadDataError(where, f"sample {outside[0]} does not fit {wanted.name}")
    return array.astype(wanted)


def _to_float(array: Array, wanted: np.dtype[Any], where: str, notes: list[str]) -> Array:
    if array.dtype.kind != "f":
        pixels = array.dtype == np.uint8 and array.ndim > _IMAGE_RANK and array.shape[-1] in _CHANNELS
        if not pixels:
            advice = f"scale it as for training, then x.astype('{wanted.name}')"
            raise BadDataError(where, f"holds {array.dtype.name}, the model takes {wanted.name}", advice)
        notes.append(f"{where}: uint8 pixels are taken as they are, 0 to 255")
    elif array.dtype.itemsize > wanted.itemsize:
        notes.append(f"{where}: {array.dtype.name} is cast to {wanted.name}")
    with np.errstate(over="ignore"):  # what does not fit becomes Inf, and is refused by name below
        return array.astype(wanted)


def _dtype_text(array: Array) -> str:
    return {"U": "text", "S": "text", "O": "Python objects"}.get(array.dtype.kind, array.dtype.name)


def _check_finite(array: Array, where: str) -> None:
    if array.dtype.kind != "f" or not len(array):
        return
    rows = max(1, _CHUNK // max(1, array[0].size))
    for start in range(0, len(array), rows):
        good = np.isfinite(array[start : start + rows]).reshape(len(array[start : start + rows]), -1).all(axis=1)
        if not good.all():
            raise BadDataError(where, f"sample {start + int(np.argmin(good))} holds NaN or Inf")


def _grouped_labels(labels: Array | None, count: int, first: InputInfo, source: str) -> Array | None:
    if labels is None:
        return None
    labels = _checked_labels(labels, source)
    if len(labels) == count:
        return labels
    batch = first.shape[0] if first.shape else 1
    whole = count * batch
    if len(labels) // batch != count:
        raise BadDataError(source, f"{len(labels)} labels for {whole} rows")
    return labels[:whole].reshape((count, batch, *labels.shape[1:]))


def _checked_labels(labels: Array, source: str) -> Array:
    """Return class numbers, names or finite floats; raises BadDataError for anything else."""
    if not labels.ndim:
        raise BadDataError(source, "the labels are a single value", "one for each sample")
    if labels.dtype.kind == "b":
        return labels.astype(np.int64)
    if labels.dtype.kind not in "iufU":
        raise BadDataError(source, f"labels of dtype {labels.dtype}", "whole numbers, names (str) or floats")
    if labels.dtype.kind == "f" and not (good := np.isfinite(labels).reshape(len(labels), -1).all(axis=1)).all():
        raise BadDataError(source, f"the label of sample {int(np.argmin(good))} is NaN or Inf")
    return labels

"""Nested lists into tensors, strictly: the shape must be the input's, and every value must fit its dtype.

Nothing is guessed by numpy, which would turn "1.5" and True into numbers and one long string into a huge array. The
lists are flattened level by level while their lengths are those of the shape, so the work is bounded by the model's
input whatever was sent, one list many times or within itself included. Lists of plain numbers run no Python code per
value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np

from edged.bundle import TensorSpec
from edged.codecs.base import Array
from edged.codecs.common import all_finite, describe, invalid
from edged.errors import Code, RequestError


def fill(value: object, spec: TensorSpec, array: Array) -> None:
    """Write `value` (nested lists, batch first) into `array`.

    Raises INVALID_ARGUMENT naming the input, the position and what was found there: another shape, a ragged list, a
    value of another type (bools are no numbers), a number beyond the dtype, NaN or Inf. An integral float (1.0) may
    stand for an integer. Raises UNIMPLEMENTED for a dtype that has no such form (complex).
    """
    write = _WRITERS.get(array.dtype.kind)
    if write is None:
        raise RequestError(Code.UNIMPLEMENTED, f"input {spec.name!r} is {spec.dtype}: send it raw or as npy")
    leaves = _leaves(value, array.shape)
    if leaves is None:
        raise invalid(f"input {spec.name!r}{_shape_problem(value, array.shape)}")
    write(leaves, spec, array)


def _leaves(value: object, shape: tuple[int, ...]) -> list[Any] | None:
    """Return the values in C order; None when the lists do not have this shape."""
    level: list[Any] = [value]
    for size in shape:
        if not set(map(type, level)) <= {list} or not set(map(len, level)) <= {size}:
            return None
        level = list(chain.from_iterable(level))
    return level


def _shape_problem(value: object, shape: tuple[int, ...]) -> str:
    found = _first_shape(value, len(shape))
    if found != shape:
        return f": expected shape {list(shape)}, got {list(found)}"
    return _ragged(value, shape, "")


def _first_shape(value: object, depth: int) -> tuple[int, ...]:
    """Return the shape the first elements show, at most one level deeper than `depth`."""
    found: tuple[int, ...] = ()
    while isinstance(value, list) and len(found) <= depth:
        found += (len(value),)
        value = value[0] if value else None
    return found


def _ragged(value: object, shape: tuple[int, ...], at: str) -> str:
    if not shape:
        return ""
    if not isinstance(value, list) or len(value) != shape[0]:
        return f" at {at}: expected a list of {shape[0]}, got {describe(value)}"
    return next(filter(None, (_ragged(item, shape[1:], f"{at}[{i}]") for i, item in enumerate(value))), "")


def _write_floats(leaves: list[Any], spec: TensorSpec, array: Array) -> None:
    if not set(map(type, leaves)) <= {int, float}:
        raise _refused(leaves, spec, array, "a number", lambda leaf: type(leaf) in (int, float))
    limit = float(np.finfo(array.dtype).max)
    try:
        found = np.array(leaves, dtype=np.float64)
    except OverflowError:  # an integer beyond float64
        raise _refused(leaves, spec, array, f"at most {limit:.6g}", lambda leaf: abs(leaf) <= limit) from None
    with np.errstate(over="ignore"):
        np.copyto(array, found.reshape(array.shape), casting="unsafe")
    if not all_finite(array):
        finite = iter(np.isfinite(array).ravel().tolist())
        raise _refused(leaves, spec, array, f"a number of at most {limit:.6g}", lambda _: next(finite))


def _write_integers(leaves: list[Any], spec: TensorSpec, array: Array) -> None:
    types = set(map(type, leaves))
    if not types <= {int, float}:
        raise _refused(leaves, spec, array, "an integer", lambda leaf: type(leaf) in (int, float))
    if float in types:
        if not all(type(leaf) is int or leaf.is_integer() for leaf in leaves):
            raise _refused(leaves, spec, array, "an integer", lambda leaf: math.isfinite(leaf) and leaf == int(leaf))
        leaves = list(map(int, leaves))
    limits = np.iinfo(array.dtype)
    if leaves and not limits.min <= min(leaves) <= max(leaves) <= limits.max:
        want = f"{limits.min} to {limits.max}"
        raise _refused(leaves, spec, array, want, lambda leaf: limits.min <= leaf <= limits.max)
    np.copyto(array, np.array(leaves, dtype=array.dtype).reshape(array.shape))


def _write_bools(leaves: list[Any], spec: TensorSpec, array: Array) -> None:
    if not set(map(type, leaves)) <= {bool}:
        raise _refused(leaves, spec, array, "true or false", lambda leaf: type(leaf) is bool)
    np.copyto(array, np.array(leaves, dtype=np.bool_).reshape(array.shape))


_WRITERS: dict[str, Callable[[list[Any], TensorSpec, Array], None]] = {
    "f": _write_floats,
    "i": _write_integers,
    "u": _write_integers,
    "b": _write_bools,
}


def _refused(leaves: list[Any], spec: TensorSpec, array: Array, want: str, good: Callable[[Any], bool]) -> RequestError:
    """Make the error for the first leaf that is not good."""
    flat = next(i for i, leaf in enumerate(leaves) if not good(leaf))
    index = "".join(f"[{int(i)}]" for i in np.unravel_index(flat, array.shape))
    leaf = leaves[flat]
    hint = ' (base64 is for strings; send tensors as numbers, "raw" or "npy")' if _is_base64(leaf) else ""
    where = f"input {spec.name!r}" + (f" at {index}" if index else "")
    return invalid(f"{where}: expected {want} ({array.dtype.name}), got {describe(leaf)}{hint}")


def _is_base64(leaf: object) -> bool:
    """Whether this is TF Serving's form of a byte string, {"b64": "…"}."""
    return isinstance(leaf, dict) and set(leaf) == {"b64"}

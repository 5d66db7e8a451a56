"""What several codecs share: how a payload is refused, what is checked of every input, what is said beside outputs."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edged import postprocess
from edged.bundle import Signature, TensorSpec
from edged.codecs.base import HINT, Array
from edged.errors import Code, RequestError

# What a payload of text may hold beyond its numbers: other keys, blanks, a longer line here and there.
ALLOWANCE = 64 * 1024  # bytes
ALLOWED_OPENINGS = 1024
_NUMBER = 32  # characters of a number with its comma and line end; the longest float64 has 24
_INDENT = 4  # blanks a level, where each number and each bracket has a line of its own
_OUTER_LEVELS = 3  # around an input's own dimensions: the object, "instances" or "inputs", an object by name
_ESCAPED = 12  # characters of one character of a name: two \uXXXX
_HEAD = 9  # bytes of the longest CBOR head with its argument (RFC 8949, section 3)
_SHOWN = 40  # characters of a client's text that an error repeats
_SHOWN_BITS = 128  # a longer integer is named by its size: turning it into digits takes quadratic time
_LITTLE = sys.byteorder == "little"
DType = np.dtype[Any]
_largest = np.maximum.reduce


def _bits(size: int, infinity: int) -> tuple[DType, int, DType, int]:
    """Return a float's bits as a signed and as an unsigned integer, each with its least value that is not finite."""
    return np.dtype(f"i{size}"), infinity, np.dtype(f"u{size}"), infinity | 1 << (8 * size - 1)


_BITS = {
    np.dtype(kind): _bits(size, infinity)
    for kinds, size, infinity in (("e", 2, 0x7C00), ("fF", 4, 0x7F80_0000), ("dD", 8, 0x7FF0 << 48))
    for kind in kinds
}


def invalid(what: str) -> RequestError:
    """Make the error for a payload that is wrong."""
    return RequestError(Code.INVALID_ARGUMENT, what)


def describe(value: object) -> str:
    """Name a value a client sent, in few characters whatever it is."""
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value)} bytes"
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, (str, int, float)) or value is None:
        text = repr(value)
        return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return f"a {type(value).__name__}"


def refuse_too_large(size: int, signature: Signature, *, text: bool) -> None:
    """Raise INVALID_ARGUMENT, before anything is parsed, for more bytes than the model's inputs take in nested arrays.

    text: JSON, pretty-printed with up to `_INDENT` blanks a level; else CBOR, each head as long as it can be. Parsing
    takes some twenty times the payload in memory and cannot be interrupted, so a model of few inputs must not wait for
    a payload of many.
    """
    if size <= ALLOWANCE:  # within every bound
        return
    bound = ALLOWANCE + sum(_size(spec, text=text) for spec in signature.inputs)
    if size > bound:
        raise invalid(f"a payload of {size} bytes; {input_names(signature)}, which take at most {bound} bytes here")


def refuse_too_many(openings: int, signature: Signature) -> None:
    """Raise INVALID_ARGUMENT for more lists and objects than the model's inputs have: they cost most of all."""
    if openings <= ALLOWED_OPENINGS:
        return
    bound = ALLOWED_OPENINGS + sum(_arrays(spec) + _rows(spec) for spec in signature.inputs)
    if openings > bound:
        raise invalid(f"{openings} lists and objects; {input_names(signature)}, which have at most {bound}")


def _size(spec: TensorSpec, *, text: bool) -> int:
    line = _NUMBER + _INDENT * (len(spec.shape) + _OUTER_LEVELS) if text else _HEAD
    return line * items(spec) + _rows(spec) * (2 * line + _ESCAPED * len(spec.name))


def items(spec: TensorSpec) -> int:
    """Return of how many items the nested form is made: a number for each element, each list's beginning and end."""
    return spec.elements + 2 * _arrays(spec)


def _arrays(spec: TensorSpec) -> int:
    """Return how many lists the nested form has."""
    return sum(math.prod(spec.shape[:depth]) for depth in range(len(spec.shape)))


def _rows(spec: TensorSpec) -> int:
    """Return how often the input's name can stand in a payload: in the row form once a row."""
    return max((1, *spec.shape[:1]))


def input_names(signature: Signature) -> str:
    """Name the declared inputs, as the end of an error."""
    return f"the model's inputs are {', '.join(repr(spec.name) for spec in signature.inputs)}"


def first_false(mask: Array) -> str:
    """Return the index of the first False as `[i, j, …]`."""
    return str([int(i) for i in np.unravel_index(int(np.argmin(mask)), mask.shape)])


def all_finite(array: Array) -> bool:
    """Whether a float or complex array holds no NaN or Inf; allocates nothing where it is contiguous and native.

    It looks at the bits: IEEE 754 puts Inf and, above it, all NaNs at the end of each sign's range. The largest value
    as a signed integer tells of the positive ones, as an unsigned one of the negative ones. (A sum would tell as well,
    but overflows, and the warnings of that have to be turned off around it, which costs more than the sum.)
    """
    bits = _BITS.get(array.dtype)
    if bits is None:  # no floats; other byte orders, for which there is time
        return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())
    if not array.size:
        return True
    signed, positive, unsigned, negative = bits
    flat = array.reshape(-1)
    return bool(_largest(flat.view(signed)) < positive and _largest(flat.view(unsigned)) < negative)


def accept(array: Array, spec: TensorSpec) -> None:
    """Check what was just written into an input: floats are finite, bools are 0 or 1. Raises INVALID_ARGUMENT."""
    if not all_finite(array):
        raise invalid(f"input {spec.name!r} is NaN or infinite at {first_false(np.isfinite(array))}")
    if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise invalid(f"input {spec.name!r} is bool, but byte {first_false(array.view(np.uint8) <= 1)} is not 0 or 1")


def copy_elements(source: Array, spec: TensorSpec, array: Array) -> None:
    """Copy `source` (same shape and kind, any byte order) into an input and check it."""
    np.copyto(array, source, casting="equiv")
    accept(array, spec)


def little(dtype: DType) -> DType:
    """Return the dtype in little-endian order."""
    return dtype if _LITTLE and dtype.isnative else dtype.newbyteorder("<")


def little_endian(array: Array) -> Array:
    """Return the array C-ordered and little-endian; itself when it is so already."""
    return np.asarray(array, dtype=little(array.dtype), order="C")


def in_order(named: Mapping[Any, object], signature: Signature, where: str) -> list[object]:
    """Return the values in the order of the declared inputs; raises INVALID_ARGUMENT for missing and unknown names."""
    names = [spec.name for spec in signature.inputs]
    missing = [name for name in names if name not in named]
    unknown = [key for key in named if key not in names]
    if missing or unknown:
        wrong = [f"{name!r} is missing" for name in missing] + [f"{describe(key)} is unknown" for key in unknown[:3]]
        raise invalid(f"{where}: {', '.join(wrong)}; {input_names(signature)}")
    return [named[name] for name in names]


def answer(
    body: Mapping[str, object], outputs: Sequence[Array], signature: Signature, annotations: Mapping[str, object]
) -> dict[str, object]:
    """Return `body` (first, so that no fact makes an answer begin as an error does) with what JSON and CBOR add to it.

    That is "classes", where the bundle asks for them, and the facts among `annotations`; a fact never replaces a key.
    """
    found = postprocess.classes(outputs, signature)
    whole = dict(body) | ({"classes": found} if found else {})
    return whole | {key: value for key, value in annotations.items() if key not in whole and not key.startswith(HINT)}

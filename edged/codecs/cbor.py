"""CBOR (RFC 8949): `{"inputs": {name: tensor}}` in, `{"outputs": {name: tensor}}` back, always by name.

A tensor is one of
- tag 40 (multi-dimensional array, row-major) around [dimensions, typed array];
- a typed array alone: all elements in row-major order;
- nested arrays of numbers or booleans, batch first, as in JSON.
Typed arrays are those of RFC 8746, either byte order: tags 64-67 and 69-71 (unsigned), 72-75 and 77-79 (signed), 80-82
and 84-86 (float16, 32, 64). The element type must be the input's; a leading batch dimension of 1 may be left out.
Answers use tag 40 around a little-endian typed array, and nested arrays for booleans, for which RFC 8746 has no tag;
`classes` and annotations stand beside "outputs". NaN and Inf are refused in requests and passed on in answers.
Importing this module needs the `cbor` extra.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import cbor2
import numpy as np

from edged.bundle import Signature, TensorSpec
from edged.codecs import nested
from edged.codecs.base import NO_ANNOTATIONS, Array
from edged.codecs.common import answer, copy_elements, describe, in_order, invalid, little_endian
from edged.errors import Code, RequestError
from edged.request import Buffer

MULTI_DIMENSIONAL = 40
TYPED_ARRAYS = {
    64: "|u1", 65: ">u2", 66: ">u4", 67: ">u8", 69: "<u2", 70: "<u4", 71: "<u8",
    72: "|i1", 73: ">i2", 74: ">i4", 75: ">i8", 77: "<i2", 78: "<i4", 79: "<i8",
    80: ">f2", 81: ">f4", 82: ">f8", 84: "<f2", 85: "<f4", 86: "<f8",
}  # fmt: skip
_TAGS = {np.dtype(code): tag for tag, code in TYPED_ARRAYS.items() if code[0] != ">"}

# Beside its own errors: what the semantic tags (dates, big floats, patterns, …) raise that cbor2 decodes by itself.
_DECODE_ERRORS = (
    cbor2.CBORDecodeError,
    ValueError,
    TypeError,
    ArithmeticError,
    LookupError,
    AttributeError,
    RecursionError,
    EOFError,
    re.error,
)


class Cbor:
    """`application/cbor`."""

    name: ClassVar[str] = "cbor"
    content_type: ClassVar[str] = "application/cbor"
    reply_codec: ClassVar[str] = "cbor"

    def decode(self, payload: Buffer, signature: Signature, into: Sequence[Array]) -> None:
        """Fill `into`; raises INVALID_ARGUMENT for anything but the map above, as `nested.fill` does for lists."""
        body = _parse(payload)
        if not isinstance(body, dict) or set(body) != {"inputs"} or not isinstance(body["inputs"], dict):
            raise invalid('expected a map {"inputs": {name: tensor}}')
        values = in_order(body["inputs"], signature, "inputs")
        for value, spec, array in zip(values, signature.inputs, into, strict=True):
            _fill(value, spec, array)

    def encode(
        self, outputs: Sequence[Array], signature: Signature, annotations: Mapping[str, object] = NO_ANNOTATIONS
    ) -> bytes:
        """Return the map; raises INTERNAL for an output or annotation that has no CBOR form."""
        named = {spec.name: _tensor(output) for spec, output in zip(signature.outputs, outputs, strict=True)}
        try:
            return bytes(cbor2.dumps(answer({"outputs": named}, outputs, signature, annotations)))
        except (cbor2.CBOREncodeError, TypeError, ValueError) as exc:
            raise RequestError(Code.INTERNAL, f"the answer cannot be said in CBOR: {exc}") from exc


def _parse(payload: Buffer) -> Any:
    stream = io.BytesIO(payload)
    try:
        body = cbor2.load(stream)
    except _DECODE_ERRORS as exc:
        raise invalid(f"not valid CBOR: {str(exc)[:200]}") from exc
    if stream.read(1):
        raise invalid("bytes left over after the CBOR item")
    return body


def _fill(value: object, spec: TensorSpec, array: Array) -> None:
    if not isinstance(value, cbor2.CBORTag):
        nested.fill(value, spec, array)
        return
    shape: tuple[int, ...] | None = None
    if value.tag == MULTI_DIMENSIONAL:
        shape, value = _dimensions(value.value, spec)
    if shape is not None and array.shape not in (shape, (1, *shape)):
        raise invalid(f"input {spec.name!r}: expected shape {list(array.shape)}, got {describe(list(shape))}")
    copy_elements(_elements(value, spec, array).reshape(array.shape), spec, array)


def _dimensions(content: Any, spec: TensorSpec) -> tuple[tuple[int, ...], object]:
    match content:
        case [[*dimensions], elements] if all(type(size) is int for size in dimensions):
            return tuple(dimensions), elements
    raise invalid(f"input {spec.name!r}: tag 40 must hold [dimensions, typed array], got {describe(content)}")


def _elements(value: Any, spec: TensorSpec, array: Array) -> Array:
    """Return the typed array's elements, a view of its bytes."""
    match value:
        case cbor2.CBORTag(tag=int(tag), value=bytes(data)) if tag in TYPED_ARRAYS:
            dtype = np.dtype(TYPED_ARRAYS[tag])
        case _:
            raise invalid(f"input {spec.name!r}: expected a typed array (RFC 8746), got {describe(value)}")
    if dtype.newbyteorder("=") != array.dtype:
        raise invalid(f"input {spec.name!r}: expected {array.dtype.name}, got {dtype.name}")
    if len(data) != array.nbytes:
        raise invalid(f"input {spec.name!r}: expected {array.nbytes} bytes, got {len(data)}")
    return np.frombuffer(data, dtype) if data else np.empty(0, dtype)


def _tensor(output: Array) -> object:
    little = little_endian(output)
    tag = _TAGS.get(little.dtype)
    if tag is None:
        return output.tolist()
    return cbor2.CBORTag(MULTI_DIMENSIONAL, [list(output.shape), cbor2.CBORTag(tag, little.tobytes())])

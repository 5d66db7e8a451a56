"""CBOR (RFC 8949): `{"inputs": {name: tensor}}` in, `{"outputs": {name: tensor}}` back, always by name.

A tensor is one of
- tag 40 (multi-dimensional array, row-major) around [dimensions, typed array];
- a typed array alone: all elements in row-major order;
- nested arrays of numbers or booleans, batch first, as in JSON.
Typed arrays are those of RFC 8746, either byte order: tags 64-67 and 69-71 (unsigned), 72-75 and 77-79 (signed), 80-82
and 84-86 (float16, 32, 64). The element type must be the input's; a leading batch dimension of 1 may be left out.
The maps and arrays may be of definite or indefinite length, strings are definite; every other tag is refused.
Answers use tag 40 around a little-endian typed array, and nested arrays for booleans, for which RFC 8746 has no tag;
`classes` and annotations stand beside "outputs". NaN and Inf are refused in requests and passed on in answers.
Importing this module needs the `cbor` extra.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import cbor2
import numpy as np

from edged.bundle import Signature, TensorSpec
from edged.codecs import cborform, nested
from edged.codecs.base import NO_ANNOTATIONS, Array
from edged.codecs.common import (
    answer,
    copy_elements,
    describe,
    in_order,
    invalid,
    little_endian,
    refuse_too_large,
)
from edged.errors import Code, RequestError
from edged.request import Buffer

_TAGS = {np.dtype(code): tag for tag, code in cborform.TYPED_ARRAYS.items() if code[0] != ">"}


class Cbor:
    """`application/cbor`."""

    name: ClassVar[str] = "cbor"
    content_type: ClassVar[str] = "application/cbor"
    reply_codec: ClassVar[str] = "cbor"

    def decode(self, payload: Buffer, signature: Signature, into: Sequence[Array]) -> None:
        """Fill `into`; raises INVALID_ARGUMENT for anything but the map above, as `nested.fill` does for lists."""
        data = memoryview(payload).cast("B")
        refuse_too_large(len(data), signature, text=False)
        values = in_order(cborform.read(data, signature), signature, "inputs")
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


def _fill(value: object, spec: TensorSpec, array: Array) -> None:
    if isinstance(value, cborform.Typed):
        _fill_typed(value, spec, array)
    else:
        nested.fill(value, spec, array)


def _fill_typed(value: cborform.Typed, spec: TensorSpec, array: Array) -> None:
    data, dtype, shape = value
    if shape is not None and array.shape not in (shape, (1, *shape)):
        raise invalid(f"input {spec.name!r}: expected shape {list(array.shape)}, got {describe(list(shape))}")
    if dtype.newbyteorder("=") != array.dtype:
        raise invalid(f"input {spec.name!r}: expected {array.dtype.name}, got {dtype.name}")
    if len(data) != array.nbytes:
        raise invalid(f"input {spec.name!r}: expected {array.nbytes} bytes, got {len(data)}")
    if array.size:  # np.frombuffer refuses an empty buffer
        copy_elements(np.frombuffer(data, dtype).reshape(array.shape), spec, array)


def _tensor(output: Array) -> object:
    little = little_endian(output)
    tag = _TAGS.get(little.dtype)
    if tag is None:
        return output.tolist()
    return cbor2.CBORTag(cborform.MULTI_DIMENSIONAL, [list(output.shape), cbor2.CBORTag(tag, little.tobytes())])

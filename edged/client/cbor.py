"""CBOR (RFC 8949) as a device takes and gives it: maps by name, tensors as typed arrays (RFC 8746), without a library.

A general decoder is a risk in front of strangers: a few bytes of some tags hold it for seconds. A reply needs definite
lengths, texts, numbers, lists, maps and typed arrays; everything else is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

MULTI_DIMENSIONAL = 40  # the tag around [dimensions, typed array]; RFC 8746, section 3.1.1
_MAX_DEPTH = 64
_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE = range(8)
_CONSTANTS = {20: False, 21: True, 22: None, 23: None}
_FLOATS = {25: ">e", 26: ">f", 27: ">d"}
# RFC 8746, section 2.1: the tag is 64 + 16 if float + 8 if signed + 4 if little-endian + the logarithm of the size.
_KINDS = {"u": (64, (1, 2, 4, 8)), "i": (72, (1, 2, 4, 8)), "f": (80, (2, 4, 8))}
_DTYPES = {
    base + 4 * little + index: np.dtype(f"{'<' if little else '>'}{kind}{size}")
    for kind, (base, sizes) in _KINDS.items()
    for index, size in enumerate(sizes)
    for little in (0, 1)
    if size > 1 or not little
}
_TAGS = {dtype: tag for tag, dtype in _DTYPES.items() if dtype.newbyteorder("<") == dtype}


def write(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Return `{"inputs": {name: tensor}}`; raises ValueError for a dtype without a form (complex)."""
    pairs = b"".join(_text(name) + _tensor(array) for name, array in arrays.items())
    return _head(_MAP, 1) + _text("inputs") + _head(_MAP, len(arrays)) + pairs


def _tensor(array: npt.NDArray[Any]) -> bytes:
    if array.dtype.kind == "b":  # no typed array of booleans
        return _nested(array.tolist())
    little = array.dtype.newbyteorder("<")
    if little not in _TAGS:
        msg = f"CBOR has no form for {array.dtype.name}"
        raise ValueError(msg)
    data = np.ascontiguousarray(array, little).tobytes()
    shape = _head(_ARRAY, array.ndim) + b"".join(_head(_UNSIGNED, size) for size in array.shape)
    typed = _head(_TAG, _TAGS[little]) + _head(_BYTES, len(data)) + data
    return _head(_TAG, MULTI_DIMENSIONAL) + _head(_ARRAY, 2) + shape + typed


def _nested(value: object) -> bytes:
    if isinstance(value, list):
        return _head(_ARRAY, len(value)) + b"".join(map(_nested, value))
    return b"\xf5" if value else b"\xf4"


def _text(text: str) -> bytes:
    data = text.encode()
    return _head(_TEXT, len(data)) + data


def _head(major: int, argument: int) -> bytes:
    if argument < 24:  # noqa: PLR2004  # RFC 8949, section 3
        return bytes((major << 5 | argument,))
    power = next(power for power in range(4) if argument < 1 << (8 << power))
    return bytes((major << 5 | 24 + power,)) + argument.to_bytes(1 << power, "big")


def read(payload: bytes) -> dict[str, Any]:
    """Return the map that the payload is, typed arrays as arrays (copies); raises ValueError saying what is wrong."""
    reader = _Reader(memoryview(payload))
    found = reader.item(0)
    if not isinstance(found, dict) or reader.rest:
        msg = "not one CBOR map"
        raise ValueError(msg)
    return found


class _Reader:
    """What is left of the payload."""

    def __init__(self, data: memoryview) -> None:
        self.rest = data

    def take(self, size: int) -> memoryview:
        if size > len(self.rest):
            msg = "the CBOR is cut off"
            raise ValueError(msg)
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def head(self) -> tuple[int, int, memoryview]:
        """Return major type, additional information, and the bytes of the argument where they follow."""
        major, info = divmod(self.take(1)[0], 32)
        if info > 27:  # noqa: PLR2004  # section 3: reserved, or an indefinite length
            msg = "CBOR of indefinite length is not read here"
            raise ValueError(msg)
        return major, info, self.take(1 << info - 24) if info > 23 else self.rest[:0]  # noqa: PLR2004

    def sized(self) -> tuple[int, int]:
        major, info, follows = self.head()
        return major, int.from_bytes(follows, "big") if follows else info

    def item(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            msg = "the CBOR is nested too deeply"
            raise ValueError(msg)
        major, info, follows = self.head()
        argument = int.from_bytes(follows, "big") if follows else info
        if major == _ARRAY:
            return [self.item(depth + 1) for _ in range(argument)]
        if major == _MAP:
            return self.map(argument, depth)
        if major == _TAG:
            return self.tensor(argument)
        return self.scalar(major, info, follows, argument)

    def scalar(self, major: int, info: int, follows: memoryview, argument: int) -> object:
        if major == _SIMPLE:
            return self.simple(info, follows)
        if major in (_BYTES, _TEXT):
            data = self.take(argument)
            return str(data, "utf-8") if major == _TEXT else bytes(data)
        return argument if major == _UNSIGNED else -1 - argument

    def simple(self, info: int, follows: memoryview) -> object:
        if info in _CONSTANTS:
            return _CONSTANTS[info]
        if info not in _FLOATS:
            msg = f"the CBOR simple value {info} is not known"
            raise ValueError(msg)
        return struct.unpack(_FLOATS[info], follows)[0]

    def map(self, count: int, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(count):
            key = self.item(_MAX_DEPTH)
            if not isinstance(key, str) or key in found:
                msg = "a key of a CBOR map is no text, or there twice"
                raise ValueError(msg)
            found[key] = self.item(depth + 1)
        return found

    def tensor(self, tag: int) -> npt.NDArray[Any]:
        if tag != MULTI_DIMENSIONAL:
            return self.typed(tag)
        if self.sized() != (_ARRAY, 2):
            msg = "CBOR tag 40 does not hold [dimensions, typed array]"
            raise ValueError(msg)
        shape, (major, inner) = self.item(_MAX_DEPTH - 1), self.sized()
        if major != _TAG or not isinstance(shape, list) or not all(type(size) is int for size in shape):
            msg = "CBOR tag 40 does not hold [dimensions, typed array]"
            raise ValueError(msg)
        return self.typed(inner).reshape(shape)

    def typed(self, tag: int) -> npt.NDArray[Any]:
        major, size = self.sized()
        if tag not in _DTYPES or major != _BYTES:
            msg = f"CBOR tag {tag} is not read here"
            raise ValueError(msg)
        return np.frombuffer(bytearray(self.take(size)), _DTYPES[tag])

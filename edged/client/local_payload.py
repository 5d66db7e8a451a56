"""Inputs to a payload that is written where it is wanted, in one pass: into a slot.

Arrays that go raw or as .npy are copied once, from the caller's memory; for the other codecs the payload is made first.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edged import codecs
from edged.client import payloads
from edged.client.payloads import Array, Inputs
from edged.errors import BadDataError
from edged.request import Buffer

_IN_PLACE = ("raw", "npy")
_NPY_HEAD = 10  # bytes: magic, version, length of the text


@dataclass(frozen=True, slots=True)
class Payload:
    """Pieces of a payload, in order: bytes, or arrays whose elements are meant. size: bytes in all."""

    codec: str
    pieces: Sequence[Buffer | Array]
    size: int

    def write(self, into: memoryview) -> None:
        """Write it; `into` has `size` bytes or more."""
        at = 0
        for piece in self.pieces:
            end = at + _size(piece)
            if isinstance(piece, np.ndarray):
                np.copyto(np.frombuffer(into[at:end], piece.dtype).reshape(piece.shape), piece)
            else:
                into[at:end] = piece
            at = end


def lay_out(inputs: Inputs, codec: str | None) -> Payload:
    """Return what `inputs` are in this codec; the default and the errors are those of `payloads.encode`."""
    codec = payloads.default(inputs) if codec is None else codec
    if codec not in _IN_PLACE or isinstance(inputs, bytes | bytearray | memoryview):
        return _made(inputs, codec)
    pairs = inputs.items() if isinstance(inputs, Mapping) else [("", inputs)]
    arrays = [payloads.as_array(name, value) for name, value in pairs]
    pieces: list[Buffer | Array] = []
    for array in arrays:
        if codec == "npy":
            pieces.append(_npy_header(array.dtype, array.shape))
        if array.size:
            pieces.append(array)
    return Payload(codec, pieces, sum(map(_size, pieces)))


def _made(inputs: Inputs, codec: str) -> Payload:
    if isinstance(inputs, bytes | bytearray | memoryview) and codec in codecs.NAMES:
        whole: Buffer = _bytes(memoryview(inputs))
    else:
        whole = payloads.encode(inputs, codec).payload
    return Payload(codec, (whole,), len(whole))


def _bytes(view: memoryview) -> Buffer:
    """Return its elements in C order as bytes: the same memory where they lie so, else a copy."""
    if "O" in view.format:
        raise BadDataError("input", "a view of objects cannot be sent", "booleans and numbers can")
    try:
        return view.cast("B")
    except TypeError:  # strided, in Fortran order, empty, or of a format that `cast` does not know
        return view.tobytes()


def _size(piece: Buffer | Array) -> int:
    return piece.nbytes if isinstance(piece, np.ndarray) else len(piece)


@functools.lru_cache(maxsize=64)
def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return what stands before the elements, a multiple of 64 bytes: version 1.0 of the format `edged.npyformat`."""
    text = f"{{'descr': {dtype.str!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    length = -(-(_NPY_HEAD + len(text) + 1) // 64) * 64 - _NPY_HEAD
    return b"\x93NUMPY\x01\x00" + length.to_bytes(2, "little") + text.ljust(length - 1).encode() + b"\n"

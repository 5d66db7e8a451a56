"""NumPy's .npy, one stream per tensor: a model with several inputs takes their streams one after another, in declared
order (as `np.save` to one open file writes them), and answers likewise. What is read of the format: `edged.npyformat`.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from edged import npyformat
from edged.bundle import Signature, TensorSpec
from edged.codecs.base import NO_ANNOTATIONS, Array
from edged.codecs.common import copy_elements, invalid, little_endian
from edged.request import Buffer


class Npy:
    """`application/x-npy`. There is no room for annotations: `encode` leaves them out."""

    name: ClassVar[str] = "npy"
    content_type: ClassVar[str] = "application/x-npy"
    reply_codec: ClassVar[str] = "npy"

    def decode(self, payload: Buffer, signature: Signature, into: Sequence[Array]) -> None:
        """Fill `into`.

        The dtype must be the input's but for byte order; a leading batch dimension of 1 may be left out. Raises
        INVALID_ARGUMENT for anything else, for data too short or too long, and for NaN or Inf in floats.
        """
        rest = memoryview(payload).cast("B")
        for spec, array in zip(signature.inputs, into, strict=True):
            rest = _read_one(rest, spec, array)
        if len(rest):
            raise invalid(f"{len(rest)} bytes too many after the last array")

    def encode(
        self,
        outputs: Sequence[Array],
        signature: Signature,  # noqa: ARG002  # the protocol's
        annotations: Mapping[str, object] = NO_ANNOTATIONS,  # noqa: ARG002  # the protocol's
    ) -> bytes:
        """Return one little-endian .npy stream per output, in declared order."""
        out = io.BytesIO()
        for output in outputs:
            np.save(out, little_endian(output), allow_pickle=False)
        return out.getvalue()


def _read_one(data: memoryview, spec: TensorSpec, array: Array) -> memoryview:
    """Read one stream into `array` and return what follows it."""
    where = f"input {spec.name!r}"
    try:
        header, rest = npyformat.read_header(data)
    except ValueError as exc:
        raise invalid(f"{where}: {exc}") from exc
    if header.dtype.newbyteorder("=") != array.dtype.newbyteorder("="):
        raise invalid(f"{where}: expected {array.dtype.name}, got {header.dtype.name}")
    if header.shape not in _shapes(array):
        raise invalid(f"{where}: expected shape {list(array.shape)}, got {describe_shape(header.shape)}")
    if len(rest) < array.nbytes:
        raise invalid(f"{where}: expected {array.nbytes} bytes after the header, got {len(rest)}")
    if array.size:  # np.frombuffer refuses an empty buffer
        flat = np.frombuffer(rest, header.dtype, array.size)
        shaped = flat.reshape(header.shape, order="F" if header.fortran else "C")
        copy_elements(shaped if shaped.ndim == array.ndim else shaped[np.newaxis], spec, array)
    return rest[array.nbytes :]


def _shapes(array: Array) -> tuple[tuple[int, ...], ...]:
    return (array.shape, array.shape[1:]) if array.shape[:1] == (1,) else (array.shape,)


def describe_shape(shape: tuple[int, ...]) -> str:
    """Name a shape a client sent, in few characters however many dimensions it has."""
    return str(list(shape)) if len(shape) <= 8 else f"{len(shape)} dimensions"  # noqa: PLR2004

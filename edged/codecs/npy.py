"""NumPy's .npy, one stream per tensor: a model with several inputs takes their streams one after another, in declared
order (as `np.save` to one open file writes them), and answers likewise.

Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, versions 1 to 3, C or Fortran order, any
byte order. The header is matched, never evaluated, so it can neither run nor blow up; no pickles, no structured dtypes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from edged.bundle import Signature, TensorSpec
from edged.codecs.base import NO_ANNOTATIONS, Array
from edged.codecs.common import copy_elements, describe, invalid, little_endian
from edged.request import Buffer

_MAGIC = b"\x93NUMPY"
_LENGTH_BYTES = {1: 2, 2: 4, 3: 4}  # of the header length, by major version
_MAX_HEADER = 10_000  # numpy's own limit, np.lib.format._MAX_HEADER_SIZE

_ITEM = (
    r"""['"](?:descr['"]\s*:\s*['"](?P<descr{n}>[<>|=]?[biufc?]\d{{0,2}})['"]"""
    r"""|fortran_order['"]\s*:\s*(?P<order{n}>True|False)"""
    r"""|shape['"]\s*:\s*\((?P<shape{n}>[\d\s,]*)\))\s*"""
)
# A writer SHOULD sort the three keys, a reader MUST NOT depend on it (the format's own words).
_HEADER = re.compile(r"\s*\{\s*" + r",\s*".join(_ITEM.format(n=n) for n in range(3)) + r",?\s*\}\s*")


class _Header(NamedTuple):
    dtype: np.dtype[np.generic]
    fortran: bool
    shape: tuple[int, ...]


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
    text, rest = _split_header(data, where)
    header = _parse_header(text, where)
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


def _split_header(data: memoryview, where: str) -> tuple[str, memoryview]:
    if len(data) < 8 or data[:6] != _MAGIC:  # noqa: PLR2004  # magic, major, minor
        raise invalid(f"{where}: not a .npy stream")
    size = _LENGTH_BYTES.get(data[6])
    if size is None or data[7] != 0:
        raise invalid(f"{where}: .npy version {data[6]}.{data[7]} is not known")
    length, start = int.from_bytes(data[8 : 8 + size], "little"), 8 + size
    if length > _MAX_HEADER or len(data) < start + length:
        raise invalid(f"{where}: a .npy header of {length} bytes is too long or cut off")
    # latin-1 never fails, and in every version only ASCII can match.
    return str(data[start : start + length], "latin-1"), data[start + length :]


def _parse_header(text: str, where: str) -> _Header:
    found = _HEADER.fullmatch(text)
    named = {key[:-1]: value for key, value in found.groupdict().items() if value is not None} if found else {}
    if set(named) != {"descr", "order", "shape"}:
        raise invalid(f"{where}: not the .npy header of a plain array: {describe(text.strip())}")
    try:
        shape = tuple(int(size) for size in named["shape"].split(",") if size.strip())
        return _Header(np.dtype(named["descr"]), named["order"] == "True", shape)
    except (TypeError, ValueError) as exc:
        raise invalid(f"{where}: the .npy header cannot be read: {exc}") from exc

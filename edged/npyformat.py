"""NumPy's .npy streams, read without trust: the header is matched, never evaluated, so it can neither run nor blow up.

Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, versions 1 to 3, C or Fortran order, any
byte order; no pickles, no structured dtypes, and text only where it is asked for. Every function raises ValueError,
saying what is wrong.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_MAGIC = b"\x93NUMPY"
_LENGTH_BYTES = {1: 2, 2: 4, 3: 4}  # of the header length, by major version
_MAX_HEADER = 10_000  # numpy's own limit, np.lib.format._MAX_HEADER_SIZE
_SHOWN = 40

_NUMBERS, _TEXT = r"[<>|=]?[biufc?]\d{0,2}", r"[<>|=]?(?:[biufc?]\d{0,2}|U\d{1,5})"
_ITEM = (
    r"""['"](?:descr['"]\s*:\s*['"](?P<descr{n}>{dtype})['"]"""
    r"""|fortran_order['"]\s*:\s*(?P<order{n}>True|False)"""
    r"""|shape['"]\s*:\s*\((?P<shape{n}>[\d\s,]*)\))\s*"""
)


def _pattern(dtype: str) -> re.Pattern[str]:
    # A writer SHOULD sort the three keys, a reader MUST NOT depend on it (the format's own words).
    return re.compile(r"\s*\{\s*" + r",\s*".join(_ITEM.format(n=n, dtype=dtype) for n in range(3)) + r",?\s*\}\s*")


_HEADER, _TEXT_HEADER = _pattern(_NUMBERS), _pattern(_TEXT)


class Header(NamedTuple):
    """What a stream says of its data."""

    dtype: np.dtype[np.generic]
    fortran: bool
    shape: tuple[int, ...]


def read_header(data: memoryview, *, text: bool = False) -> tuple[Header, memoryview]:
    """Return the header of the stream that `data` (bytes) begins with, and what follows it. text: also dtypes of it."""
    if len(data) < 8 or data[:6] != _MAGIC:  # noqa: PLR2004  # magic, major, minor
        raise ValueError("not a .npy stream")
    size = _LENGTH_BYTES.get(data[6])
    if size is None or data[7] != 0:
        raise ValueError(f".npy version {data[6]}.{data[7]} is not known")
    length, start = int.from_bytes(data[8 : 8 + size], "little"), 8 + size
    if length > _MAX_HEADER or len(data) < start + length:
        raise ValueError(f"a .npy header of {length} bytes is too long or cut off")
    # latin-1 never fails, and in every version only ASCII can match.
    found = _parse(str(data[start : start + length], "latin-1"), _TEXT_HEADER if text else _HEADER)
    return found, data[start + length :]


def read_array(data: memoryview, *, text: bool = False) -> tuple[npt.NDArray[Any], memoryview]:
    """Return the array of the stream that `data` begins with, a view of it, and what follows it. text: as above."""
    header, rest = read_header(data, text=text)
    size = math.prod(header.shape) * header.dtype.itemsize
    if len(rest) < size:
        raise ValueError(f"expected {size} bytes after the header, got {len(rest)}")
    # np.frombuffer refuses an empty buffer.
    flat = np.frombuffer(rest[:size], header.dtype) if size else np.empty(0, header.dtype)
    return flat.reshape(header.shape, order="F" if header.fortran else "C"), rest[size:]


def _parse(text: str, pattern: re.Pattern[str]) -> Header:
    found = pattern.fullmatch(text)
    named = {key[:-1]: value for key, value in found.groupdict().items() if value is not None} if found else {}
    if set(named) != {"descr", "order", "shape"}:
        raise ValueError(f"not the .npy header of a plain array: {text.strip()[:_SHOWN]!r}")
    try:
        shape = tuple(int(size) for size in named["shape"].split(",") if size.strip())
        return Header(np.dtype(named["descr"]), named["order"] == "True", shape)
    except (TypeError, ValueError) as exc:
        raise ValueError(f"the .npy header cannot be read: {exc}") from exc

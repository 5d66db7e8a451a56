"""An .npz that may be anything → its arrays. Read without trust: nothing is evaluated, and nothing unpacks unasked.

Format: https://numpy.org/doc/stable/reference/generated/numpy.savez.html, a ZIP archive of .npy members, stored or
deflated (https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT).
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from typing import IO, Any

import numpy.typing as npt

from edged import npyformat

_SUFFIX = ".npy"
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1
# What zipfile and zlib raise of archives that are damaged, or that they cannot read.
_UNREADABLE = (
    OSError, EOFError, ValueError, KeyError, RuntimeError, MemoryError, OverflowError,
    zipfile.BadZipFile, zlib.error, struct.error,
)  # fmt: skip


def arrays(file: IO[bytes], max_bytes: int) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays by name; numbers and text, read-only.

    max_bytes: what they may unpack to, all together. Raises ValueError, in one line, for whatever else the file is.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            _check(members, max_bytes)
            return {member.filename.removesuffix(_SUFFIX): _array(archive, member) for member in members}
    except _UNREADABLE as exc:
        raise ValueError(" ".join(str(exc).split()) or type(exc).__name__) from exc


def _check(members: list[zipfile.ZipInfo], max_bytes: int) -> None:
    unpacked = sum(member.file_size for member in members)
    if unpacked > max_bytes:
        raise ValueError(f"it unpacks to {unpacked} bytes, more than {max_bytes}")
    seen: set[str] = set()
    for member in members:
        name = member.filename
        if not name.endswith(_SUFFIX):
            raise ValueError(f"{name!r} in it is no array")
        if name in seen:
            raise ValueError(f"{name!r} is in it twice")
        if member.flag_bits & _ENCRYPTED or member.compress_type not in _COMPRESSIONS:
            raise ValueError(f"{name!r} in it is encrypted, or compressed by a method that numpy does not use")
        seen.add(name)


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    try:
        array, rest = npyformat.read_array(memoryview(archive.read(member)), text=True)
    except ValueError as exc:
        raise ValueError(f"{member.filename!r}: {exc}") from exc
    if len(rest):
        raise ValueError(f"{member.filename!r}: {len(rest)} bytes too many after the array")
    return array

"""A file to the inputs of a request: the suffix tells the format, the codec how it travels."""

from __future__ import annotations

import io
import sys
import zipfile
import zlib
from pathlib import Path

import numpy as np

from edged import codecs, npyformat
from edged.client.payloads import Array, Inputs
from edged.errors import BadDataError, UsageError

# Files that are payloads already, by suffix.
_PAYLOADS = {".json": "json", ".jpg": "jpeg", ".jpeg": "jpeg", ".png": "png", ".cbor": "cbor", ".bin": "raw"}
_ARRAYS = (".npy", ".npz", ".csv")
# What numpy and the zip reader raise over a file that is not what its suffix says (RuntimeError: encrypted).
_UNREADABLE = (ValueError, TypeError, OSError, EOFError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error)


def load(path: str, codec: str | None, dtype: str | None) -> tuple[Inputs, str | None]:
    """Return the inputs, and the codec they travel in (None: the client's choice).

    path: .npy, .npz (arrays in the file's order), .csv (float32 unless `dtype` says otherwise), or a payload by suffix
    or by `codec`; "-" reads a payload from standard input. Raises UsageError, BadDataError.
    """
    if codec is not None and codec not in codecs.NAMES:
        raise UsageError("--codec", f"unknown codec {codec!r}", f"one of {', '.join(codecs.NAMES)}")
    suffix = Path(path).suffix.lower()
    if path == "-":
        if codec is None:
            raise UsageError("-", "standard input does not tell its format", "name it with --codec")
        return sys.stdin.buffer.read(), codec
    content = _read(path)
    if suffix in _ARRAYS:
        return _arrays(path, suffix, content, dtype), codec
    natural = _PAYLOADS.get(suffix, "raw")
    if codec not in (None, natural) and suffix in _PAYLOADS and suffix != ".bin":
        raise UsageError("--codec", f"{path} is {natural}, it cannot be sent as {codec}", "leave --codec out")
    return content, codec or natural


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise BadDataError(path, f"cannot be read: {error.strerror}") from error


def _arrays(path: str, suffix: str, content: bytes, dtype: str | None) -> Array | dict[str, Array]:
    try:
        if suffix == ".csv":
            return _csv(content, dtype or "float32")
        if suffix == ".npy":
            return _npy(content, dtype)
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return {name.removesuffix(".npy"): _npy(archive.read(name), dtype) for name in archive.namelist()}
    except _UNREADABLE as error:
        raise BadDataError(path, f"not a {suffix} file that can be sent: {error}") from error


def _npy(content: bytes, dtype: str | None) -> Array:
    array, rest = npyformat.read_array(memoryview(content))
    if rest:
        msg = f"{len(rest)} bytes after the array"
        raise ValueError(msg)
    return array.astype(dtype or array.dtype)


def _csv(content: bytes, dtype: str) -> Array:
    lines = content.decode("utf-8-sig").splitlines()
    header = bool(lines) and not _numeric(lines[0])
    rows = [line for line in lines[header:] if line.strip()]
    if not rows:
        msg = "there are no rows of numbers in it"
        raise ValueError(msg)
    return np.loadtxt(rows, delimiter=",", dtype=dtype, ndmin=2)


def _numeric(line: str) -> bool:
    try:
        [float(cell) for cell in line.split(",")]
    except ValueError:
        return False
    return True

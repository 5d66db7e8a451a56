"""A file to the inputs of a request: the suffix tells the format, the codec how it travels."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np

from edged.client.payloads import CONTENT_TYPES, Array, Inputs
from edged.errors import BadDataError, UsageError

# Files that are payloads already, by suffix.
_PAYLOADS = {".json": "json", ".jpg": "jpeg", ".jpeg": "jpeg", ".png": "png", ".cbor": "cbor", ".bin": "raw"}
_ARRAYS = (".npy", ".npz", ".csv")


def load(path: str, codec: str | None, dtype: str | None) -> tuple[Inputs, str | None]:
    """Return the inputs, and the codec they travel in (None: the client's choice).

    path: .npy, .npz (arrays in the file's order), .csv (float32 unless `dtype` says otherwise), or a payload by suffix
    or by `codec`; "-" reads a payload from standard input. Raises UsageError, BadDataError.
    """
    if codec is not None and codec not in CONTENT_TYPES:
        raise UsageError("--codec", f"unknown codec {codec!r}", f"one of {', '.join(CONTENT_TYPES)}")
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
        loaded = np.load(io.BytesIO(content), allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded.astype(dtype or loaded.dtype)
        return {name: loaded[name].astype(dtype or loaded[name].dtype) for name in loaded.files}
    except (ValueError, TypeError, OSError, EOFError) as error:
        raise BadDataError(path, f"not a {suffix} file that can be sent: {error}") from error


def _csv(content: bytes, dtype: str) -> Array:
    lines = content.decode("utf-8-sig").splitlines()
    header = bool(lines) and not _numeric(lines[0])
    return np.loadtxt(lines[header:], delimiter=",", dtype=dtype, ndmin=2)


def _numeric(line: str) -> bool:
    try:
        [float(cell) for cell in line.split(",")]
    except ValueError:
        return False
    return True

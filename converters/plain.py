"""Plain values that a file or a child process holds, to what they stand for; every problem in one BadDataError."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from edged import schema, yamlload
from edged.errors import BadDataError

T = TypeVar("T")
# What a person writes by hand is far smaller.
MOST_BYTES = 4 << 20


def text(source: str) -> str:
    """Read a UTF-8 file of at most MOST_BYTES, with or without a byte order mark."""
    path = Path(source)
    # Before it is opened: a device never ends, and a pipe waits for somebody to write.
    if path.exists() and not path.is_file():
        raise BadDataError(source, "is no regular file")
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BadDataError(source, f"is larger than {MOST_BYTES:,} bytes: is this the right file?")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as exc:
        raise BadDataError(source, f"cannot be read: {getattr(exc, 'strerror', None) or exc}") from exc


def mapping(source: str) -> Mapping[str, Any]:
    """Read a YAML or JSON file (JSON is YAML) that must hold a mapping."""
    value = yamlload.parse(text(source), source).value
    if not isinstance(value, Mapping):
        raise BadDataError(source, "is no mapping of keys to values")
    return value


def build(cls: type[T], value: object, source: str) -> T:
    """Build a dataclass as `edged.schema.build` does."""
    built, problems = schema.build(cls, value)
    if built is None:
        raise BadDataError(source, "; ".join(f"{p.path}: {p.message}" for p in problems))
    return built

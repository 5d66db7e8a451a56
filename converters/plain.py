"""Plain values that a file or a child process holds, to what they stand for; every problem in one BadDataError."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from edged import schema, yamlload
from edged.errors import BadDataError

T = TypeVar("T")


def text(source: str) -> str:
    """Read a UTF-8 file, with or without a byte order mark."""
    try:
        return Path(source).read_text(encoding="utf-8-sig")
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

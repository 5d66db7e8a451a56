"""JSON that came over the network: what is missing or of another type is None or empty, never an error."""

from __future__ import annotations

import json
from typing import Any

from edged.request import Buffer
from edged.shown import plain


def parse_object(payload: Buffer) -> dict[str, Any] | None:
    """The payload as a JSON object, None when it is none."""
    try:
        document = json.loads(bytes(payload))
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def mapping(value: object) -> dict[str, Any]:
    """The value as an object, an empty one when it is none."""
    return value if isinstance(value, dict) else {}


def text(value: object) -> str:
    """A string as it may be shown: control characters (terminal escapes) gone, else empty."""
    return plain(value) if isinstance(value, str) else ""


def times(count: int) -> str:
    """A count in words: `1 time`, `2 times`."""
    return f"{count} time" if count == 1 else f"{count} times"


def number(value: object, limit: float = 1e15) -> float | None:
    """A number of at most this magnitude, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= limit else None  # also false for NaN; larger ints overflow float


def whole(value: object, limit: float = 1e15) -> int | None:
    """A whole number from zero up, at most `limit`, else None."""
    found = number(value, limit)
    return int(found) if found is not None and found >= 0 else None

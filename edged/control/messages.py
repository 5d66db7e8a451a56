"""What is wrong with a message, told so that the telling is bounded whatever somebody sent."""

from __future__ import annotations

from collections.abc import Sequence

from edged.schema import Problem
from edged.shown import clipped

# Keys of one mapping: with more, each is not looked at.
MAX_KEYS = 16
# Mistakes that are told, the rest is counted; and characters of one.
MAX_TOLD, MAX_TEXT = 5, 300


def told(problems: Sequence[Problem]) -> str:
    """Return mistakes in one line: the first ones, and how many more."""
    first = [clipped(f"{problem.path}: {problem.message}", MAX_TEXT) for problem in problems[:MAX_TOLD]]
    return "; ".join(first) + (f"; and {len(problems) - MAX_TOLD} more" if len(problems) > MAX_TOLD else "")


def keys_problem(value: object) -> str:
    """Say that a mapping has more keys than any message; "" when it has not."""
    return f"{len(value)} keys, at most {MAX_KEYS}" if isinstance(value, dict) and len(value) > MAX_KEYS else ""

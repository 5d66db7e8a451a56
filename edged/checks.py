"""Checks for values a person writes, and the words to tell what is wrong with them.

A check is called with a value of the right type and returns what is wrong, or None. `says` tells the rule in the
configuration's reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_CREDENTIALS = re.compile(r"//.*@", re.DOTALL)
_SHOWN = 60
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?(B|kB|MB|GB|KiB|MiB|GiB)")
_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@dataclass(frozen=True)
class Check:
    """A rule: `test` returns what is wrong with a value, or None; `says` is the rule in words."""

    test: Callable[[Any], str | None]
    says: str = ""

    def __call__(self, value: Any) -> str | None:
        """Return what is wrong with `value`, or None."""
        return self.test(value)


@dataclass(frozen=True)
class Reads:
    """How to read a plain value before its type is checked; ValueError says what is wrong with it."""

    read: Callable[[object], object]
    says: str


def at_least(low: float) -> Check:
    """Check: the value is `low` or more."""
    return Check(lambda value: None if value >= low else f"must be at least {low}, got {value}", f"at least {low}")


def at_most(high: float) -> Check:
    """Check: the value is `high` or less."""
    return Check(lambda value: None if value <= high else f"must be at most {high}, got {value}", f"at most {high}")


def above(low: float) -> Check:
    """Check: the value is more than `low`."""
    return Check(lambda value: None if value > low else f"must be more than {low}, got {value}", f"more than {low}")


def _not_empty(value: Any) -> str | None:
    return None if len(value) else "must not be empty"


def _unique(values: Any) -> str | None:
    twice = next((value for i, value in enumerate(values) if value in values[:i]), None)
    return None if twice is None else f"{show(twice)} is given twice"


not_empty = Check(_not_empty)
unique = Check(_unique)


def _byte_size(value: object) -> object:
    if type(value) is int:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        msg = f"expected a size in bytes such as 64MiB, 10kB or 4096, got {show(value)}"
        raise ValueError(msg)
    return int(float(match[1]) * _UNITS[match[2]])


byte_size = Reads(_byte_size, "bytes, or B, kB, MB, GB, KiB, MiB, GiB")


def hint(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean '…'?)` for the nearest of `known`, or nothing."""
    import difflib  # noqa: PLC0415  # only a mistake needs it

    close = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def show(value: object) -> str:
    """Return a value as an error line may show it: short, on one line, without the credentials of a URL."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if value is None or isinstance(value, bool):
        return "nothing" if value is None else str(value).lower()
    text = repr(_CREDENTIALS.sub("//…@", value) if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"

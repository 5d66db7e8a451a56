"""How the text of a command-line option becomes a value, and what is said of text that does not.

argparse puts the option's name before what these raise: `argument --count: must be a whole number from 1, got 'x'`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

from edged import checks

# Days of recording are of use; what is longer than a year is a slip of the finger.
_DAY_S, _YEAR_S = 86_400, 365 * 86_400
# More digits count nothing that there is.
_DIGITS = 18


def whole(text: str) -> int:
    """Read a whole number from 1."""
    value = int(text) if text.isdecimal() and len(text) <= _DIGITS else 0
    if value < 1:
        raise _wrong("a whole number from 1", text)
    return value


def share(text: str) -> float:
    """Read a number from 0 to 1."""
    return _number(text, lambda value: 0 <= value <= 1, "a number from 0 to 1")


def amount(text: str) -> float:
    """Read a number that is 0 or more, and not infinite."""
    return _number(text, lambda value: 0 <= value < math.inf, "a number, 0 or more")


def seconds(text: str) -> float:
    """Read how long something may take, in seconds: more than 0, at most a year."""
    return _number(text, lambda value: 0 < value <= _YEAR_S, f"more than 0 and at most {_YEAR_S} seconds")


def wait(text: str) -> float:
    """Read how long to wait for something, in seconds: 0 to a day."""
    return _number(text, lambda value: 0 <= value <= _DAY_S, f"0 to {_DAY_S} seconds")


def size(text: str) -> int:
    """Read bytes: 4096, 64MiB, 8GB; 1 or more."""
    try:
        value = int(str(checks.byte_size.read(int(text) if text.isdecimal() and len(text) <= _DIGITS else text)))
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None
    if value < 1:
        raise _wrong("1 byte or more", text)
    return value


def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Read `[NAME=]1,96,64`: the name, "" where there is none, and the sizes. A name may hold equals signs itself."""
    name, _, dims = text.rpartition("=")
    found = dims.split(",")
    if not all(dim.isdecimal() and len(dim) <= _DIGITS and int(dim) for dim in found):
        raise _wrong("like NAME=1,96,64", text)
    return name, tuple(map(int, found))


def named_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Read `NAME=1,96,64`; as `shape`, but there must be a name."""
    found = shape(text)
    if not found[0]:
        raise _wrong("like NAME=1,96,64", text)
    return found


class ByName(argparse.Action):
    """An option that can be repeated, of a type that returns (name, value): keeps name → value, each name once."""

    def __call__(  # noqa: D102  # argparse calls it
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002  # argparse's own signature
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,  # noqa: ARG002  # as above
    ) -> None:
        name, value = values
        before = getattr(namespace, self.dest) or {}
        if name in before:
            raise argparse.ArgumentError(self, f"is given twice for {name!r}" if name else "is given twice")
        setattr(namespace, self.dest, {**before, name: value})


def _number(text: str, good: Callable[[float], bool], says: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not good(value):
        raise _wrong(says, text)
    return value


def _wrong(says: str, text: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"must be {says}, got {text!r}")

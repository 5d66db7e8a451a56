"""One payload of a sensor topic → samples. Bytes in, values out; never raises, whatever the bytes.

The columns of a sample are `fields`, then `seq`, then `time`, each of the last two only where it is configured and not
among `fields` already. `seq` and `time` mark a sample's place; they are no features, even when `fields` lists them.
A stream whose messages begin with `seq` or `time` lists it first in `fields`, to give the columns that order.

json   an object with the columns as keys, or a list of the columns in order; a list of such is several samples
csv    ASCII, one sample a line, the columns in order, separated by commas; no header
raw    little-endian float32, the fields in order, any number of samples in a row; no seq and no time (a float32 cannot
       count past 2^24)

A feature is a number float32 can hold: text, true and false, null, NaN and Inf make the sample bad. `seq` is a whole
number of at most 64 bits, `time` is seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from edged.request import Buffer

FloatArray = npt.NDArray[np.float32]

_FLOAT_MAX: Final = float(np.finfo(np.float32).max)
_SEQ_MAX: Final = 1 << 63


@dataclass(slots=True)
class Samples:
    """Good samples in a row: `rows` is float32 (count, features). With `seq` or `time` there is one row only."""

    rows: FloatArray
    seq: int | None = None
    time: float | None = None


@dataclass(slots=True)
class Bad:
    """A sample that cannot be used, and why."""

    reason: str


Decode = Callable[[Buffer], Iterator[Samples | Bad]]


@dataclass(frozen=True)
class Columns:
    """Which value of a sample is what. Raises ValueError when there is no feature, or a name comes twice."""

    names: tuple[str, ...]
    features: tuple[int, ...]
    seq: int | None
    time: int | None

    @classmethod
    def of(cls, fields: Sequence[str], seq: str | None, time: str | None) -> Columns:
        """Lay the columns out as the module says."""
        marks = [mark for mark in (seq, time) if mark]
        names = (*fields, *(mark for mark in marks if mark not in fields))
        if len(set(names)) < len(names) or len(set(marks)) < len(marks):
            raise ValueError(f"a name is used twice among fields, seq and time: {', '.join(names)}")
        features = tuple(index for index, name in enumerate(names) if name not in marks)
        if not features:
            raise ValueError("fields holds nothing beside seq and time")
        return cls(names, features, names.index(seq) if seq else None, names.index(time) if time else None)

    def sample(self, values: Sequence[Any]) -> Samples:
        """Check the values of one sample, in column order; raises ValueError naming the column that is wrong."""
        row = [_number(self.names[index], values[index], _FLOAT_MAX) for index in self.features]
        seq = None if self.seq is None else _whole(self.names[self.seq], values[self.seq])
        time = None if self.time is None else _number(self.names[self.time], values[self.time], float("inf"))
        return Samples(np.array([row], np.float32), seq, time)


def decoder(name: str, columns: Columns) -> Decode:
    """Return the decoder called `name` (json, csv, raw); raises ValueError when it cannot carry seq or time."""
    if name == "raw" and len(columns.features) < len(columns.names):
        raise ValueError("raw samples carry no seq and no time (use json or csv)")
    decoders = {"json": _json, "csv": _csv, "raw": _raw}
    return partial(decoders[name], columns)


def _number(name: str, value: object, limit: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} is no number: {str(value)[:32]!r}")  # noqa: TRY004  # one error type a decoder
    if not -limit <= value <= limit or value in (float("inf"), -float("inf")):  # false for NaN too
        raise ValueError(f"{name} is not finite or beyond the range: {str(value)[:32]}")
    return float(value)


def _whole(name: str, value: object) -> int:
    number = _number(name, value, _SEQ_MAX)
    if not number.is_integer():
        raise ValueError(f"{name} is no whole number: {number}")
    return value if isinstance(value, int) else int(number)


def _json(columns: Columns, payload: Buffer) -> Iterator[Samples | Bad]:
    try:
        value = json.loads(bytes(payload))
    except (ValueError, RecursionError) as exc:  # bad UTF-8 is a ValueError; deep nesting is the other one
        yield Bad(f"not JSON: {exc}")
        return
    several = isinstance(value, list) and bool(value) and isinstance(value[0], (list, dict))
    for item in value if several else [value]:
        yield _json_sample(item, columns)


def _json_sample(item: object, columns: Columns) -> Samples | Bad:
    try:
        if isinstance(item, dict):
            return columns.sample([item[name] for name in columns.names])
        if isinstance(item, list):
            return columns.sample(_counted(item, columns))
    except KeyError as exc:
        return Bad(f"{exc.args[0]} is missing")
    except (ValueError, OverflowError) as exc:  # OverflowError: an integer no float can hold
        return Bad(str(exc))
    return Bad(f"neither an object nor a list: {str(item)[:32]!r}")


def _csv(columns: Columns, payload: Buffer) -> Iterator[Samples | Bad]:
    try:
        lines = [line for line in bytes(payload).decode("ascii").splitlines() if line.strip()]
    except UnicodeDecodeError:
        yield Bad("not ASCII")
        return
    if not lines:
        yield Bad("empty")
    for line in lines:
        yield _csv_sample(line, columns)


def _csv_sample(line: str, columns: Columns) -> Samples | Bad:
    try:
        values: list[int | float] = [_parsed(cell) for cell in _counted(line.split(","), columns)]
        return columns.sample(values)
    except (ValueError, OverflowError) as exc:
        return Bad(str(exc))


def _parsed(cell: str) -> int | float:
    if "_" in cell:  # Python reads 1_000 as a number; nobody else does
        raise ValueError(f"no number: {cell[:32]!r}")
    try:
        return int(cell)
    except ValueError:
        return float(cell)


def _counted(values: list[Any], columns: Columns) -> list[Any]:
    if len(values) != len(columns.names):
        raise ValueError(f"{len(values)} values, expected {len(columns.names)}: {', '.join(columns.names)}")
    return values


def _raw(columns: Columns, payload: Buffer) -> Iterator[Samples | Bad]:
    size = 4 * len(columns.names)
    if not len(payload) or len(payload) % size:
        yield Bad(f"{len(payload)} bytes, expected a multiple of {size}")
        return
    rows = np.frombuffer(payload, "<f4").astype(np.float32, copy=False).reshape(-1, len(columns.names))
    good = np.isfinite(rows).all(axis=1)
    edges = [0, *(np.flatnonzero(good[1:] != good[:-1]) + 1).tolist(), len(rows)]
    for begin, end in pairwise(edges):
        if good[begin]:
            yield Samples(rows[begin:end])
        else:
            yield from (Bad("not finite") for _ in range(begin, end))

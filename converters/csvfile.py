"""The cells of a .csv or .csv.gz: its delimiter, its header if it has one, numbers, and where each cell stands."""

from __future__ import annotations

import csv
import gzip
import itertools
import math
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np
import numpy.typing as npt

from edged.errors import BadDataError

_DELIMITERS = ",;\t"
_UNREADABLE = (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error)
_SHOWN = 40


@dataclass(frozen=True)
class Cells:
    """values: [rows, columns], NaN in the columns of text; texts: [rows][those columns]; names: of all columns."""

    source: str
    names: Sequence[str]
    values: npt.NDArray[np.float64]
    texts: Sequence[Sequence[str]]
    lines: Sequence[int]

    def where(self, row: int, column: int) -> str:
        """Name a cell as an editor and a spreadsheet show it."""
        return _where(self.source, self.lines[row], self.names[column])


@dataclass(frozen=True)
class Sheet:
    """A file that is being read. header: empty where the first line is data; width: how many columns there are."""

    source: str
    header: Sequence[str]
    width: int
    _rows: Iterator[tuple[int, list[str]]]

    def cells(self, texts: Sequence[int]) -> Cells:
        """Read all rows; `texts`: the columns that need not be numbers.

        Raises BadDataError naming the line and the column of a cell that is no finite number.
        """
        names = self.header or [f"column {i + 1}" for i in range(self.width)]
        values, words, lines = array("d"), [], array("q")
        for line, row in self._rows:
            if len(row) != self.width:
                raise BadDataError(f"{self.source}, line {line}", f"has {len(row)} cells, not {self.width}")
            words.append([row[i] for i in texts])
            lines.append(line)
            values.extend(
                math.nan if i in texts else _number(cell, _where(self.source, line, names[i]))
                for i, cell in enumerate(row)
            )
        if not words:
            raise BadDataError(self.source, "holds no rows below its header")
        return Cells(self.source, names, np.frombuffer(values, np.float64).reshape(-1, self.width), words, lines)


@contextmanager
def opened(path: Path) -> Iterator[Sheet]:
    """Open a file for reading from its top. Raises BadDataError where it is no such file, also while it is read."""
    try:
        with _open(path) as file:
            yield _sheet(file, path.name)
    except _UNREADABLE as exc:
        raise BadDataError(str(path), f"cannot be read: {exc}") from exc


def _sheet(file: TextIO, source: str) -> Sheet:
    first = file.readline()
    file.seek(0)
    reader = csv.reader(file, delimiter=max(_DELIMITERS, key=first.count))
    rows = ((reader.line_num, [cell.strip() for cell in row]) for row in reader if any(map(str.strip, row)))
    top = next(rows, (0, []))
    if all(map(is_number, top[1])):
        return Sheet(source, [], len(top[1]), itertools.chain([top], rows))
    return Sheet(source, top[1], len(top[1]), rows)


def _open(path: Path) -> TextIO:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def is_number(cell: str) -> bool:
    """Whether a cell is one to everybody: not 1_000, which Python alone reads."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _where(source: str, line: int, name: str) -> str:
    return f"{source}, line {line}, column {name!r}"


def _number(cell: str, where: str) -> float:
    if not is_number(cell):
        advice = "decimals are written with a point" if is_number(cell.replace(",", ".", 1)) else ""
        raise BadDataError(where, f"{cell[:_SHOWN]!r} is no number" if cell else "is empty", advice)
    value = float(cell)
    if not math.isfinite(value):
        raise BadDataError(where, f"{cell[:_SHOWN]!r} is not finite")
    return value

"""Samples from a .csv or .csv.gz: which columns are which input, and what a row is.

Columns: several inputs, or an input whose name is there, take theirs by name: `x` for one value, `x[0]`, `x[1]`, … for
several. A model with one input may take all columns in order instead. `y`, `label` or `labels` (or `y[0]`, `y[1]`, …)
are labels where no input is called so.
Rows: with a column for each element of an input, a row is a sample. With fewer, rows are consecutive steps of the first
dimension after the batch (time): they are cut into windows that do not overlap, and never across a change of class.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import math
import re
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from converters.samples import LABEL_KEYS, Array, InputInfo, Samples, bind
from edged.checks import hint
from edged.errors import BadDataError

SUFFIXES = (".csv", ".csv.gz")
_DELIMITERS = ",;\t"
_EXACT = 2**53  # beyond it a float64 skips whole numbers
_INDEXED = re.compile(r"(?P<name>.+)\[(?P<index>\d+)\]")
_UNREADABLE = (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error)
_SHOWN = 40


def is_csv(path: Path) -> bool:
    """Whether the name says that it is one."""
    return path.name.lower().endswith(SUFFIXES)


def load(path: Path, inputs: tuple[InputInfo, ...], *, labels: bool) -> Samples:
    """Read and check the samples; `labels`: keep those of the label columns.

    Raises BadDataError naming the line and the column of a cell that is wrong.
    """
    table = _Table.read(path, inputs)
    lengths = {info.name: _window(info, len(table.columns[info.name]), path.name) for info in inputs}
    length = max(lengths.values())
    if len(set(lengths.values())) > 1:
        raise BadDataError(path.name, f"its rows would be steps of one input and samples of another: {lengths}")
    starts = _starts(table, length)
    arrays = {info.name: _array(table, info, starts, length) for info in inputs}
    found = None if table.labels is None else table.labels[starts + length - 1]
    notes = [*table.notes, *_window_notes(table, starts, length)]
    if found is not None and not labels:
        notes.append(f"{path.name}: the labels are not used")
    bound = bind(arrays, inputs, path.name, found if labels else None)
    return Samples(bound.source, bound.arrays, bound.labels, (*notes, *bound.notes))


@dataclass
class _Table:
    """The cells. values: [rows, columns]; columns: the numbers of an input's; labels: [rows] or [rows, n], or None."""

    source: str
    values: npt.NDArray[np.float64]
    lines: Sequence[int]
    header: list[str]
    columns: dict[str, list[int]]
    labels: Array | None
    notes: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path, inputs: tuple[InputInfo, ...]) -> _Table:
        try:
            with _open(path) as file:
                return cls._parse(file, inputs, path.name)
        except _UNREADABLE as exc:
            raise BadDataError(str(path), f"cannot be read: {exc}") from exc

    @classmethod
    def _parse(cls, file: TextIO, inputs: tuple[InputInfo, ...], source: str) -> _Table:
        first = file.readline()
        file.seek(0)
        delimiter = max(_DELIMITERS, key=first.count)
        reader = csv.reader(file, delimiter=delimiter)
        rows = ((reader.line_num, [cell.strip() for cell in row]) for row in reader if any(map(str.strip, row)))
        line, head = next(rows, (0, []))
        named = not all(map(_is_number, head))
        header = head if named else [f"column {i + 1}" for i in range(len(head))]
        layout = _Layout.of(header if named else [], len(head), inputs, source)
        body = rows if named else _first_then((line, head), rows)
        values, texts, lines = _cells(body, header, layout, source)
        labels = _labels(texts, lines, header, layout, source)
        return cls(source, values, lines, header, layout.columns, labels, layout.notes)


def _open(path: Path) -> TextIO:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _first_then(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # Python reads 1_000; nobody else does


@dataclass
class _Layout:
    """Which columns are which input's, and which are labels."""

    columns: dict[str, list[int]]
    labels: list[int]
    notes: list[str]

    @classmethod
    def of(cls, header: list[str], width: int, inputs: tuple[InputInfo, ...], source: str) -> _Layout:
        """Lay `width` columns out; `header` is empty where the file has none."""
        if not width:
            raise BadDataError(source, "holds no rows")
        if len(set(header)) < len(header):
            twice = next(name for i, name in enumerate(header) if name in header[:i])
            raise BadDataError(source, f"two columns are called {twice!r}")
        names = [info.name for info in inputs]
        labels = next((found for name in LABEL_KEYS if name not in names and (found := _named(header, name))), [])
        columns = {name: _named(header, name) for name in names}
        rest = [i for i in range(width) if i not in labels]
        notes: list[str] = []
        if len(inputs) == 1 and not columns[names[0]]:
            columns[names[0]] = rest
            if header:
                notes.append(f"{source}: the columns {_listed(header, rest)} are taken in order for {names[0]!r}")
        _check_columns(columns, header, rest, source)
        return cls(columns, labels, notes)


def _named(header: list[str], name: str) -> list[int]:
    """Return the columns called `name`, or `name[0]`, `name[1]`, … in the order of their numbers."""
    if name in header:
        return [header.index(name)]
    matches = ((_INDEXED.fullmatch(text), i) for i, text in enumerate(header))
    return [i for _, i in sorted((int(match["index"]), i) for match, i in matches if match and match["name"] == name)]


def _listed(header: list[str], columns: list[int]) -> str:
    shown = ", ".join(header[i] for i in columns[:8])
    return shown + (", …" if len(columns) > 8 else "")  # noqa: PLR2004  # enough to recognise them


def _check_columns(columns: dict[str, list[int]], header: list[str], rest: list[int], source: str) -> None:
    names = list(columns)
    for name, found in columns.items():
        if not found:
            what = f"no column for input {name!r}" if header else f"has no header, and the model {len(names)} inputs"
            raise BadDataError(source, what, f"columns are called like the inputs: {', '.join(names)}")
    used = {i for found in columns.values() for i in found}
    extra = [header[i] for i in rest if i not in used]
    if extra:
        raise BadDataError(
            source,
            f"column {extra[0]!r} is no input of the model{hint(extra[0], names)}",
            f"inputs: {', '.join(names)}",
        )


def _cells(
    rows: Iterator[tuple[int, list[str]]], header: list[str], layout: _Layout, source: str
) -> tuple[npt.NDArray[np.float64], list[list[str]], array[int]]:
    """Return numbers [rows, columns] (NaN in label columns), the text of the labels, and each row's line."""
    values, texts, lines = array("d"), [], array("q")
    for line, row in rows:
        if len(row) != len(header):
            raise BadDataError(f"{source}, line {line}", f"has {len(row)} cells, not {len(header)}")
        texts.append([row[i] for i in layout.labels])
        lines.append(line)
        values.extend(
            math.nan if i in layout.labels else _number(cell, f"{source}, line {line}, column {header[i]!r}")
            for i, cell in enumerate(row)
        )
    if not texts:
        raise BadDataError(source, "holds no rows below its header")
    return np.frombuffer(values, np.float64).reshape(-1, len(header)), texts, lines


def _number(cell: str, where: str) -> float:
    if not _is_number(cell):
        advice = "decimals are written with a point" if _is_number(cell.replace(",", ".", 1)) else ""
        raise BadDataError(where, f"{cell[:_SHOWN]!r} is no number" if cell else "is empty", advice)
    value = float(cell)
    if not math.isfinite(value):
        raise BadDataError(where, f"{cell[:_SHOWN]!r} is not finite")
    return value


def _labels(
    texts: list[list[str]], lines: Sequence[int], header: list[str], layout: _Layout, source: str
) -> Array | None:
    """Return labels as whole numbers where all are, else as numbers, else (one column) as names."""
    if not layout.labels:
        return None
    cells = np.array(texts)
    if empty := next(((i, j) for i, j in np.argwhere(cells == "")), None):
        where = f"{source}, line {lines[empty[0]]}, column {header[layout.labels[empty[1]]]!r}"
        raise BadDataError(where, "is empty")
    flat = cells if cells.shape[1] > 1 else cells[:, 0]
    if not all(map(_is_number, cells.ravel().tolist())):
        return flat
    numbers = flat.astype(np.float64)
    whole = all(re.fullmatch(r"[+-]?\d+", text) for text in cells.ravel().tolist())
    return numbers.astype(np.int64) if whole else numbers


def _window(info: InputInfo, width: int, source: str) -> int:
    """Return how many rows make one sample of the input: 1, or its first dimension after the batch."""
    dims = info.shape[1:]
    if width == math.prod(dims):
        return 1
    if dims and width == math.prod(dims[1:]):
        return dims[0]
    steps = f", or {math.prod(dims[1:])} with a step in each row" if len(dims) > 1 else ""
    what = f"{width} columns for input {info.name!r} of shape {list(info.shape)}"
    raise BadDataError(
        source, what, f"it takes {math.prod(dims)} with a sample in each row{steps}; labels are called y"
    )


def _starts(table: _Table, length: int) -> npt.NDArray[np.int_]:
    """Return the first row of each sample; no window holds two classes."""
    rows, labels = len(table.values), table.labels
    if length == 1:
        return np.arange(rows)
    classes = labels is not None and labels.ndim == 1 and labels.dtype.kind != "f"
    edges = [0, rows]
    if labels is not None and classes:
        edges[1:1] = (np.flatnonzero(labels[1:] != labels[:-1]) + 1).tolist()
    runs = [range(begin, end - length + 1, length) for begin, end in itertools.pairwise(edges)]
    starts = np.array([start for run in runs for start in run], np.int_)
    if not starts.size:
        one = f"{rows} rows" if len(runs) == 1 else f"no {length} rows in a row of one class"
        raise BadDataError(table.source, f"{one}, a window takes {length}")
    return starts


def _window_notes(table: _Table, starts: npt.NDArray[np.int_], length: int) -> Iterator[str]:
    if length == 1:
        return
    rows = len(table.values)
    made = f"{rows} rows make {len(starts)} windows of {length}, one after another"
    yield f"{table.source}: rows are consecutive steps: {made}"
    left = rows - len(starts) * length
    if left:
        yield f"{table.source}: {left} rows fill no window (at the end, or where the class changes) and are left out"


def _array(table: _Table, info: InputInfo, starts: npt.NDArray[np.int_], length: int) -> Array:
    block = table.values[:, table.columns[info.name]]
    windows = block[starts[:, np.newaxis] + np.arange(length)]
    shaped = windows.reshape(len(starts), *info.shape[1:])
    dtype = np.dtype(info.dtype)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):  # what does not fit becomes Inf, and is refused by name later
            return shaped.astype(dtype)
    limits = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    wrong = np.argwhere(
        (block != np.rint(block)) | (block < limits[0]) | (block > limits[1]) | (np.abs(block) > _EXACT)
    )
    if len(wrong):
        row, column = wrong[0]
        name = table.header[table.columns[info.name][column]]
        where = f"{table.source}, line {table.lines[row]}, column {name!r}"
        raise BadDataError(where, f"{block[row, column]:g} is not a whole number of {limits[0]} to {limits[1]}")
    return shaped.astype(dtype)

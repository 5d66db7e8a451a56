"""Samples from a .csv or .csv.gz: what a row is.

With a column for each element of an input, a row is a sample. With fewer, rows are consecutive steps of the first
dimension after the batch (time): they are cut into windows that do not overlap, and never across a change of class.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from converters import csvcolumns, csvfile
from converters.csvcolumns import Layout
from converters.csvfile import Cells
from converters.samples import Array, InputInfo, Samples, bind
from edged.errors import BadDataError

SUFFIXES = (".csv", ".csv.gz")
_EXACT = 2**53  # beyond it a float64 skips whole numbers


def is_csv(path: Path) -> bool:
    """Whether the name says that it is one."""
    return path.name.lower().endswith(SUFFIXES)


def load(path: Path, inputs: tuple[InputInfo, ...], *, labels: bool) -> Samples:
    """Read and check the samples; `labels`: keep those of the label columns.

    Raises BadDataError naming the line and the column of a cell that is wrong.
    """
    with csvfile.opened(path) as sheet:
        layout = Layout.of(sheet.header, sheet.width, inputs, path.name)
        cells = sheet.cells(layout.labels)
    truth, length = csvcolumns.labels(cells, layout), _length(inputs, layout, path.name)
    starts = _starts(cells, truth, length)
    arrays = {info.name: _array(cells, layout.columns[info.name], info, starts, length) for info in inputs}
    notes = [*layout.notes, *_window_notes(cells, starts, length)]
    if truth is not None and not labels:
        notes.append(f"{path.name}: the labels are not used")
    bound = bind(arrays, inputs, path.name, truth[starts + length - 1] if labels and truth is not None else None)
    return replace(bound, notes=(*notes, *bound.notes))


def _length(inputs: tuple[InputInfo, ...], layout: Layout, source: str) -> int:
    """Return how many rows make one sample, of every input."""
    lengths = {info.name: _window(info, len(layout.columns[info.name]), source) for info in inputs}
    if len(set(lengths.values())) > 1:
        raise BadDataError(source, f"its rows would be steps of one input and samples of another: {lengths}")
    return max(lengths.values())


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


def _starts(cells: Cells, labels: Array | None, length: int) -> npt.NDArray[np.int_]:
    """Return the first row of each sample; no window holds two classes."""
    rows = len(cells.values)
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
        raise BadDataError(cells.source, f"{one}, a window takes {length}")
    return starts


def _window_notes(cells: Cells, starts: npt.NDArray[np.int_], length: int) -> Iterator[str]:
    if length == 1:
        return
    rows = len(cells.values)
    made = f"{rows} rows make {len(starts)} windows of {length}, one after another"
    yield f"{cells.source}: rows are consecutive steps: {made}"
    left = rows - len(starts) * length
    if left:
        yield f"{cells.source}: {left} rows fill no window (at the end, or where the class changes) and are left out"


def _array(cells: Cells, columns: Sequence[int], info: InputInfo, starts: npt.NDArray[np.int_], length: int) -> Array:
    block = cells.values[:, columns]
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
        what = f"{block[row, column]:g} is not a whole number of {limits[0]} to {limits[1]}"
        raise BadDataError(cells.where(row, columns[column]), what)
    return shaped.astype(dtype)

"""Which columns of a table are which input's, and which are labels.

Several inputs, or an input whose name is there, take theirs by name: `x` for one value, `x[0]`, `x[1]`, … for several.
A model with one input may take all columns in order instead. `y`, `label` or `labels` (or `y[0]`, `y[1]`, …) are labels
where no input is called so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from converters import csvfile
from converters.csvfile import Cells
from converters.samples import Array, InputInfo
from edged.checks import hint
from edged.errors import BadDataError
from edged.recording.npzfile import LABEL_KEYS

_INDEXED = re.compile(r"(?P<name>.+)\[(?P<index>\d+)\]")


@dataclass
class Layout:
    """Which columns are which input's, and which are labels."""

    columns: dict[str, list[int]]
    labels: list[int]
    notes: list[str]

    @classmethod
    def of(cls, header: Sequence[str], width: int, inputs: tuple[InputInfo, ...], source: str) -> Layout:
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


def _named(header: Sequence[str], name: str) -> list[int]:
    """Return the columns called `name`, or `name[0]`, `name[1]`, … in the order of their numbers."""
    if name in header:
        return [header.index(name)]
    matches = ((_INDEXED.fullmatch(text), i) for i, text in enumerate(header))
    return [i for _, i in sorted((int(match["index"]), i) for match, i in matches if match and match["name"] == name)]


def _listed(header: Sequence[str], columns: list[int]) -> str:
    shown = ", ".join(header[i] for i in columns[:8])
    return shown + (", …" if len(columns) > 8 else "")  # noqa: PLR2004  # enough to recognise them


def _check_columns(columns: dict[str, list[int]], header: Sequence[str], rest: list[int], source: str) -> None:
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


def labels(cells: Cells, layout: Layout) -> Array | None:
    """Return labels as whole numbers where all are, else as numbers, else (one column) as names; None without any.

    Raises BadDataError for an empty cell.
    """
    if not layout.labels:
        return None
    texts = np.array(cells.texts)
    if empty := next(((i, j) for i, j in np.argwhere(texts == "")), None):
        raise BadDataError(cells.where(empty[0], layout.labels[empty[1]]), "is empty")
    flat = texts if texts.shape[1] > 1 else texts[:, 0]
    if not all(map(csvfile.is_number, texts.ravel().tolist())):
        return flat
    numbers = flat.astype(np.float64)
    whole = all(re.fullmatch(r"[+-]?\d+", text) for text in texts.ravel().tolist())
    return numbers.astype(np.int64) if whole else numbers

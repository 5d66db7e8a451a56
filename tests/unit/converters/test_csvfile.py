"""Cells of a CSV file: delimiters, headers, numbers, text, and where a wrong one stands."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from converters import csvfile
from converters.csvfile import Cells
from edged.errors import BadDataError


def read(path: Path, *texts: int) -> tuple[Cells, list[str]]:
    with csvfile.opened(path) as sheet:
        return sheet.cells(texts), list(sheet.header)


@pytest.mark.parametrize(
    ("text", "header"), [("a;b;c\n1;2;3\n", ["a", "b", "c"]), ("1\t2\t3", []), ("\ufeff1,2,c\n1,2,3", ["1", "2", "c"])]
)
def test_a_first_line_of_numbers_alone_is_data(tmp_path: Path, text: str, header: list[str]) -> None:
    """Whatever the delimiter; a header of one word is one."""
    (tmp_path / "d.csv").write_text(text, encoding="utf-8")
    cells, found = read(tmp_path / "d.csv")
    assert found == header
    assert cells.values.tolist() == [[1, 2, 3]]
    assert list(cells.names) == (header or ["column 1", "column 2", "column 3"])


def test_columns_of_text_come_in_the_order_that_was_asked_for(tmp_path: Path) -> None:
    """They are NaN among the numbers; a cell's place is the line that an editor shows, blank ones counted."""
    (tmp_path / "d.csv.gz").write_bytes(gzip.compress(b"a,b,c\n1,x, y \n\n2,z,w\n"))
    cells, _ = read(tmp_path / "d.csv.gz", 2, 1)
    assert cells.texts == [["y", "x"], ["w", "z"]]
    np.testing.assert_array_equal(cells.values, [[1, np.nan, np.nan], [2, np.nan, np.nan]])
    assert cells.where(1, 2) == "d.csv.gz, line 4, column 'c'"


@pytest.mark.parametrize(
    ("cell", "number"), [("1", True), ("-.5e3", True), ("nan", True), ("1_0", False), ("", False), ("0,5", False)]
)
def test_what_is_a_number(cell: str, number: bool) -> None:
    """What every program reads as one."""
    assert csvfile.is_number(cell) is number


def test_a_damaged_file_is_one_line_wherever_it_breaks(tmp_path: Path) -> None:
    """In its first line, or in the middle of its rows."""
    whole = gzip.compress(b"a,b\n" + b"".join(b"%d,%d\n" % (i * 7919, i * 104729) for i in range(20_000)))
    (tmp_path / "d.csv.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "e.csv").write_bytes(b"\xff\xfe\x00a")
    for name in ("d.csv.gz", "e.csv"):
        with pytest.raises(BadDataError, match=rf"{name}: cannot be read: "):
            read(tmp_path / name)

"""CSV files as samples: columns to inputs, rows to samples or windows, labels, and cells that are wrong."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converters import csvsource
from converters.samples import InputInfo, Samples
from edged.errors import BadDataError

FLAT = InputInfo("x", "float32", (1, 3))
WINDOW = InputInfo("x", "float32", (1, 4, 2))
SCALARS = (InputInfo("flow", "float32", (1, 1)), InputInfo("hour", "int32", (1,)))
VALUES = np.random.default_rng(0).normal(size=(10, 2))


def load(folder: Path, text: str, *inputs: InputInfo, labels: bool = False, name: str = "d.csv") -> Samples:
    path = folder / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8", newline="")
    return csvsource.load(path, inputs, labels=labels)


def rows(values: Any, header: str = "a,b") -> str:
    return "\n".join([header, *(",".join(map(repr, row)) for row in values.tolist())]) + "\n"


@pytest.mark.parametrize("name", ["d.csv", "d.csv.gz", "D.CSV"])
@pytest.mark.parametrize(
    "text", ["a,b,c\n1,2,3\n4,5,6\n", "\ufeffa;b;c\r\n1;2;3\r\n\r\n4;5;6", "a\tb\tc\n 1\t2 \t3\n4\t5\t6"]
)
def test_a_row_is_a_sample(tmp_path: Path, name: str, text: str) -> None:
    """A column for each value: in order, packed or not, whatever spreadsheet wrote it; the order is told."""
    samples = load(tmp_path, text, FLAT, name=name)
    np.testing.assert_array_equal(samples.arrays["x"], np.array([[[1, 2, 3]], [[4, 5, 6]]], np.float32))
    assert samples.arrays["x"].dtype == np.float32
    assert samples.notes == (f"{name}: the columns a, b, c are taken in order for 'x'",)


def test_without_a_header_the_columns_are_in_order(tmp_path: Path) -> None:
    """A first line of numbers is data, not a header."""
    samples = load(tmp_path, "1,2,3\n4,5,6\n", FLAT)
    assert samples.arrays["x"].ravel().tolist() == [1, 2, 3, 4, 5, 6]
    assert samples.notes == ()


def test_several_inputs_take_their_columns_by_name(tmp_path: Path) -> None:
    """In whatever order: one value by the input's name, several by name and number."""
    pair = InputInfo("p", "float32", (1, 2))
    samples = load(tmp_path, "p[1],hour,p[0],flow\n2,23,1,.5\n4,0,3,1e1\n", *SCALARS, pair)
    assert samples.arrays["p"].tolist() == [[[1, 2]], [[3, 4]]]
    assert samples.arrays["flow"].tolist() == [[[0.5]], [[10]]]
    assert samples.arrays["hour"].tolist() == [[23], [0]]
    assert samples.arrays["hour"].dtype == np.int32


def test_rows_are_steps_of_a_window(tmp_path: Path) -> None:
    """Two columns for [1, 4, 2]: rows 0-3 and 4-7 are the windows; the two rows left over are told."""
    samples = load(tmp_path, rows(VALUES), WINDOW)
    np.testing.assert_array_equal(samples.arrays["x"], VALUES[:8].reshape(2, 1, 4, 2).astype(np.float32))
    assert "10 rows make 2 windows of 4" in samples.notes[1]
    assert "2 rows fill no window" in samples.notes[2]


def test_one_column_is_a_series(tmp_path: Path) -> None:
    """[1, 5] and one column: a window is five rows of it."""
    samples = load(tmp_path, rows(VALUES[:, :1], "flow"), InputInfo("x", "float32", (1, 5)))
    np.testing.assert_array_equal(samples.arrays["x"], VALUES[:, 0].reshape(2, 1, 5).astype(np.float32))


def test_a_window_in_each_row(tmp_path: Path) -> None:
    """Eight columns for [1, 4, 2]: each row is a whole window."""
    samples = load(tmp_path, rows(VALUES.reshape(-1)[:16].reshape(2, 8), "a,b,c,d,e,f,g,h"), WINDOW)
    np.testing.assert_array_equal(samples.arrays["x"].reshape(-1), VALUES.reshape(-1)[:16].astype(np.float32))


def test_no_window_holds_two_classes(tmp_path: Path) -> None:
    """Rows 0-4 walk, 5-9 run: one window from each recording, none across; each has its class."""
    text = "\n".join(
        ["a,b,label", *(f"{a!r},{b!r},{'walk' if i < 5 else 'run'}" for i, (a, b) in enumerate(VALUES.tolist()))]
    )
    samples = load(tmp_path, text, WINDOW, labels=True)
    assert samples.labels is not None
    assert samples.labels.tolist() == ["walk", "run"]
    expected = np.stack([VALUES[0:4], VALUES[5:9]]).reshape(2, 1, 4, 2).astype(np.float32)
    np.testing.assert_array_equal(samples.arrays["x"], expected)
    unused = load(tmp_path, text, WINDOW)
    np.testing.assert_array_equal(unused.arrays["x"], expected)
    assert unused.labels is None
    assert any("the labels are not used" in note for note in unused.notes)


@pytest.mark.parametrize(
    ("cells", "expected", "kind"), [("1 2", [1, 2], "i"), ("1 2.5", [1, 2.5], "f"), ("1 off", ["1", "off"], "U")]
)
def test_labels_are_classes_names_or_targets(tmp_path: Path, cells: str, expected: list[Any], kind: str) -> None:
    """Whole numbers are class numbers, other numbers what a regression should answer, text names of classes."""
    one, two = cells.split()
    found = load(tmp_path, f"y,a,b,c\n{one},1,2,3\n{two},4,5,6\n", FLAT, labels=True).labels
    assert found is not None
    assert (found.dtype.kind, found.tolist()) == (kind, expected)


def test_targets_of_several_values_and_windows(tmp_path: Path) -> None:
    """`y[0]`, `y[1]`: two targets a row; a window's targets are those of its last row, for they change all the time."""
    found = load(tmp_path, "a,b,c,y[1],y[0]\n1,2,3,.5,.25\n4,5,6,1.5,1.25\n", FLAT, labels=True).labels
    assert found is not None
    assert found.tolist() == [[0.25, 0.5], [1.25, 1.5]]
    series = "\n".join(["v,y", *(f"{i},{i}.5" for i in range(6))])
    found = load(tmp_path, series, InputInfo("x", "float32", (1, 3)), labels=True).labels
    assert found is not None
    assert found.tolist() == [2.5, 5.5]


def test_an_input_called_y_is_an_input(tmp_path: Path) -> None:
    """A label column is one only where the model has no input of that name."""
    samples = load(tmp_path, "y\n1\n2\n", InputInfo("y", "float32", (1, 1)), labels=True)
    assert samples.labels is None
    assert samples.arrays["y"].ravel().tolist() == [1, 2]


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("oops", "'oops' is no number"),
        ("", "is empty"),
        ("nan", "'nan' is not finite"),
        ("1e999", "'1e999' is not finite"),
        ("1_000", "'1_000' is no number"),
        ("0,5", r"'0,5' is no number \(decimals are written with a point\)"),
    ],
)
def test_a_bad_cell_is_named_by_line_and_column(tmp_path: Path, cell: str, says: str) -> None:
    """The line as an editor counts it, blank lines included, and the column's name."""
    with pytest.raises(BadDataError, match=f"d.csv, line 5, column 'b': {says}"):
        load(tmp_path, f"a;b;c\n1;2;3\n\n\n4;{cell};6\n", FLAT)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no rows"),
        ("a,b,c\n", "holds no rows below its header"),
        ("a,b,c\n1,2\n", r"line 2: has 2 cells, not 3"),
        ("a,a,c\n1,2,3\n", "two columns are called 'a'"),
        ("t,a,b,c\n1,2,3,4\n", r"4 columns for input 'x' of shape \[1, 3\] \(it takes 3 with a sample in each row"),
        ("a,b,c,y\n1,2,3,\n", "line 2, column 'y': is empty"),
        ("v\n1\n2\n", "2 rows, a window takes 3"),
        ("a,b,c\n1e39,2,3\n", "sample 0 holds NaN or Inf"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path: Path, text: str, says: str) -> None:
    """Each with the file, and the line or the columns that are wrong."""
    with pytest.raises(BadDataError, match=says):
        load(tmp_path, text, FLAT, labels=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("flow\n1\n", "no column for input 'hour'"),
        ("1,2\n", "has no header, and the model 2 inputs"),
        ("flow,hour,hours\n1,2,3\n", r"column 'hours' is no input of the model \(did you mean 'hour'\?\)"),
        ("flow,hour\n1,2.5\n", "line 2, column 'hour': 2.5 is not a whole number of -2147483648 to 2147483647"),
        ("flow,hour\n1,3e9\n", "3e\\+09 is not a whole number of -2147483648"),
    ],
)
def test_columns_must_be_the_inputs(tmp_path: Path, text: str, says: str) -> None:
    """With several inputs names decide: a missing, an unknown or a wrong one is refused by name."""
    with pytest.raises(BadDataError, match=says):
        load(tmp_path, text, *SCALARS)


def test_steps_of_one_input_and_samples_of_another_do_not_mix(tmp_path: Path) -> None:
    """A series beside a scalar of the whole window: rows cannot be both."""
    series = InputInfo("s", "float32", (1, 4))
    with pytest.raises(BadDataError, match="steps of one input and samples of another"):
        load(tmp_path, "s,flow\n1,2\n3,4\n", series, InputInfo("flow", "float32", (1, 1)))


@pytest.mark.parametrize("content", [b"\xff\xfe\x00a", b"\x1f\x8b\x08broken"])
@pytest.mark.parametrize("name", ["d.csv", "d.csv.gz"])
def test_a_file_that_is_no_csv_is_one_line(tmp_path: Path, name: str, content: bytes) -> None:
    """Binary rubbish, or gzip that is none or is cut off, is BadDataError and nothing else."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadDataError):
        csvsource.load(tmp_path / name, (FLAT,), labels=False)

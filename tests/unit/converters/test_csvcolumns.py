"""Columns to inputs and labels, by name and by order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from converters import csvcolumns, csvfile
from converters.csvcolumns import Layout
from converters.samples import InputInfo
from edged.errors import BadDataError

X, FLOW = InputInfo("x", "float32", (1, 2)), InputInfo("flow", "float32", (1, 1))


@pytest.mark.parametrize(
    ("header", "inputs", "columns", "labels"),
    [
        (["a", "y", "b"], (X,), {"x": [0, 2]}, [1]),
        ([], (X,), {"x": [0, 1, 2]}, []),
        (["x[1]", "flow", "x[0]"], (X, FLOW), {"x": [2, 0], "flow": [1]}, []),
        (["label[1]", "x", "label[0]"], (X,), {"x": [1]}, [2, 0]),
        (["y", "label", "x"], (InputInfo("y", "float32", (1, 1)), X), {"y": [0], "x": [2]}, [1]),
    ],
)
def test_which_columns_are_whose(
    header: list[str], inputs: tuple[InputInfo, ...], columns: dict[str, list[int]], labels: list[int]
) -> None:
    """By name, in the order of their numbers; all in order for the only input; labels where no input is called so."""
    layout = Layout.of(header, 3, inputs, "d.csv")
    assert (layout.columns, layout.labels) == (columns, labels)


def test_columns_taken_in_order_are_told() -> None:
    """Nothing but their order says which is which; of many the first eight are named."""
    assert Layout.of(["a", "b"], 2, (X,), "d.csv").notes == ["d.csv: the columns a, b are taken in order for 'x'"]
    (note,) = Layout.of([*"abcdefghi"], 9, (X,), "d.csv").notes
    assert "columns a, b, c, d, e, f, g, h, … are" in note


@pytest.mark.parametrize(
    ("header", "width", "says"),
    [
        ([], 0, "holds no rows"),
        (["x", "x"], 2, "two columns are called 'x'"),
        (["x", "flwo"], 2, "no column for input 'flow'"),
        (["x", "flow", "flows"], 3, "column 'flows' is no input of the model .*'flow'"),
        ([], 2, "has no header, and the model 2 inputs"),
    ],
)
def test_columns_that_fit_no_input(header: list[str], width: int, says: str) -> None:
    """Each by name."""
    with pytest.raises(BadDataError, match=says):
        Layout.of(header, width, (X, FLOW), "d.csv")


@pytest.mark.parametrize(
    ("cells", "expected", "kind"),
    [("1 2", [1, 2], "i"), ("1 2.0", [1, 2], "f"), ("1 off", ["1", "off"], "U"), ("1e0 2", [1, 2], "f")],
)
def test_labels_are_numbers_where_all_are(tmp_path: Path, cells: str, expected: list[Any], kind: str) -> None:
    """Whole numbers written as such are class numbers, other numbers targets, the rest names."""
    (tmp_path / "d.csv").write_text("y,x\n" + "".join(f"{cell},0\n" for cell in cells.split()))
    with csvfile.opened(tmp_path / "d.csv") as sheet:
        layout = Layout.of(sheet.header, sheet.width, (X,), "d.csv")
        found = csvcolumns.labels(sheet.cells(layout.labels), layout)
    assert found is not None
    assert (found.dtype.kind, found.tolist()) == (kind, expected)

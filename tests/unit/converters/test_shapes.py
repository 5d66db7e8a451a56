"""A size for every open dimension, and why."""

from __future__ import annotations

from typing import Any

import pytest

from converters import shapes
from converters.shapes import Asked, Dims
from edged.errors import BadDataError, UsageError


def pinned(found: shapes.Shapes) -> list[tuple[str, int, int]]:
    return [(p.input, p.dimension, p.size) for p in found.pinned]


def test_the_open_first_dimension_is_the_batch() -> None:
    """--batch fills it; a given shape is taken as it is; fixed shapes stay. What was open is listed."""
    dims: dict[str, Dims | None] = {"x": (None, 4), "fixed": (3, 2), "audio": (1, None)}
    found = shapes.pin(dims, Asked(2, {"audio": (1, 16000)}), "m")
    assert found.fed == {"x": (2, 4), "fixed": (3, 2), "audio": (1, 16000)}
    assert found.traced == found.fed
    assert pinned(found) == [("x", 0, 2), ("audio", 1, 16000)]
    batch, length = found.pinned
    assert batch.reason == "batch of 2: recurrent layers and some delegates need fixed sizes"
    assert length.reason == "given by --shape: some delegates need fixed sizes"


def test_shapes_of_any_rank() -> None:
    """A scalar has no batch; an unknown rank takes the given shape whole."""
    assert shapes.pin({"scalar": ()}, Asked(), "m").fed == {"scalar": ()}
    found = shapes.pin({"any": None}, Asked(1, {"any": (7, 2)}), "m")
    assert found.fed == {"any": (7, 2)}
    assert pinned(found) == [("any", 0, 7), ("any", 1, 2)]


@pytest.mark.parametrize(
    ("dims", "asked", "one"),
    [
        ({"x": (None, 3)}, Asked(), True),
        ({"x": (None, 3), "ids": (5,)}, Asked(), True),
        ({"x": (None, 3)}, Asked(2), False),
        ({"x": (None, 3)}, Asked(1, {"x": (4, 3)}), False),
        ({"x": (None, 3), "y": (None, 3)}, Asked(1, {"y": (4, 3)}), False),
        ({"x": (None, 3)}, Asked(dynamic=True), False),
        ({"x": (4, 3)}, Asked(), False),
    ],
)
def test_whether_the_batch_is_one(dims: dict[str, Dims | None], asked: Asked, one: bool) -> None:
    """Only where every open batch became 1: the converter may then take 1 for it inside recurrent layers."""
    assert shapes.pin(dims, asked, "m").batch_of_one is one


def test_a_batch_that_stays_open() -> None:
    """--dynamic-batch: traced with None, fed with 1, not pinned; other dimensions are."""
    dims: dict[str, Dims | None] = {"x": (None, None, 3), "fixed": (1, 2)}
    found = shapes.pin(dims, Asked(1, {"x": (1, 5, 3)}, dynamic=True), "m")
    assert found.traced == {"x": (None, 5, 3), "fixed": (1, 2)}
    assert found.fed == {"x": (1, 5, 3), "fixed": (1, 2)}
    assert pinned(found) == [("x", 1, 5)]
    assert shapes.pin({"any": None}, Asked(1, {"any": (1, 2)}, dynamic=True), "m").traced == {"any": (None, 2)}


@pytest.mark.parametrize(
    ("dims", "asked", "says"),
    [
        ({"x": (None, None, 3)}, {}, r"'x' has the open shape \[\?, \?, 3\] \(--shape x=1,64,3\)"),
        ({"x": (None, None)}, {"batch": 4}, r"--shape x=4,64"),
        ({"x": None}, {}, r"'x' has the open shape \[…\]"),
        ({"x": (None, 3)}, {"given": {"x": (1, 4)}}, r"x=\[1, 4\] does not fit the model's \[\?, 3\]"),
        ({"x": (None, 3)}, {"given": {"x": (3,)}}, "does not fit"),
        ({"xyz": (None, 3)}, {"given": {"xyy": (1, 3)}}, r"no input 'xyy' \(did you mean 'xyz'\?\)"),
        ({"x": (1, 3)}, {"batch": 4}, "--batch: no input has an open first dimension"),
        ({"x": (1, 3)}, {"dynamic": True}, "--dynamic-batch: no input has an open first dimension"),
        ({"x": (None, 3)}, {"dynamic": True, "batch": 2}, "--dynamic-batch: leaves open what --batch 2 fixes"),
        ({"x": (None, 3)}, {"dynamic": True, "given": {"x": (2, 3)}}, r"--shape x=2,3 fixes \(--shape x=1,3\)"),
    ],
)
def test_shapes_that_cannot_be(dims: dict[str, Dims | None], asked: dict[str, Any], says: str) -> None:
    """An open or contradictory shape names the input and the flag to give."""
    with pytest.raises(UsageError, match=says):
        shapes.pin(dims, Asked(**asked), "m")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (
            Asked(300_000_000),
            r"--batch: input 'x' would have 4,800,000,000 values \(300000000,16\), at most 2,147,483,648",
        ),
        (Asked(1, {"x": (999_999_999_999, 16)}), "--shape: input 'x' would have"),
    ],
)
def test_more_values_than_a_bundle_carries(asked: Asked, says: str) -> None:
    """A slip of the finger costs a line, not the machine's memory."""
    with pytest.raises(UsageError, match=says):
        shapes.pin({"x": (None, 16)}, asked, "m")


def test_an_input_without_a_value() -> None:
    """No tensor of a bundle is empty."""
    with pytest.raises(BadDataError, match=r"m: input 'x' of shape \[1, 0\] holds no value"):
        shapes.pin({"x": (None, 0)}, Asked(), "m")

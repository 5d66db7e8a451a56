"""The `.ts` reader against values worked out by hand, and the plan of who replays what."""

from __future__ import annotations

import numpy as np
import pytest

from converters.demo import recordings
from edged.errors import BadDataError

TEXT = """\
#A comment
@problemName Tiny
@classLabel true b a
@data
1,2,3:-4.5,5e-1,6:b
% another kind of comment

7,8,9:10,11,12:a
"""


def test_values_stand_at_sample_and_dimension_and_labels_are_alphabetical() -> None:
    """Dimensions become columns, samples rows; header, comment and empty lines are no recordings."""
    found = recordings.parse(TEXT)
    expected = [[[1, -4.5], [2, 0.5], [3, 6]], [[7, 10], [8, 11], [9, 12]]]
    np.testing.assert_array_equal(found.x, np.array(expected, np.float32))
    assert found.x.dtype == np.float32
    assert found.labels == ("a", "b")
    assert found.y.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1,2,x:4,5,6:a", "line 9: could not convert"),
        ("1,2,3:4,5:a", "line 9: setting an array element"),
        ("1,2:4,5:a", r"line 9: shape \(2, 2\), the others have \(3, 2\)"),
        ("a", "line 9: not dimensions"),
    ],
)
def test_a_bad_line_is_named(line: str, message: str) -> None:
    """A value that is no number, ragged or differently long dimensions, no dimensions: each names its line."""
    with pytest.raises(ValueError, match=message):
        recordings.parse(TEXT + line)


def test_a_file_without_recordings_is_an_error() -> None:
    """A header alone does not become an empty data set."""
    with pytest.raises(ValueError, match="no recordings"):
        recordings.parse("@problemName Tiny\n")


def test_a_damaged_file_is_a_one_line_error(tmp_path: pytest.TempPathFactory) -> None:
    """A person gets the path and what to type, not a traceback."""
    with pytest.raises(BadDataError, match=r"BasicMotions_TEST.ts: .*aeon"):
        recordings.load("TEST", tmp_path)


def test_every_sensor_gets_the_same_number_and_all_recordings_are_replayed() -> None:
    """8 sensors share 40 recordings for 1,000 windows: 125 each, every recording 25 times."""
    plan = recordings.plan(8, 40, 1000)
    assert [len(order) for order in plan] == [125] * 8
    assert np.bincount(np.concatenate(plan)).tolist() == [25] * 40
    assert plan[1][:3] == [5, 6, 7]


def test_a_plan_never_has_fewer_windows_than_wanted() -> None:
    """What does not divide is rounded up, and a recording number never leaves the range."""
    plan = recordings.plan(3, 2, 10)
    assert [len(order) for order in plan] == [4, 4, 4]
    assert plan == [[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]]

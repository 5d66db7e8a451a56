"""A session is taken up only with the subscriptions it was left with."""

from __future__ import annotations

from pathlib import Path

import pytest

from edged.session import may_resume


def test_the_first_start_and_an_unchanged_one_resume(tmp_path: Path) -> None:
    """Order does not matter; the file makes its own directory."""
    state = tmp_path / "state"
    assert may_resume(state, "me", ["a/#", "b/+"])
    assert may_resume(state, "me", ["b/+", "a/#"])


def test_other_filters_begin_clean_once(tmp_path: Path) -> None:
    """Removed or added: clean, and from then on resumed again."""
    may_resume(tmp_path, "me", ["a/#", "b/+"])
    for filters in (["a/#"], ["a/#", "c"]):
        assert not may_resume(tmp_path, "me", filters)
        assert may_resume(tmp_path, "me", filters)


@pytest.mark.parametrize("content", ["", "{", "[]", "[" * 5000])
def test_a_damaged_file_begins_clean(tmp_path: Path, content: str) -> None:
    """What the session holds is not known then."""
    (tmp_path / "subscriptions.json").write_text(content)
    assert not may_resume(tmp_path, "me", ["a/#"])
    assert may_resume(tmp_path, "me", ["a/#"])


def test_a_directory_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    """A file stands where the directory should be."""
    (tmp_path / "state").write_text("")
    may_resume(tmp_path / "state", "me", ["a/#"])


def test_two_daemons_of_one_state_directory_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Each has filters of its own, by client id."""
    assert may_resume(tmp_path, "one", ["a/#"])
    assert may_resume(tmp_path, "two", ["b/#"])
    assert may_resume(tmp_path, "one", ["a/#"])
    assert not may_resume(tmp_path, "two", ["c/#"])

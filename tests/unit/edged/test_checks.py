"""Checks tell what is wrong with a value, and their rule in words."""

from __future__ import annotations

import pytest

from edged import checks


@pytest.mark.parametrize(
    ("check", "good", "bad", "says"),
    [
        (checks.at_least(3), [3, 3.5, 10**30], [2, 2.999], "at least 3"),
        (checks.at_most(3), [3, -1], [4, 3.001], "at most 3"),
        (checks.above(0), [1e-9, 1], [0, -1], "more than 0"),
    ],
)
def test_bounds(check: checks.Check, good: list[float], bad: list[float], says: str) -> None:
    """The bound itself belongs to at_least and at_most, not to above; the message has bound and value."""
    assert check.says == says
    assert [check(value) for value in good] == [None] * len(good)
    for value in bad:
        assert check(value) == f"must be {says}, got {value}"


def test_lists() -> None:
    """Empty, and the first value that comes twice."""
    assert checks.not_empty(()) == "must not be empty"
    assert checks.not_empty((0,)) is None
    assert checks.unique(("a", "b")) is None
    assert checks.unique(("a", "b", "b", "a")) == "'b' is given twice"
    assert checks.unique(()) is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (4096, 4096), (0, 0), ("12B", 12), ("1kB", 1000), ("1 KiB", 1024), ("64MiB", 67_108_864),
        ("1.5MB", 1_500_000), ("0.5GiB", 536_870_912), ("2 GB", 2_000_000_000),
    ],
)  # fmt: skip
def test_byte_sizes(given: object, expected: int) -> None:
    """SI prefixes are powers of 1,000, IEC prefixes powers of 1,024 (IEC 80000-13)."""
    assert checks.byte_size.read(given) == expected


@pytest.mark.parametrize("given", ["", "64", "64mib", "-1MB", "1e3B", "MiB", "1 M", True, 1.5, None, ["1MB"]])
def test_what_is_no_byte_size(given: object) -> None:
    """A bare number in quotes, a wrong unit, a bool, a fraction of a byte: each is told what would do."""
    with pytest.raises(ValueError, match="expected a size in bytes such as 64MiB, 10kB or 4096"):
        checks.byte_size.read(given)


def test_a_near_miss_is_guessed() -> None:
    """One letter off is guessed, another word is not."""
    assert checks.hint("bundel", ["bundle", "name"]) == " (did you mean 'bundle'?)"
    assert checks.hint("zzz", ["bundle", "name"]) == ""


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"a": 1}, "a mapping"), ([1, 2], "a list"), ((), "a list"), (None, "nothing"), (True, "true"),
        (False, "false"), ("text", "'text'"), (3, "3"), ("two\nlines", r"'two\nlines'"),
    ],
)  # fmt: skip
def test_values_are_shown_on_one_line(value: object, shown: str) -> None:
    """As YAML calls them, not as Python does."""
    assert checks.show(value) == shown


def test_what_is_shown_is_short_and_holds_no_password() -> None:
    """An error line may end up in anybody's log."""
    assert checks.show("mqtt://me:s3cret@host") == "'mqtt://…@host'"
    assert "s3cret" not in checks.show("mqtt://me:s3cret@host\nmqtt://x")
    assert len(checks.show("x" * 1000)) < 70

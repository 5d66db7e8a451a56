"""Words for a terminal."""

from __future__ import annotations

import pytest

from edged import shown


def test_errors_in_one_line() -> None:
    """The first line alone, or all of them joined; an error without words is told by its class."""
    exc = ValueError("\n one\ntwo  three\n")
    assert (shown.first_line(exc), shown.one_line(exc)) == ("one", "one two three")
    assert (shown.first_line(KeyError()), shown.one_line(MemoryError())) == ("KeyError", "MemoryError")


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1 << 20, "1.0 MiB"),
        ((1 << 30) - 1, "1024.0 MiB"),
        (5 << 30, "5.0 GiB"),
        (1 << 43, "8192.0 GiB"),
    ],
)
def test_sizes(count: int, told: str) -> None:
    """Powers of 1024, from bytes to GiB."""
    assert shown.size(count) == told


def test_shapes() -> None:
    """Dimensions joined; none is a scalar."""
    assert (shown.shape([1, 28, 28]), shown.shape(())) == ("1x28x28", "scalar")


def test_a_name_that_is_too_long() -> None:
    """It is cut, and says so; a list tells how many names it leaves out, and a long cell pads no other row."""
    assert shown.clipped("a" * 120) == "a" * 120
    assert shown.clipped("a" * 10**6) == "a" * 119 + "…"
    assert shown.clipped("a\nb\x1b" + "c" * 10**6) == "ab" + "c" * 117 + "…"
    assert shown.listed("abcd", 4) == "a, b, c, d"
    assert shown.listed("abcdef", 4) == "a, b, c, d and 2 more"
    assert max(map(len, shown.table([["a" * 10**6, "x"], ["b", "y"]]).splitlines())) < 130


def test_a_table() -> None:
    """Columns two spaces apart, the last one as wide as it likes; escapes are left out, and lines end in no blanks."""
    rows = [["a", "bb", "c"], ["aaa", "", ""], ["\x1b[31mx", "y"]]
    assert shown.table(rows, "> ") == "> a      bb  c\n> aaa\n> [31mx  y\n"
    assert shown.table([]) == ""

"""Words for a terminal: text from outside, errors, sizes, shapes and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# What a person is shown: of a name, of a program's own words, and how many names of a list.
CLIP, WORDS, LISTED = 120, 160, 60


def plain(text: str) -> str:
    """Return the text without control characters (terminal escapes), also those that turn its direction."""
    return text if text.isprintable() else "".join(char for char in text if char.isprintable())


def plain_lines(text: str) -> str:
    """`plain` of each line; line ends stay."""
    return "\n".join(map(plain, text.split("\n")))


def clipped(text: str, most: int = CLIP) -> str:
    """Return a name that others chose: `plain`, and cut where it is longer than a person reads, `aaaa…`."""
    text = plain(text[: 2 * most])
    return text if len(text) <= most else text[: most - 1] + "…"


def listed(names: Iterable[str], most: int = LISTED) -> str:
    """Return names with commas between them; of many the first ones, and how many more there are."""
    found = list(names)
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")


def first_line(exc: BaseException) -> str:
    """Return the first line of an error's text, its class where it has no text."""
    lines = str(exc).strip().splitlines()
    return lines[0] if lines else type(exc).__name__


def one_line(exc: BaseException) -> str:
    """Return the whole text of an error in one line, its class where it has no text."""
    return " ".join(str(exc).split()) or type(exc).__name__


def size(count: int) -> str:
    """Return a number of bytes as a person reads it: `812 B`, `64.0 KiB`, `16.0 MiB`, `2.0 GiB`."""
    if count < 1024:  # noqa: PLR2004
        return f"{count} B"
    power = min(3, (count.bit_length() - 1) // 10)
    return f"{count / 1024**power:.1f} {'KMG'[power - 1]}iB"


def shape(dims: Sequence[int]) -> str:
    """Return a shape: `1x28x28`, or `scalar`."""
    return "x".join(map(str, dims)) or "scalar"


def table(rows: Iterable[Sequence[str]], indent: str = "  ") -> str:
    """Lay rows out in columns two spaces apart; each line ends in a newline.

    Cells may come from files of others: control characters (terminal escapes) are left out, and a cell that others
    stand behind is clipped.
    """
    lines = [[*(clipped(plain(cell)) for cell in row[:-1]), *map(plain, row[-1:])] for row in rows]
    count = max(map(len, lines), default=0)
    widths = [max((len(row[i]) for row in lines if i < len(row) - 1), default=0) for i in range(count)]
    return "".join(
        (indent + "  ".join(cell.ljust(widths[i]) for i, cell in enumerate(row))).rstrip() + "\n" for row in lines
    )

"""Text from outside as a terminal may show it."""

from __future__ import annotations


def plain(text: str) -> str:
    """Return the text without control characters (terminal escapes), also those that turn its direction."""
    return text if text.isprintable() else "".join(char for char in text if char.isprintable())


def plain_lines(text: str) -> str:
    """`plain` of each line; line ends stay."""
    return "\n".join(map(plain, text.split("\n")))

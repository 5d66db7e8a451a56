"""A line that tells how far a long command is."""

from __future__ import annotations

import shutil
from typing import TextIO

from edged.shown import plain

_CLEAR = "\r\x1b[K"


class Progress:
    """One line that is overwritten, on a terminal; with `lines` a line for each step, anywhere; else nothing.

    live: whether there is a line that moves.
    """

    def __init__(self, stream: TextIO, *, lines: bool = False) -> None:
        self._stream, self._lines = stream, lines
        self.live = stream.isatty() and not lines

    def show(self, text: str) -> None:
        """Draw the line anew, cut to the terminal's width: of what runs over, a part would stay."""
        if self._lines:
            self._write(f"{plain(text)}\n")
        elif self.live:
            self._write(_CLEAR + plain(text)[: shutil.get_terminal_size().columns - 1])

    def done(self) -> None:
        """Clear the line."""
        if self.live:
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:  # a full disk, a terminal that is gone: the work goes on, and nobody can be told
            self.live = self._lines = False

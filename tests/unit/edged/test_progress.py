"""The line that moves: on terminals only, and never longer than they are wide."""

from __future__ import annotations

import io

import pytest

from edged.commands.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def told(stream: io.StringIO, *texts: str, lines: bool = False) -> str:
    progress = Progress(stream, lines=lines)
    for text in texts:
        progress.show(text)
    progress.done()
    return stream.getvalue()


def test_a_pipe_gets_nothing_and_a_terminal_one_line() -> None:
    """What is not looked at stays clean; with `lines` every step is a line, wherever it goes."""
    assert told(io.StringIO(), "one", "two") == ""
    assert told(Terminal(), "one", "two") == "\r\x1b[Kone\r\x1b[Ktwo\r\x1b[K"
    assert told(Terminal(), "one", lines=True) == told(io.StringIO(), "one", lines=True) == "one\n"


def test_it_is_cut_to_the_terminals_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that wraps cannot be overwritten; a line of a log may be long."""
    monkeypatch.setenv("COLUMNS", "10")
    assert told(Terminal(), "x" * 80) == f"\r\x1b[K{'x' * 9}\r\x1b[K"
    assert told(io.StringIO(), "x" * 80, lines=True) == "x" * 80 + "\n"


def test_it_repeats_no_control_characters() -> None:
    """A path or a broker's word must not steer the terminal."""
    assert told(Terminal(), "a\x1b[2Jb") == "\r\x1b[Ka[2Jb\r\x1b[K"

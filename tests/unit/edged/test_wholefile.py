"""There is the old file or the new one, and never a part of either."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from edged import wholefile


def test_it_takes_the_place_of_what_was_there(tmp_path: Path) -> None:
    """Below directories that are made for it; and nothing else is left."""
    path = tmp_path / "a" / "b.json"
    for text in ("old", "new µ"):
        wholefile.write(path, text)
    assert path.read_text() == "new µ"
    assert list(path.parent.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full when it is to be put on it."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    path = tmp_path / "b.json"
    wholefile.write(path, "old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="full"):
        wholefile.write(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    """Of this file, by a later write; what is written at this moment is another process's."""
    left, now, other = (tmp_path / f"{name}.part" for name in ("b.json.1", "b.json.2", "c.json.1"))
    for part in (left, now, other):
        part.write_text("{")
    for part in (left, other):
        os.utime(part, (1_600_000_000, 1_600_000_000))
    wholefile.write(tmp_path / "b.json", "new")
    assert (left.exists(), now.exists(), other.exists()) == (False, True, True)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """As text, up to the size that the reader expects."""
    wholefile.write(tmp_path / "a", "new µ")
    assert wholefile.read(tmp_path / "a", 6) == "new µ"
    with pytest.raises(OSError, match="larger than 5 bytes"):
        wholefile.read(tmp_path / "a", 5)


def test_a_named_pipe_is_refused_at_once(tmp_path: Path) -> None:
    """It would be waited for; a directory is refused too."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no regular file"):
        wholefile.read(tmp_path / "pipe", 10)
    with pytest.raises(OSError, match=r"directory|regular"):
        wholefile.read(tmp_path, 10)


def test_the_first_line_is_a_password(tmp_path: Path) -> None:
    """Without its line end; what cannot be one is told without what is in the file."""
    path = tmp_path / "pw"
    path.write_text("s3cret \nmore\n")
    assert wholefile.first_line(path) == "s3cret "
    for content, what in (
        (b"", "the first line is empty"),
        (b"\nx", "the first line is empty"),
        (b"s\xff3", "not UTF-8 text"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"^{what}$") as caught:
            wholefile.first_line(path)
        assert caught.value.__cause__ is None

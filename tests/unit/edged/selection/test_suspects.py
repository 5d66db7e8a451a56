"""A mark outlives whoever died while opening, and nobody else's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edged.selection.suspects import FOLDER, Marks

KEY = {"delegate": "vx"}
HOLD = """
import os, sys
from pathlib import Path
from edged.selection.suspects import Marks
with Marks(Path(sys.argv[1])).opening({"delegate": "vx"}, "vx on r"):
    print("held", flush=True)
    if sys.argv[2] == "crash":
        os.kill(os.getpid(), 9)
    sys.stdin.read()
"""


def holding(state: Path, how: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(state), how]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_a_process_that_is_killed_leaves_its_mark(tmp_path: Path) -> None:
    """SIGKILL in the middle of an opening: the next process sees it, until it is cleared."""
    with holding(tmp_path, "crash") as child:
        child.wait(10)
    marks = Marks(tmp_path)
    assert marks.left(KEY)
    assert not marks.left({"delegate": "gpu"})
    marks.clear(KEY)
    assert not marks.left(KEY)


def test_the_mark_of_a_process_that_lives_says_nothing(tmp_path: Path) -> None:
    """A daemon that is just opening it is no suspect's trace; afterwards the mark is gone."""
    with holding(tmp_path, "live") as child:
        assert not Marks(tmp_path).left(KEY)
        child.communicate("", timeout=10)
    assert list((tmp_path / FOLDER).iterdir()) == []


@pytest.mark.parametrize("change", [{"boot": "another"}, {"started": "1"}, {"pid": 2**22 + 1}])
def test_the_pid_of_another_process_is_not_taken_for_it(change: dict[str, object], tmp_path: Path) -> None:
    """A pid is used again, also after a reboot: start time and boot tell."""
    marks = Marks(tmp_path)
    with marks.opening(KEY, "vx"):
        (path,) = (tmp_path / FOLDER).iterdir()
        assert not marks.left(KEY)
        path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
        assert marks.left(KEY)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_a_mark_cut_short_by_the_crash_counts(text: str, tmp_path: Path) -> None:
    """It was written for a reason."""
    marks = Marks(tmp_path)
    with marks.opening(KEY, "vx"):
        (path,) = (tmp_path / FOLDER).iterdir()
        path.write_text(text)
        assert marks.left(KEY)


def test_an_orderly_end_takes_the_marks_along(tmp_path: Path) -> None:
    """A daemon that is stopped while it opens did not crash."""
    marks = Marks(tmp_path)
    with marks.opening(KEY, "vx"):
        marks.let_go()
        assert list((tmp_path / FOLDER).iterdir()) == []


def test_an_error_is_no_crash(tmp_path: Path) -> None:
    """The library refused, and said so."""
    marks = Marks(tmp_path)
    with pytest.raises(OSError, match="no device"), marks.opening(KEY, "vx"):
        raise OSError("no device")
    assert not marks.left(KEY)


def test_a_directory_that_cannot_be_written_is_no_obstacle(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Told, and opened all the same."""
    (tmp_path / "state").write_text("")
    opened = []
    with Marks(tmp_path / "state").opening(KEY, "vx"):
        opened.append(os.getpid())
    assert opened
    assert "would not be remembered" in caplog.text

"""A mark outlives whoever died while opening, and nobody else's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from edged import wholefile
from edged.selection.suspects import FOLDER, Marks

KEY = {"delegate": "vx"}
HOLD = """
import os, sys
from pathlib import Path
from edged import wholefile
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


@pytest.mark.parametrize("when", ["before", "after"])
def test_one_that_is_interrupted_while_it_makes_its_mark_leaves_none(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C just when the file was made, or before that."""
    writes = wholefile.write

    def interrupted(path: Path, text: str) -> None:
        if when == "after":
            writes(path, text)
        raise KeyboardInterrupt

    monkeypatch.setattr(wholefile, "write", interrupted)
    with pytest.raises(KeyboardInterrupt), Marks(tmp_path).opening(KEY, "vx"):
        pass
    assert list(tmp_path.glob(f"{FOLDER}/*")) == []


def test_two_threads_that_open_the_same_hold_one_mark(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two models with one bundle: the mark stays until the last of them is done."""
    marks = Marks(tmp_path)
    with marks.opening(KEY, "vx"):
        with marks.opening(KEY, "vx"):
            pass
        assert len(list((tmp_path / FOLDER).iterdir())) == 1
    assert list((tmp_path / FOLDER).iterdir()) == []
    assert caplog.text == ""


def test_two_processes_that_open_the_same_have_a_mark_each(tmp_path: Path) -> None:
    """One of them is done, the other one crashes afterwards: that is seen, and cleared, when a third one lives."""
    with holding(tmp_path, "live") as first, holding(tmp_path, "live") as second, holding(tmp_path, "live") as third:
        first.communicate("", timeout=10)
        assert not Marks(tmp_path).left(KEY)
        second.kill()
        second.wait(10)
        assert Marks(tmp_path).left(KEY)
        Marks(tmp_path).clear(KEY)
        assert not Marks(tmp_path).left(KEY)
        assert len(list((tmp_path / FOLDER).iterdir())) == 1
        third.communicate("", timeout=10)
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_a_named_pipe_is_a_mark_that_cannot_be_read(tmp_path: Path) -> None:
    """It is not waited for."""
    marks = Marks(tmp_path)
    with marks.opening(KEY, "vx"):
        (path,) = (tmp_path / FOLDER).iterdir()
        path.unlink()
        os.mkfifo(path)
        assert marks.left(KEY)


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


def test_after_an_orderly_end_no_mark_is_made(tmp_path: Path) -> None:
    """The thread that opens the accelerator again may be late: what it opens then is closed at once."""
    marks = Marks(tmp_path)
    marks.let_go()
    with marks.opening(KEY, "vx"):
        assert not (tmp_path / FOLDER).exists()


def test_a_mark_that_is_being_written_at_the_end_goes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end waits for the write, whichever thread it is on."""
    marks, writes = Marks(tmp_path), wholefile.write
    begun, ended, going = threading.Event(), threading.Event(), threading.Event()

    def slow(path: Path, text: str) -> None:
        begun.set()
        going.wait(10)
        writes(path, text)

    def let_go() -> None:
        marks.let_go()
        ended.set()

    monkeypatch.setattr(wholefile, "write", slow)
    done = threading.Event()

    def hold() -> None:
        with marks.opening(KEY, "vx"):
            done.wait(10)

    threads = [threading.Thread(target=target) for target in (hold, let_go)]
    threads[0].start()
    assert begun.wait(10)
    threads[1].start()
    assert not ended.wait(0.05)
    going.set()
    assert ended.wait(10)
    assert list((tmp_path / FOLDER).iterdir()) == []
    done.set()
    for thread in threads:
        thread.join(10)

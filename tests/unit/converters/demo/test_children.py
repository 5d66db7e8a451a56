"""Children are read, their failures shown with their own words, and none outlives the demo."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from converters.demo.children import Child, Children
from edged.errors import InternalError


def shell(tmp_path: Path, script: str) -> Child:
    return Child("shell", ["/bin/sh", "-c", script], tmp_path / "shell.log")


def test_the_last_json_line_is_kept_and_other_words_go_to_the_log(tmp_path: Path) -> None:
    """Reports and words for a person share standard output without harm."""
    child = shell(tmp_path, """echo '{"n": 1}'; echo hello; echo '{"n": 2}'; echo 3; echo oops >&2""")
    assert child.finish(10) == {"n": 2}
    assert set((tmp_path / "shell.log").read_text().split()) == {"hello", "3", "oops"}


def test_a_bad_end_shows_the_end_of_the_log(tmp_path: Path) -> None:
    """The person sees what the child said, and its exit status or the signal's name."""
    with pytest.raises(InternalError, match=r"(?s)edged demo: shell: ended with 3.*no such model"):
        shell(tmp_path, "echo no such model >&2; exit 3").finish(10)
    with pytest.raises(InternalError, match="shell: was killed by SIGSEGV"):
        shell(tmp_path, "kill -SEGV $$").finish(10)


def test_a_child_that_does_not_end_is_a_failure(tmp_path: Path) -> None:
    """Waiting is bounded."""
    child = shell(tmp_path, "sleep 60")
    with pytest.raises(InternalError, match="not done after"):
        child.finish(0.05)
    child.stop()


def test_leaving_the_block_ends_whole_groups_even_deaf_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A grandchild ends with its parent, and a child that ignores SIGTERM is killed."""
    monkeypatch.setattr("converters.demo.children.STOP_S", 0.3)
    with pytest.raises(KeyboardInterrupt):
        _interrupted(tmp_path, found := [])
    (child,) = found
    assert child.code == -9
    grandchild = Path(f"/proc/{child.last['pid']}/stat")
    end = time.monotonic() + 10
    while _running(grandchild) and time.monotonic() < end:
        time.sleep(0.01)
    assert not _running(grandchild)


def _interrupted(tmp_path: Path, found: list[Child]) -> None:
    with Children(tmp_path) as children:
        child = children.python("deaf", "timeit", "-n1", "-r1", "-s", DEAF, "time.sleep(60)")
        found.append(child)
        end = time.monotonic() + 30
        while "pid" not in child.last and time.monotonic() < end:
            time.sleep(0.01)
        raise KeyboardInterrupt


DEAF = """
import json, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(json.dumps({"pid": subprocess.Popen(["sleep", "60"]).pid}), flush=True)
"""


def _running(stat: Path) -> bool:
    # A killed orphan may wait as a zombie for the reaper of its machine.
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_users_files_do_not_stand_in_for_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`edged demo` typed where a json.py lies: its children do not import that."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "json.py").write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path / "here")
    with Children(tmp_path) as children:
        code = "import json; print(json.dumps({'ok': 1}))"
        assert children.python("tell", "timeit", "-n1", "-r1", "-s", code).finish(30) == {"ok": 1}


def test_an_interrupt_while_a_child_starts_does_not_lose_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C right behind the fork, before the child is known: it is stopped all the same, and the interrupt stands."""
    started: list[int] = []
    original = subprocess.Popen.__init__

    def interrupted(self: subprocess.Popen[bytes], *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        started.append(self.pid)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess.Popen, "__init__", interrupted)
    with pytest.raises(KeyboardInterrupt), Children(tmp_path) as children:
        children.python("sleeper", "timeit", "-n1", "-r1", "import time; time.sleep(60)")
    (pid,) = started
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)

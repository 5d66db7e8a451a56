"""Child processes: results, errors and deaths come back as what they are."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from converters import child
from converters.child import DiedError
from edged.errors import BadDataError, ConfigError
from edged.limits import Limits

_HEAD = "import os, signal, sys\nfrom converters import child\nfrom edged.errors import *\n"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module `stage_child` that the child can import; its source is written by the test."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "stage_child.py"


def run(module: Path, body: str, stages: list[str] | None = None, limits: Limits | None = None) -> dict[str, object]:
    module.write_text(f"{_HEAD}def work(job, folder, on_stage):\n    {body}\nchild.main(work)\n")
    told = (stages if stages is not None else []).append
    return child.run("stage_child", {"n": 20}, module.parent / "run", told, limits)


def test_job_in_result_and_stages_out(module: Path) -> None:
    """The job arrives, stages are told in order while the child runs, the result comes back."""
    stages: list[str] = []
    body = "on_stage('one'); on_stage('two'); print('noise'); return {'twice': 2 * job['n'], 'in': str(folder)}"
    assert run(module, body, stages) == {"twice": 40, "in": str(module.parent / "run")}
    assert stages == ["one", "two"]
    assert "noise" in child.log_tail(module.parent / "run")


def test_of_a_long_log_the_end_alone_is_read(tmp_path: Path) -> None:
    """A library may write gigabytes; here they are a hole in the file, which nobody could read in time."""
    with (tmp_path / "log").open("wb") as log:
        log.truncate(1 << 40)
        log.seek(0, os.SEEK_END)
        log.write(b"\n" + b"".join(b"line %d\n" % number for number in range(20)))
    assert child.log_tail(tmp_path, 2) == "line 18\nline 19"


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGBUS"])
def test_death_by_signal_names_the_stage_and_the_signal(module: Path, name: str) -> None:
    """A native crash cannot be caught inside; outside it is one exception that tells where."""
    with pytest.raises(DiedError) as caught:
        run(module, f"on_stage('converting to int8'); os.kill(os.getpid(), signal.{name})")
    assert caught.value.killed
    assert caught.value.reason == f"was killed by {name} while converting to int8"


def test_a_kill_is_most_often_memory(module: Path) -> None:
    """SIGKILL is what the kernel's out-of-memory killer sends."""
    with pytest.raises(DiedError) as caught:
        run(module, "on_stage('converting'); os.kill(os.getpid(), signal.SIGKILL)")
    assert caught.value.reason == "was killed by SIGKILL (most often: out of memory) while converting"


def test_a_failure_shows_the_last_line_of_the_log(module: Path) -> None:
    """An exception nobody foresaw: the log's last line, and the log for whoever looks."""
    with pytest.raises(DiedError) as caught:
        run(module, "on_stage('loading'); raise ZeroDivisionError('by nothing')")
    assert not caught.value.killed
    assert caught.value.reason == "ended with 1 while loading: ZeroDivisionError: by nothing"
    assert "Traceback" in caught.value.log


def test_leaving_without_a_result_is_a_failure(module: Path) -> None:
    """Exit 0 without a result is no success."""
    with pytest.raises(DiedError):
        run(module, "os._exit(0)")


@pytest.mark.parametrize("cls", [BadDataError, ConfigError])
def test_our_errors_keep_class_and_words(module: Path, cls: type[BadDataError]) -> None:
    """A person's mistake found in the child reads as if it had been found here, exit code and all."""
    with pytest.raises(cls) as caught:
        run(module, f"raise {cls.__name__}('file', 'is wrong', 'mend it')")
    assert str(caught.value) == "file: is wrong (mend it)"
    assert caught.value.exit_code == cls.exit_code


def test_the_working_directory_cannot_shadow_a_module(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the user's named like one of our packages is not what the child imports."""
    here = module.parent / "here"
    here.mkdir()
    (here / "converters.py").write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(here)
    assert run(module, "return {'ok': 1}") == {"ok": 1}


def test_a_child_that_hangs_is_ended(module: Path) -> None:
    """The time limit holds for a child that says nothing any more, and the error names it and the stage."""
    with pytest.raises(DiedError) as caught:
        run(module, "import time; on_stage('converting'); time.sleep(600)", limits=Limits(seconds=2))
    assert caught.value.reason == "was not done after 2 s while converting"


def test_a_child_that_hangs_on_its_way_out_is_ended(module: Path) -> None:
    """Native libraries may wait for ever when the process ends: its stages are told to their end by then."""
    body = "import atexit, time; atexit.register(time.sleep, 600); return {}"
    with pytest.raises(DiedError) as caught:
        run(module, body, limits=Limits(seconds=2))
    assert "was not done after 2 s" in caught.value.reason


def test_a_child_that_takes_too_much_memory_is_ended(module: Path) -> None:
    """Memory is counted over the child and its own children, and what was held is named."""
    grow = "import subprocess, time, sys; on_stage('converting'); subprocess.run([sys.executable, '-c', 'import time; "
    grow += "x = bytearray(300 << 20); time.sleep(600)'])"
    with pytest.raises(DiedError) as caught:
        run(module, grow, limits=Limits(memory=200 << 20))
    assert re.fullmatch(r"held 0\.\d GiB of memory, 0\.2 GiB is the limit while converting", caught.value.reason)


def test_no_grandchild_outlives_its_parent(module: Path) -> None:
    """A process that the child started, and left behind when it was killed, is gone as well."""
    body = "import subprocess; p = subprocess.Popen(['sleep', '600']); on_stage(str(p.pid)); os.kill(os.getpid(), 9)"
    stages: list[str] = []
    with pytest.raises(DiedError):
        run(module, body, stages)
    wait_for_end(int(stages[0]))


def test_a_child_does_not_outlive_a_killed_command(module: Path) -> None:
    """`kill -9` of the command: the kernel ends the child too, which would go on converting for nobody."""
    module.write_text(
        f"{_HEAD}import time\ndef work(job, folder, on_stage):\n    on_stage(str(os.getpid()))\n"
        "    time.sleep(600)\nchild.main(work)\n"
    )
    command = (
        "import sys; from pathlib import Path; from converters import child\n"
        f"child.run('stage_child', {{}}, Path({str(module.parent / 'run')!r}), lambda stage: print(stage, flush=True))"
    )
    environment = {**os.environ, "PYTHONPATH": f"{module.parent}:{Path(child.__file__).parent.parent}"}
    parent = subprocess.Popen([sys.executable, "-c", command], env=environment, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_for_end(pid)


def test_a_process_left_behind_does_not_hold_up_the_end(module: Path) -> None:
    """What the child forked, in a session of its own, holds the pipe of the stages open: the child's end is enough."""
    body = "import subprocess; p = subprocess.Popen(['sleep', '20'], pass_fds=[int(sys.argv[2])], "
    body += "start_new_session=True); on_stage(str(p.pid)); return {'ok': 1}"
    stages: list[str] = []
    assert run(module, body, stages) == {"ok": 1}
    assert _alive(int(stages[0]))  # its end was not waited for
    os.kill(int(stages[0]), signal.SIGKILL)


def test_what_a_killed_child_leaves_goes_with_its_folder(module: Path) -> None:
    """TMPDIR of a child is its own folder: nothing of it is left in the user's."""
    body = "import tempfile; os.write(tempfile.mkstemp()[0], b'left by it'); os.kill(os.getpid(), 9)"
    before = set(Path(tempfile.gettempdir()).iterdir())
    with pytest.raises(DiedError) as caught:
        run(module, body)
    assert caught.value.by_chance
    assert [p.name for p in (module.parent / "run").glob("tmp*")] != []
    assert not [
        p for p in set(Path(tempfile.gettempdir()).glob("tmp*")) - before if p.is_file() and p.stat().st_size == 10
    ]


def test_a_child_that_dies_on_a_full_disk(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder takes nothing any more: that is the reason, and no fault of the model."""

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        run(module, "os._exit(1)")


def wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + 30
    while _alive(pid):
        assert time.monotonic() < deadline, "it goes on"
        time.sleep(0.05)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False

"""Child processes: results, errors and deaths come back as what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from converters import child
from converters.child import DiedError
from edged.errors import BadDataError, ConfigError

_HEAD = "import os, signal, sys\nfrom converters import child\nfrom edged.errors import *\n"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module `stage_child` that the child can import; its source is written by the test."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "stage_child.py"


def run(module: Path, body: str, stages: list[str] | None = None) -> dict[str, object]:
    module.write_text(f"{_HEAD}def work(job, folder, on_stage):\n    {body}\nchild.main(work)\n")
    return child.run("stage_child", {"n": 20}, module.parent / "run", (stages if stages is not None else []).append)


def test_job_in_result_and_stages_out(module: Path) -> None:
    """The job arrives, stages are told in order while the child runs, the result comes back."""
    stages: list[str] = []
    body = "on_stage('one'); on_stage('two'); print('noise'); return {'twice': 2 * job['n'], 'in': str(folder)}"
    assert run(module, body, stages) == {"twice": 40, "in": str(module.parent / "run")}
    assert stages == ["one", "two"]
    assert "noise" in child.log_tail(module.parent / "run")


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

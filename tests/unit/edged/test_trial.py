"""The first load of a bundle happens in a child; its verdict is kept; a file that kills costs one child."""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
from pathlib import Path

import pytest
from support import tinymodel
from support.brokers import eventually

from edged import bundle, trial
from edged.bundle import Bundle
from edged.engines import tflite_runtime
from edged.engines.tflite_runtime import Runtime
from edged.errors import UnavailableError
from edged.trial import Trials, Verdict


@pytest.fixture
def dense(tmp_path: Path) -> Bundle:
    return bundle.read(tinymodel.write_dense_bundle(tmp_path / "dense"))


def test_a_good_bundle_is_measured_once(
    runtime: Runtime, dense: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second process asks the file, not a child."""
    first = Trials(tmp_path / "state").verdict(dense, runtime, "cpu", 1)
    assert first.ok
    assert 0 < first.p50_us <= first.p99_us
    monkeypatch.setattr(Trials, "_run", lambda *_: pytest.fail("a child was started"))
    assert Trials(tmp_path / "state").verdict(dense, runtime, "cpu", 1) == first


def test_another_thread_count_is_another_trial(runtime: Runtime, dense: Bundle, tmp_path: Path) -> None:
    """What was measured with one thread says nothing of two."""
    trials = Trials(tmp_path)
    trials.verdict(dense, runtime, "cpu", 1)
    trials.verdict(dense, runtime, "cpu", 2)
    assert len(json.loads((tmp_path / "trials.json").read_text())) == 2


def test_wrong_golden_samples_are_a_refusal_that_is_not_kept(runtime: Runtime, tmp_path: Path) -> None:
    """The reason names output and figure; the next start tries again."""
    wrong = bundle.read(tinymodel.write_dense_bundle(tmp_path / "bad", wrong_golden=True))
    verdict = Trials(tmp_path / "state").verdict(wrong, runtime, "cpu", 1)
    assert not verdict.ok
    assert "output 'y': off by 1" in verdict.reason
    assert json.loads((tmp_path / "state" / "trials.json").read_text()) == {}


def test_a_model_that_is_cut_short_costs_one_child(runtime: Runtime, tmp_path: Path) -> None:
    """Half a file with a right hash: refused, or the child dies; this process lives and says which."""
    manifest = bundle.read(tinymodel.write_dense_bundle(tmp_path / "whole")).manifest
    half = tinymodel.dense_model()[: len(tinymodel.dense_model()) // 2]
    bundle.write(tmp_path / "half", manifest, {bundle.MODEL: half})
    verdict = Trials(tmp_path / "state").verdict(bundle.read(tmp_path / "half"), runtime, "cpu", 1)
    assert not verdict.ok
    assert verdict.reason


def test_a_killed_child_is_told_by_its_signal(
    runtime: Runtime, dense: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child is really killed: its interpreter is a shell that raises SIGSEGV."""
    shell = tmp_path / "python"
    shell.write_text("#!/bin/sh\nkill -SEGV $$\n")
    shell.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(shell))
    verdict = Trials(tmp_path / "state").verdict(dense, runtime, "cpu", 1)
    assert verdict == Verdict(ok=False, reason="the process that loaded it was killed by SIGSEGV")


def killed_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int, number: str = "KILL") -> Path:
    """Make the first `times` children kill themselves before they are Python; return the file with a line for each."""
    tries, shell = tmp_path / "tries", tmp_path / "python"
    shell.write_text(
        f'#!/bin/sh\necho try >> "{tries}"\n'
        f'[ $(wc -l < "{tries}") -gt {times} ] || kill -{number} $$\nexec "{sys.executable}" "$@"\n'
    )
    shell.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(shell))
    return tries


def count(tries: Path) -> int:
    return len(tries.read_text().splitlines()) if tries.exists() else 0


def test_a_child_that_somebody_killed_is_tried_again(
    runtime: Runtime, dense: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL twice, as by the out-of-memory killer, then a good run: the verdict is the run's."""
    tries = killed_at_first(tmp_path, monkeypatch, 2)
    monkeypatch.setattr(trial, "PAUSES_S", (0.01, 0.02))
    assert Trials(tmp_path / "state").verdict(dense, runtime, "cpu", 1).ok
    assert count(tries) == 3


@pytest.mark.parametrize(("number", "tried"), [("KILL", 3), ("SEGV", 1)])
def test_trying_again_has_an_end(
    number: str, tried: int, dense: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three times for SIGKILL, once for what is the model's own doing; the reason names the signal."""
    tries = killed_at_first(tmp_path, monkeypatch, 99, number)
    monkeypatch.setattr(trial, "PAUSES_S", (0.01, 0.02))
    verdict = Trials(tmp_path / "state").verdict(dense, tflite_runtime.installed()[0], "cpu", 1)
    assert (verdict.ok, count(tries)) == (False, tried)
    assert f"was killed by SIG{number}" in verdict.reason


def test_the_pauses_are_short_and_grow() -> None:
    """A start is not held up for long by a machine that has no memory to give."""
    assert trial.PAUSES_S == (0.5, 2.0)


def test_stop_ends_the_wait_for_another_try(dense: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause would last an hour; a stop ends it, and no other child is started."""
    tries = killed_at_first(tmp_path, monkeypatch, 99)
    monkeypatch.setattr(trial, "PAUSES_S", (3600.0,))
    trials, verdicts = Trials(tmp_path / "state"), []
    runtime = tflite_runtime.installed()[0]
    thread = threading.Thread(target=lambda: verdicts.append(trials.verdict(dense, runtime, "cpu", 1)))
    thread.start()
    eventually(lambda: count(tries) == 1, "the child ran")
    trials.stop()
    thread.join(10)
    assert verdicts == [Verdict(ok=False, reason="the process that loaded it was stopped")]
    assert count(tries) == 1


def test_a_bundle_that_changes_meanwhile_is_refused(runtime: Runtime, dense: Bundle, tmp_path: Path) -> None:
    """The verdict belongs to the bytes in memory, not to whatever lies under the path by then."""
    other = dict(dense.manifest.files)
    other[bundle.MODEL] = dataclasses.replace(other[bundle.MODEL], sha256="0" * 64)
    changed = dataclasses.replace(dense, manifest=dataclasses.replace(dense.manifest, files=other))
    assert "changed" in Trials(tmp_path / "state").verdict(changed, runtime, "cpu", 1).reason


@pytest.mark.parametrize("content", ["", "{", "[]", '{"x": 1}', '{"x": {"bad": 1}}', "[" * 5000])
def test_a_damaged_state_file_is_only_a_fresh_start(content: str, dense: Bundle, tmp_path: Path) -> None:
    """It holds nothing that cannot be measured again."""
    (tmp_path / "trials.json").write_text(content)
    assert Trials(tmp_path).verdict(dense, tflite_runtime.installed()[0], "cpu", 1).ok


def test_a_state_directory_that_cannot_be_written_is_no_obstacle(dense: Bundle, tmp_path: Path) -> None:
    """A file stands where the directory should be."""
    (tmp_path / "state").write_text("")
    assert Trials(tmp_path / "state").verdict(dense, tflite_runtime.installed()[0], "cpu", 1).ok


def fixed(monkeypatch: pytest.MonkeyPatch, verdicts: dict[str, Verdict]) -> None:
    monkeypatch.setattr(Trials, "_run", lambda _self, _bundle, runtime, *_: verdicts[runtime.name])


def test_the_fastest_that_agrees_is_chosen(dense: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Speed decides among those that agree; the one that does not agree is out, however fast."""
    candidates = (Runtime("a", "edged"), Runtime("b", "edged"), Runtime("c", "edged"))
    fixed(monkeypatch, {"a": Verdict(ok=True, p50_us=9), "b": Verdict(ok=True, p50_us=5), "c": Verdict(ok=False)})
    assert Trials(tmp_path).choose(dense, candidates, "cpu", 1).name == "b"


def test_none_that_agrees_is_an_error_with_each_reason(
    dense: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both reasons stand in the one line."""
    fixed(monkeypatch, {"a": Verdict(ok=False, reason="too old"), "b": Verdict(ok=False, reason="rubbish")})
    with pytest.raises(UnavailableError, match="a: too old; b: rubbish"):
        Trials(tmp_path).choose(dense, (Runtime("a", "edged"), Runtime("b", "edged")), "cpu", 1)


def test_stop_ends_the_child_at_once(tmp_path: Path) -> None:
    """A model of seconds per invoke is being tried; stop kills the child, and the trial says so."""
    slow = bundle.read(tinymodel.write_slow_bundle(tmp_path / "slow", repeats=200))
    trials, verdicts = Trials(tmp_path / "state"), []
    runtime = tflite_runtime.installed()[0]
    thread = threading.Thread(target=lambda: verdicts.append(trials.verdict(slow, runtime, "cpu", 1)))
    thread.start()
    eventually(lambda: trials._child is not None, "the child runs")
    trials.stop()
    thread.join(10)
    assert verdicts == [Verdict(ok=False, reason="the process that loaded it was stopped")]


def test_a_known_bundle_does_not_wait_for_anothers_trial(runtime: Runtime, dense: Bundle, tmp_path: Path) -> None:
    """A trial is under way (its lock is held), for up to minutes; what is known is told at once."""
    trials, told = Trials(tmp_path / "state"), []
    first = trials.verdict(dense, runtime, "cpu", 1)
    with trials._lock:
        asking = threading.Thread(target=lambda: told.append(trials.verdict(dense, runtime, "cpu", 1)), daemon=True)
        asking.start()
        asking.join(5)
        assert told == [first]

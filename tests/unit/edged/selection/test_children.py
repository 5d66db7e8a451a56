"""A measurement runs in a child that may be killed: SIGKILL is tried again, a crash is told by its signal."""

from __future__ import annotations

import dataclasses
import sys
import threading
from pathlib import Path

import pytest
from support import tinymodel
from support.brokers import eventually

from delegates.select import Measured
from edged import bundle
from edged.bundle import Bundle
from edged.engines import tflite_runtime
from edged.engines.candidate import Candidate
from edged.engines.measure import Job
from edged.engines.tflite_runtime import Runtime
from edged.selection import children
from edged.selection.children import Measurer


@pytest.fixture
def dense(tmp_path: Path) -> Bundle:
    return bundle.read(tinymodel.write_dense_bundle(tmp_path / "dense"))


def measured(loaded: Bundle, runtime: Runtime | None = None, measurer: Measurer | None = None) -> Measured:
    candidate = Candidate((runtime or tflite_runtime.installed()[0]).name)
    job = Job(loaded.path, loaded.model_sha256, candidate, seconds=60)
    return (measurer or Measurer()).measure(job, candidate.unmeasured())


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


def test_a_good_bundle_agrees(runtime: Runtime, dense: Bundle) -> None:
    """The row has every figure, and says how many inferences they are from."""
    row = measured(dense, runtime)
    assert (row.verdict, row.reason, row.crashed, row.kept) == ("agrees", "", False, False)
    assert 0 < (row.p50_us or 0) <= (row.p99_us or 0)
    assert row.samples == 1000
    assert (row.open_ms or 0) > 0 < (row.first_ms or 0)
    assert (row.rss_bytes or 0) > 1 << 20
    assert (row.nodes_taken, row.nodes_total) == (1, 1)
    assert (row.worst or 0) < 1


def test_wrong_golden_samples_are_a_refusal(runtime: Runtime, tmp_path: Path) -> None:
    """The reason names sample, output and figures."""
    row = measured(bundle.read(tinymodel.write_dense_bundle(tmp_path / "bad", wrong_golden=True)), runtime)
    assert row.verdict == "refused"
    assert "golden sample 0, output 'y': off by 1" in row.reason
    assert (row.worst or 0) > 1


def test_a_model_that_is_cut_short_costs_one_child(runtime: Runtime, dense: Bundle, tmp_path: Path) -> None:
    """Half a file with a right hash: refused, or the child dies; this process lives and says which."""
    half = dense.model[: len(dense.model) // 2]
    bundle.write(tmp_path / "half", dense.manifest, {bundle.MODEL: half})
    row = measured(bundle.read(tmp_path / "half"), runtime)
    assert row.verdict == "failed"
    assert row.reason


def test_a_killed_child_is_told_by_its_signal(dense: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGSEGV is the candidate's own doing: it counts as a crash, and is not tried again."""
    tries = killed_at_first(tmp_path, monkeypatch, 99, "SEGV")
    row = measured(dense)
    assert (row.verdict, row.crashed, count(tries)) == ("failed", True, 1)
    assert row.reason == "the process that loaded it was killed by SIGSEGV"


def test_a_child_that_somebody_killed_is_tried_again(
    dense: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL twice, as by the out-of-memory killer, then a good run: the verdict is the run's."""
    tries = killed_at_first(tmp_path, monkeypatch, 2)
    monkeypatch.setattr(children, "PAUSES_S", (0.01, 0.02))
    assert measured(dense).verdict == "agrees"
    assert count(tries) == 3


def test_trying_again_has_an_end(dense: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times; and it is no crash, which would be remembered."""
    tries = killed_at_first(tmp_path, monkeypatch, 99)
    monkeypatch.setattr(children, "PAUSES_S", (0.01, 0.02))
    row = measured(dense)
    assert (row.verdict, row.crashed, count(tries)) == ("failed", False, 3)
    assert "was killed by SIGKILL" in row.reason


def test_the_pauses_are_short_and_grow() -> None:
    """A start is not held up for long by a machine that has no memory to give."""
    assert children.PAUSES_S == (0.5, 2.0)


def test_stop_ends_the_wait_for_another_try(dense: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause would last an hour; a stop ends it, and no other child is started, now or later."""
    tries = killed_at_first(tmp_path, monkeypatch, 99)
    monkeypatch.setattr(children, "PAUSES_S", (3600.0,))
    measurer, rows = Measurer(), []
    thread = threading.Thread(target=lambda: rows.append(measured(dense, measurer=measurer)))
    thread.start()
    eventually(lambda: count(tries) == 1, "the child ran")
    measurer.stop()
    thread.join(10)
    rows.append(measured(dense, measurer=measurer))
    assert [(row.verdict, row.reason) for row in rows] == [("failed", "the process that loaded it was stopped")] * 2
    assert count(tries) == 1


def test_stop_ends_the_child_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of seconds per invoke is being measured; stop kills the child, and the row says so."""
    slow = bundle.read(tinymodel.write_slow_bundle(tmp_path / "slow", repeats=200))
    tries = killed_at_first(tmp_path, monkeypatch, 0)
    measurer, rows = Measurer(), []
    thread = threading.Thread(target=lambda: rows.append(measured(slow, measurer=measurer)))
    thread.start()
    eventually(lambda: count(tries) == 1, "the child runs")
    measurer.stop()
    thread.join(10)
    assert [(row.verdict, row.reason) for row in rows] == [("failed", "the process that loaded it was stopped")]


def test_a_child_that_hangs_as_a_whole_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An inference of the CPU that does not return: the time is told, and it is no crash."""
    monkeypatch.setattr(children, "GRACE_S", 0.0)
    slow = bundle.read(tinymodel.write_slow_bundle(tmp_path / "slow", repeats=400))
    candidate = Candidate(tflite_runtime.installed()[0].name)
    row = Measurer().measure(Job(slow.path, slow.model_sha256, candidate, seconds=1), candidate.unmeasured())
    assert (row.verdict, row.crashed) == ("failed", False)
    assert row.reason == "the process that loaded it was not done after 1 s"


def test_a_bundle_that_changes_meanwhile_is_refused(runtime: Runtime, dense: Bundle) -> None:
    """The row belongs to the bytes in memory, not to whatever lies under the path by then."""
    other = dict(dense.manifest.files)
    other[bundle.MODEL] = dataclasses.replace(other[bundle.MODEL], sha256="0" * 64)
    changed = dataclasses.replace(dense, manifest=dataclasses.replace(dense.manifest, files=other))
    row = measured(changed, runtime)
    assert (row.verdict, row.reason) == ("failed", "the bundle changed while it was measured")

"""Inferences for nothing: idle models get them, busy ones do not, and those that check themselves do in any case."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.brokers import eventually
from support.engines import ScriptedEngine
from support.rig import WorkerRig

from edged import keepwarm
from edged.keepwarm import KeepWarm

X = np.zeros((1, 3), np.float32).tobytes()


class Checked(ScriptedEngine):
    limit_ns, pid, recheck_s, closing_s = 0, None, 0.02, 0.0

    def __init__(self) -> None:
        super().__init__()
        self.gone = False

    def ended(self) -> bool:
        return self.gone


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def rig(tmp_path: Path, engine: ScriptedEngine) -> Iterator[WorkerRig]:
    rig = WorkerRig(tmp_path, lambda: engine)
    yield rig
    engine.hang.set()
    rig.stop() if rig.worker._thread.ident else rig.sweeper.stop()


def keeping(rig: WorkerRig, keep_warm_ms: int) -> KeepWarm:
    found = KeepWarm({"m": rig.worker}, {"m": keep_warm_ms})
    found.start()
    return found


def test_an_idle_model_is_kept_warm(rig: WorkerRig, engine: ScriptedEngine) -> None:
    """Again and again, on its own thread, each at least the wait after the one before."""
    rig.start()
    started = time.monotonic()
    thread = keeping(rig, 20)
    eventually(lambda: engine.idles >= 5, "five inferences for nothing")
    assert time.monotonic() - started >= 4 * 0.02  # the first wait began with the warm-up, before `started`
    thread.stop()
    assert engine.threads == {rig.worker._thread.native_id}


def test_a_model_that_is_busy_is_left_alone(rig: WorkerRig, engine: ScriptedEngine) -> None:
    """While an inference runs and others wait no mark is queued."""
    rig.start()
    engine.hang.clear()
    for _ in range(3):
        rig.router.submit(rig.inbox.request(X))
    eventually(lambda: rig.worker.busy_since_ns != 0, "the worker is busy")
    thread = keeping(rig, 5)
    time.sleep(0.1)
    thread.stop()
    assert not rig.worker.admission._nudged
    engine.hang.set()


def test_requests_put_it_off(rig: WorkerRig, engine: ScriptedEngine) -> None:
    """The wait counts from the last inference, whoever it was for."""
    rig.start()
    rig.router.submit(rig.inbox.request(X))
    rig.inbox.get()
    rig.worker.last_idle_ns = 0
    left = keepwarm._left_ns(rig.worker, 60_000_000_000)
    assert left == keepwarm.LONGEST_NS
    rig.worker.last_done_ns -= 61_000_000_000
    assert keepwarm._left_ns(rig.worker, 60_000_000_000) < 0


def test_a_model_that_is_not_to_be_kept_warm_is_not(rig: WorkerRig, engine: ScriptedEngine) -> None:
    """0 is off."""
    rig.start()
    thread = keeping(rig, 0)
    time.sleep(0.05)
    thread.stop()
    assert engine.idles == 0


def test_a_model_that_is_still_starting_is_left_alone(rig: WorkerRig, engine: ScriptedEngine) -> None:
    """Nobody takes the mark; it is looked at again."""
    thread = keeping(rig, 5)
    time.sleep(0.05)
    assert not rig.worker.admission._nudged
    thread.stop()


def test_one_that_checks_itself_does_under_load(tmp_path: Path) -> None:
    """Every recheck_s, although requests come without a pause and it is not kept warm."""
    engine = Checked()
    rig = WorkerRig(tmp_path, lambda: engine).start()
    thread, stopping = keeping(rig, 0), threading.Event()

    def load() -> None:
        while not stopping.is_set():
            rig.router.submit(rig.inbox.request(X))
            rig.inbox.get()

    caller = threading.Thread(target=load)
    caller.start()
    eventually(lambda: engine.idles >= 3, "three checks")
    stopping.set()
    caller.join()
    thread.stop()
    rig.stop()


def test_it_ends_when_told_to(rig: WorkerRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a wait for which no test has the time."""
    monkeypatch.setattr(keepwarm, "LONGEST_NS", 3_600_000_000_000)
    thread = keeping(rig, 0)
    thread.stop()
    assert not thread._thread.is_alive()


def test_the_end_of_a_process_is_noticed_without_a_request(tmp_path: Path) -> None:
    """It is not kept warm, its next check is an hour away: the look at its process is enough."""
    engine = Checked()
    engine.recheck_s = 3600.0  # type: ignore[assignment]
    rig = WorkerRig(tmp_path, lambda: engine).start()
    thread = keeping(rig, 0)
    time.sleep(0.05)
    assert engine.idles == 0
    engine.gone = True
    eventually(lambda: engine.idles > 0, "it is looked after", 5)
    thread.stop()
    rig.stop()

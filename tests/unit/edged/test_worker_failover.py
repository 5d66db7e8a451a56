"""The worker and an engine that hands over: replies name who served, changes are told at once, idle calls run."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from support.brokers import eventually
from support.engines import ScriptedEngine
from support.failovers import Served, lose, refuse
from support.rig import WorkerRig

from edged.admission import Admission
from edged.engines.base import Array, Engine, EngineInfo
from edged.errors import Code
from edged.meta import parse_meta
from edged.worker import ModelState

X = np.array([[1.5, -2.0, 0.25]], np.float32)
DEGRADED = "npu: gone; cpu serves"


class ChangingEngine(ScriptedEngine):
    """Serves from other arrays and under another name, degraded, from the next call after `change` was set."""

    def __init__(self) -> None:
        super().__init__()
        self.info = EngineInfo("scripted", "npu", 1)
        self.change = False

    def invoke(self) -> None:
        super().invoke()
        if self.change:
            self.change = False
            old: list[Array] = [*self.inputs, *self.outputs]
            self.inputs, self.outputs = [old[0].copy()], [old[1].copy()]
            for array in old:
                array.fill(np.nan)  # who still reads them is seen
            self.info = dataclasses.replace(self.info, delegate="cpu", degraded=DEGRADED)


@pytest.fixture
def engine() -> ChangingEngine:
    return ChangingEngine()


@pytest.fixture
def rig(tmp_path: Path, engine: ChangingEngine) -> Iterator[WorkerRig]:
    rig = WorkerRig(tmp_path, lambda: engine)
    yield rig.start()
    engine.hang.set()
    rig.stop()


def ask(rig: WorkerRig, x: np.ndarray = X) -> tuple[bytes, str]:
    rig.router.submit(rig.inbox.request(x.tobytes()))
    reply = rig.inbox.get()
    return bytes(reply.payload), parse_meta(reply.meta).delegate


def test_the_reply_names_who_served_that_request(rig: WorkerRig, engine: ChangingEngine) -> None:
    """npu, then cpu for the very request at which it changed and for those after; answers from the arrays of then."""
    assert ask(rig) == ((2 * X).tobytes(), "npu")
    engine.change = True
    assert ask(rig, 3 * X) == ((6 * X).tobytes(), "cpu")
    assert ask(rig, 4 * X) == ((8 * X).tobytes(), "cpu")


def test_a_change_is_told_at_once(rig: WorkerRig, engine: ChangingEngine) -> None:
    """`on_state` is called and the info is the new one, while the model stays ready."""
    told = len(rig.states)
    engine.change = True
    ask(rig)
    assert rig.states[told:] == [ModelState.READY]
    assert rig.worker.info is engine.info
    ask(rig)
    assert len(rig.states) == told + 1


def test_a_nudge_runs_idle_on_the_workers_thread(rig: WorkerRig, engine: ChangingEngine) -> None:
    """With no request at all; what changes at it is told as well."""
    told = len(rig.states)
    engine.change = True
    rig.worker.admission.nudge()
    eventually(lambda: len(rig.states) > told, "the change is told")
    assert engine.idles == 1
    assert engine.threads == {rig.worker._thread.native_id}
    assert rig.worker.info is not None
    assert rig.worker.info.degraded == DEGRADED
    assert rig.worker.last_done_ns == 0


def test_an_idle_call_that_raises_costs_nothing(
    rig: WorkerRig, engine: ChangingEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the next request is served."""
    engine.raises = RuntimeError("Node 4 failed to invoke")
    rig.worker.admission.nudge()
    eventually(lambda: engine.idles == 1 and not rig.worker.busy_since_ns, "the idle call is over")
    engine.raises = None
    assert ask(rig)[0] == (2 * X).tobytes()
    assert "an inference for nothing failed" in caplog.text


def test_an_idle_call_that_hangs_shows_as_busy(rig: WorkerRig, engine: ChangingEngine) -> None:
    """So that it can be told to be stuck."""
    engine.hang.clear()
    rig.worker.admission.nudge()
    eventually(lambda: rig.worker.busy_since_ns != 0, "the worker is busy")
    engine.hang.set()
    eventually(lambda: rig.worker.busy_since_ns == 0, "the worker is idle")


def test_what_the_opening_is_at_is_told(tmp_path: Path) -> None:
    """Each note is the reason of the starting model; none is left when it is ready."""
    told: list[tuple[ModelState, str]] = []
    rig = WorkerRig(tmp_path, ScriptedEngine)

    def open_engine(_nudge: Callable[[], None], note: Callable[[str], None]) -> Engine:
        note("measuring npu, 1 of 2")
        note("measuring cpu, 2 of 2")
        return ScriptedEngine()

    rig.worker.plan = dataclasses.replace(rig.worker.plan, open_engine=open_engine)
    rig.worker._on_state = lambda worker: told.append((worker.state, worker.reason))
    rig.start()
    rig.stop()
    assert told[:3] == [
        (ModelState.STARTING, "measuring npu, 1 of 2"),
        (ModelState.STARTING, "measuring cpu, 2 of 2"),
        (ModelState.READY, ""),
    ]


def test_the_opener_is_given_the_way_to_nudge(tmp_path: Path) -> None:
    """It is the queue's own."""
    given: list[object] = []
    rig = WorkerRig(tmp_path, ScriptedEngine)

    def open_engine(nudge: Callable[[], None], _note: Callable[[str], None]) -> Engine:
        given.append(nudge)
        return ScriptedEngine()

    rig.worker.plan = dataclasses.replace(rig.worker.plan, open_engine=open_engine)
    rig.start()
    rig.stop()
    assert given == [rig.worker.admission.nudge]
    assert isinstance(rig.worker.admission, Admission)


def test_an_engine_that_fails_its_samples_is_closed(tmp_path: Path) -> None:
    """Its process, where it has one, must not outlive the failed model."""
    engine = ScriptedEngine()
    engine.raises = RuntimeError("Node 4 failed to invoke")
    rig = WorkerRig(tmp_path, lambda: engine, warmup=1).start()
    assert rig.worker.state is ModelState.FAILED
    assert engine.closed
    rig.stop()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Served, WorkerRig]]:
    """A worker on a real failover engine with everything scripted behind it; its change callback is the nudge."""
    served = Served(tmp_path)
    served.changes = threading.Semaphore(0)
    rig = WorkerRig(tmp_path, served.open, warmup=2)
    served.changes.release = rig.worker.admission.nudge  # type: ignore[method-assign, assignment]
    yield served, rig
    rig.stop()


def test_all_requests_of_a_failure_and_a_return_are_answered(served: tuple[Served, WorkerRig]) -> None:
    """Ready on the npu, the cpu for the request at which it is lost, and the npu again, told without any traffic."""
    parts, rig = served
    rig.start()
    assert ask(rig) == ((2 * X).tobytes(), "npu")
    lose(parts.npu)
    assert ask(rig) == ((2 * X).tobytes(), "cpu")
    assert rig.worker.info is not None
    assert rig.worker.info.degraded
    eventually(lambda: rig.worker.info is not None and not rig.worker.info.degraded, "it is taken back")
    assert ask(rig) == ((2 * X).tobytes(), "npu")
    assert rig.worker.self_checked is not None
    assert rig.worker.self_checked.pid == parts.reopen.opened[0].pid


def test_a_model_that_nothing_can_serve_is_ready_and_refuses(tmp_path: Path) -> None:
    """No delegate, no twin: the model is there, degraded, and its requests are refused until the delegate comes."""
    parts = Served(tmp_path)
    parts.reopen.raises = OSError("no such device")
    rig = WorkerRig(tmp_path, lambda: parts.open(primary=False, stand_in=False, why="no such device"), warmup=3)
    rig.start()
    assert rig.worker.state is ModelState.READY
    rig.router.submit(rig.inbox.request(X.tobytes()))
    error = rig.inbox.get().error
    assert error is not None
    assert error.code is Code.UNAVAILABLE
    rig.stop()


def test_a_request_that_is_to_blame_gets_its_error(served: tuple[Served, WorkerRig]) -> None:
    """INTERNAL with the stand-in's words; the delegate serves on."""
    parts, rig = served
    rig.start()
    refuse(parts.npu)
    parts.cpu.raises = RuntimeError("index 9 out of range")
    rig.router.submit(rig.inbox.request(X.tobytes()))
    error = rig.inbox.get().error
    assert error is not None
    assert error.code is Code.INTERNAL
    parts.npu.raises = parts.cpu.raises = None
    assert ask(rig)[1] == "npu"

"""Requests as steps of their keys: in order, each at most once, and everything that is missing is counted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.brokers import eventually
from support.requests import Inbox
from support.rig import WorkerRig

from edged.engines.base import Engine, EngineInfo
from edged.engines.keyed import KeyedEngine
from edged.errors import Code
from edged.keyed import Keyed
from edged.report import Hang, Identity, Report
from edged.worker import Worker

X = np.array([[1, 10, 100]], np.float32)


class Script:
    """What every running sum of a test does."""

    def __init__(self) -> None:
        self.raises: Exception | None = None
        self.made = 0
        self.hang, self.entered = threading.Event(), threading.Event()
        self.hang.set()


class Sum:
    """A running sum of float32 [1, 3]."""

    info = EngineInfo("none", "cpu", 1)

    def __init__(self, script: Script) -> None:
        self._script, self._total = script, np.zeros((1, 3), np.float32)
        script.made += 1
        self.inputs, self.outputs = [np.zeros((1, 3), np.float32)], [np.zeros((1, 3), np.float32)]

    def invoke(self) -> None:
        self._script.entered.set()
        self._script.hang.wait()
        if self._script.raises is not None:
            raise self._script.raises
        self._total += self.inputs[0]
        self.outputs[0][...] = self._total

    def idle(self) -> None:
        self.invoke()

    def close(self) -> None:
        pass


class Rig(WorkerRig):
    """A worker of running sums; two keys at most."""

    def __init__(self, directory: Path, **bounds: Any) -> None:
        self.script = Script()

        def server(worker: Worker, engine: Engine) -> Keyed:
            assert isinstance(engine, KeyedEngine)
            return Keyed(worker, engine, 2)

        def made() -> Engine:
            return KeyedEngine(lambda: Sum(self.script), 2, 1, self.worker.admission.nudge)

        super().__init__(directory, made, warmup=5, server=server, **bounds)

    def ask(self, key: str, payload: bytes = X.tobytes(), **more: Any) -> None:
        self.router.submit(self.inbox.request(payload, key=key, **more))

    def asked(self, key: str) -> float:
        """The first element of the answer."""
        self.ask(key)
        return float(np.frombuffer(self.inbox.get().payload, np.float32)[0])

    def state(self, name: str) -> object:
        facts: Any = self.worker.facts()
        return facts["keyed"][name]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    rig.start()
    yield rig
    rig.script.hang.set()
    rig.stop()


def code_of(inbox: Inbox) -> Code | None:
    error = inbox.get().error
    return None if error is None else error.code


def test_each_key_counts_for_itself_from_the_first_state(rig: Rig) -> None:
    """Five warm-up inferences are in nobody's state; two keys do not see one another."""
    assert [rig.asked(key) for key in ("c/a", "c/b", "c/a", "c/a", "c/b")] == [1, 1, 2, 3, 2]
    assert (rig.state("keys"), rig.state("steps"), rig.state("gaps")) == (2, 5, 0)


def test_the_next_spare_is_made_while_idle(rig: Rig) -> None:
    """A key takes the one that was ready; another is made after it, without a request."""
    assert rig.state("spare") == 1
    rig.asked("c/a")
    eventually(lambda: rig.state("spare") == 1, "a spare is made")
    made = rig.script.made
    rig.asked("c/b")
    assert rig.state("keys") == 2
    eventually(lambda: rig.script.made == made + 1, "the next one is made")


def test_a_step_that_came_to_nothing_is_counted(rig: Rig) -> None:
    """A bad payload, and a deadline that passed in the queue: errors, no steps, and two gaps."""
    rig.asked("c/a")
    rig.ask("c/a", b"short")
    assert code_of(rig.inbox) is Code.INVALID_ARGUMENT
    rig.script.hang.clear()
    rig.script.entered.clear()
    rig.ask("c/b")
    assert rig.script.entered.wait(5)
    rig.ask("c/a", deadline_ms=20)
    assert code_of(rig.inbox) is Code.DEADLINE_EXCEEDED
    rig.script.hang.set()
    assert code_of(rig.inbox) is None
    assert rig.asked("c/a") == 2
    assert (rig.state("gaps"), rig.state("steps"), rig.state("unanswered")) == (2, 3, 0)


def test_a_full_queue_is_a_gap_too(tmp_path: Path) -> None:
    """What was refused before it was admitted did not become a step either."""
    rig = Rig(tmp_path, max_requests=1)
    rig.start()
    rig.asked("c/a")
    rig.script.hang.clear()
    rig.script.entered.clear()
    rig.ask("c/a")
    assert rig.script.entered.wait(5)
    rig.ask("c/a")
    assert code_of(rig.inbox) is Code.RESOURCE_EXHAUSTED
    rig.script.hang.set()
    assert code_of(rig.inbox) is None
    assert (rig.state("gaps"), rig.state("steps")) == (1, 2)
    rig.stop()


def test_a_step_whose_answer_came_too_late_was_taken(rig: Rig) -> None:
    """The requester got DEADLINE_EXCEEDED in the middle of it; the state has the step, and it is counted."""
    rig.script.hang.clear()
    rig.script.entered.clear()
    rig.ask("c/a", deadline_ms=30)
    assert rig.script.entered.wait(5)
    assert code_of(rig.inbox) is Code.DEADLINE_EXCEEDED
    rig.script.hang.set()
    assert rig.asked("c/a") == 2
    assert (rig.state("unanswered"), rig.state("gaps")) == (1, 0)


def test_a_failed_step_begins_its_key_anew(rig: Rig) -> None:
    """Nobody knows how far it came: an error that says so, one broken state, one step that is missing."""
    rig.asked("c/a")
    rig.script.raises = RuntimeError("no")
    rig.ask("c/a")
    error = rig.inbox.get().error
    assert error is not None
    assert error.message == "no (the state begins anew)"
    rig.script.raises = None
    assert rig.asked("c/a") == 1
    assert (rig.state("broken"), rig.state("gaps"), rig.state("steps")) == (1, 1, 2)


def test_more_keys_than_there_is_room_for(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """The one silent longest is forgotten, counted, and told in the log once a minute."""
    for key in ("c/a", "c/b", "c/c", "c/a"):
        assert rig.asked(key) == 1
    assert (rig.state("evicted"), rig.state("keys")) == (2, 2)
    told = [record.getMessage() for record in caplog.records if "state.max_keys" in record.getMessage()]
    assert told == ["model m: 1 states were dropped for new keys: more than state.max_keys are in use"]


def test_reset_from_another_thread(rig: Rig) -> None:
    """It tells how many states it dropped, holds for what comes after, and is nothing to a model that is not open."""
    rig.asked("c/a")
    rig.asked("c/b")
    assert rig.worker.reset("c/a") == 1
    assert rig.worker.reset("c/a") == 0
    assert (rig.asked("c/a"), rig.asked("c/b")) == (1, 2)
    assert rig.worker.reset(None) == 2
    assert rig.state("resets") == 3


def test_reset_over_and_over_while_requests_run(rig: Rig) -> None:
    """Two threads at once: every request is answered, each answer is one of a sum since some reset, none is lost."""
    stop, dropped = threading.Event(), [0]

    def reset() -> None:
        while not stop.is_set():
            dropped[0] += rig.worker.reset(None)

    thread = threading.Thread(target=reset)
    thread.start()
    try:
        answers = [rig.asked("c/a") for _ in range(300)]
    finally:
        stop.set()
        thread.join()
    steps = zip([0.0, *answers], answers, strict=False)
    assert all(now in (before + 1, 1) for before, now in steps)
    assert (rig.state("resets"), rig.state("steps")) == (dropped[0], 300)


def test_status_and_metrics_tell_of_the_keys(rig: Rig) -> None:
    """Beside the model's own state, under a name of their own."""
    rig.asked("c/a")
    report = Report(Identity("box", "b"), Hang(20.0, 5000), dict, dict)
    report.watch({"m": rig.worker})
    messages: Any = report.status(*report.state()), report.metrics()
    for message in messages:
        assert message["models"]["m"]["keyed"]["steps"] == 1
    assert messages[0]["models"]["m"]["state"] == "ready"


def test_a_model_without_state_has_nothing_to_reset(tmp_path: Path) -> None:
    """Whatever key is named."""
    rig = WorkerRig(tmp_path, lambda: Sum(Script())).start()
    assert (rig.worker.reset(None), rig.worker.reset("c/a"), rig.worker.facts()) == (0, 0, {})
    rig.stop()


def test_a_key_that_gets_no_interpreter_costs_one_error(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory for one more: an error to that request, and the others are served."""
    rig.asked("c/a")
    eventually(lambda: rig.state("spare") == 1, "a spare is made")

    def full(_engine: KeyedEngine, _key: str) -> None:
        raise MemoryError("no room for an arena")

    with monkeypatch.context() as patched:
        patched.setattr(KeyedEngine, "turn", full)
        rig.ask("c/b")
        assert code_of(rig.inbox) is Code.INTERNAL
    assert rig.asked("c/a") == 2
    assert rig.worker.current == ()
    assert rig.worker.busy_since_ns == 0

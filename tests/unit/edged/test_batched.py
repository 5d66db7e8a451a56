"""Several requests in one inference: each is answered as if it were alone, and none waits too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.brokers import eventually
from support.rig import WorkerRig

from edged.batched import Batched
from edged.bundle import Bundle
from edged.clock import NS_PER_MS, now_ns
from edged.engines.base import Engine, EngineInfo
from edged.errors import Code
from edged.golden import Golden
from edged.meta import parse_meta
from edged.worker import Server, Worker

ROWS = 4
POISON = 666.0


class Doubler:
    """y = 2x for float32 [4, 3]; an inference that sees POISON in any row fails, one held waits.

    mixes: what each row gets of each, [ROWS, ROWS]. place: what each row gets of its own number. needs_data: it fails
    as well when a row holds a zero.
    """

    info = EngineInfo("scripted", "cpu", 1)

    def __init__(self) -> None:
        self.inputs = [np.zeros((ROWS, 3), np.float32)]
        self.outputs = [np.zeros((ROWS, 3), np.float32)]
        self.seen: list[Any] = []
        self.hang, self.entered = threading.Event(), threading.Event()
        self.hang.set()
        self.mixes, self.place, self.needs_data = np.zeros((ROWS, ROWS), np.float32), 0.0, False

    def invoke(self) -> None:
        self.entered.set()
        self.hang.wait()
        self.seen.append(self.inputs[0].copy())
        if (self.inputs[0] == POISON).any() or (self.needs_data and not self.inputs[0].all()):
            msg = "index out of range"
            raise RuntimeError(msg)
        self.outputs[0][...] = 2 * self.inputs[0] + self.mixes @ self.inputs[0]
        self.outputs[0][...] += self.place * np.arange(ROWS, dtype=np.float32)[:, None]

    def idle(self) -> None:
        self.invoke()

    def close(self) -> None:
        pass


class Rig(WorkerRig):
    """A worker that gathers up to `size` requests."""

    def __init__(self, directory: Path, size: int = ROWS, timeout_ms: int = 0, **more: Any) -> None:
        self.engine = Doubler()

        def server(worker: Worker, engine: Engine) -> Server:
            return Batched(worker, engine, worker.plan.bundle, size, timeout_ms * NS_PER_MS)

        super().__init__(directory, lambda: self.engine, server=server, rows=ROWS, **more)

    def held(self) -> None:
        """Let one request hold the worker, so that others gather behind it."""
        self.engine.hang.clear()
        self.engine.entered.clear()
        self.ask(0)
        assert self.engine.entered.wait(5)

    def release(self) -> None:
        """Let it go on; the answer of `held` is taken."""
        self.engine.seen.clear()
        self.engine.hang.set()
        assert self.inbox.get().error is None

    def ask(self, value: float, payload: bytes | None = None, **more: Any) -> None:
        row = np.full((1, 3), value, np.float32).tobytes() if payload is None else payload
        self.router.submit(self.inbox.request(row, **more))

    def answer(self) -> float | Code:
        reply = self.inbox.get()
        return float(np.frombuffer(reply.payload, np.float32)[0]) if reply.error is None else reply.error.code

    def batch(self) -> Any:
        facts: Any = self.worker.facts()
        return facts["batched"]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    rigs: list[Rig] = []

    def make(*args: Any, **more: Any) -> Rig:
        rigs.append(Rig(tmp_path / str(len(rigs)), *args, **more))
        rigs[-1].start()
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.engine.hang.set()
        rig.stop()


def test_what_waits_is_run_together(make: Callable[..., Rig]) -> None:
    """Six waiting requests are two inferences of four and two rows, and each gets its own answer."""
    rig = make()
    rig.held()
    for value in range(1, 7):
        rig.ask(value)
    rig.release()
    assert [rig.answer() for _ in range(6)] == [2, 4, 6, 8, 10, 12]
    assert [list(seen[:, 0]) for seen in rig.engine.seen[1:]] == [[1, 2, 3, 4], [5, 6, 3, 4]]
    assert rig.batch() == {"max": 4, "inferences": 3, "requests": 7}


def test_no_more_rows_than_asked_for(make: Callable[..., Rig]) -> None:
    """A batch of two of a model with four rows."""
    rig = make(size=2)
    rig.held()
    for value in (1, 2, 3):
        rig.ask(value)
    rig.release()
    assert [rig.answer() for _ in range(3)] == [2, 4, 6]
    assert rig.batch()["inferences"] == 3


def test_one_request_alone_is_not_held_back(make: Callable[..., Rig]) -> None:
    """Without a timeout it runs at once, however many rows are free."""
    rig = make()
    rig.ask(3)
    assert rig.answer() == 6
    assert rig.batch() == {"max": 4, "inferences": 1, "requests": 1}


def test_others_are_waited_for_and_a_full_batch_ends_the_waiting(make: Callable[..., Rig]) -> None:
    """Four requests, one after the other, in one inference, long before the timeout of ten seconds."""
    rig = make(timeout_ms=10_000)
    for value in range(1, 5):
        rig.ask(value)
    assert [rig.answer() for _ in range(4)] == [2, 4, 6, 8]
    assert rig.batch()["inferences"] == 1


def test_the_waiting_ends(make: Callable[..., Rig]) -> None:
    """One request waits for the timeout, no shorter, and is then run by itself; the time counts as queueing."""
    rig = make(timeout_ms=50)
    rig.ask(1)
    meta = parse_meta(rig.inbox.get().meta)
    assert meta.queue_us is not None
    assert meta.infer_us is not None
    assert meta.queue_us >= 49_000
    assert meta.infer_us < 49_000


def test_the_waiting_ends_in_time_for_a_deadline(make: Callable[..., Rig]) -> None:
    """A request with less time than the timeout is answered, not left to its deadline."""
    rig = make(timeout_ms=10_000)
    rig.worker.server._took_ns = 100 * NS_PER_MS  # type: ignore[union-attr]  # as if the last one took so long
    rig.ask(1, deadline_ms=400)
    assert rig.answer() == 2


def test_a_request_that_was_answered_meanwhile_is_left_out(make: Callable[..., Rig]) -> None:
    """One of two expires while the batch is waiting for more; the other is answered, and nobody twice."""
    rig = make(timeout_ms=300)
    rig.worker.server._took_ns = -(1 << 60)  # type: ignore[union-attr]  # let it wait past the deadline
    rig.ask(1, deadline_ms=40)
    rig.ask(2)
    assert rig.answer() == Code.DEADLINE_EXCEEDED
    assert rig.answer() == 4
    assert rig.inbox.count() == 0


def test_a_batch_of_nothing_but_expired_requests_is_not_run(make: Callable[..., Rig]) -> None:
    """Nobody wants an answer: no inference."""
    rig = make(timeout_ms=150)
    rig.worker.server._took_ns = -(1 << 60)  # type: ignore[union-attr]  # as above
    rig.ask(1, deadline_ms=20)
    assert rig.answer() == Code.DEADLINE_EXCEEDED
    eventually(lambda: not rig.worker.current, "the batch is over")
    assert rig.batch()["inferences"] == 0
    rig.ask(2)
    assert rig.answer() == 4
    assert rig.batch()["inferences"] == 1


def test_a_bad_payload_costs_its_own_request(make: Callable[..., Rig]) -> None:
    """Too short, and not a number, among good ones: errors to these, and no inference sees what they left."""
    rig = make()
    rig.held()
    rig.ask(1)
    rig.ask(0, b"short")
    rig.ask(0, np.array([[1, 2, np.nan]], np.float32).tobytes())
    rig.ask(3)
    rig.ask(0, np.array([[np.inf, 2, 3]], np.float32).tobytes())
    rig.release()
    answers = [rig.answer() for _ in range(5)]
    assert sorted(map(str, answers)) == sorted(map(str, [2.0, 6.0, *[Code.INVALID_ARGUMENT] * 3]))
    assert all(np.isfinite(seen).all() for seen in rig.engine.seen)
    assert [list(seen[:2, 0]) for seen in rig.engine.seen[1:]] == [[1, 3]]


def test_waiting_after_a_bad_payload_is_no_hang(make: Callable[..., Rig]) -> None:
    """It came first and is answered: while others are waited for, nothing is in work."""
    rig = make(timeout_ms=10_000)
    rig.ask(0, b"bad")
    assert rig.answer() is Code.INVALID_ARGUMENT
    eventually(lambda: rig.worker.busy_since_ns == 0, "it waits for others")
    assert rig.worker.current
    for value in range(1, 5):
        rig.ask(value)
    assert [rig.answer() for _ in range(4)] == [2, 4, 6, 8]


def test_an_inference_that_fails_for_one_is_run_again_for_each(make: Callable[..., Rig]) -> None:
    """One row makes the runtime refuse them all: that one gets the error, the others their answers, then and later."""
    rig = make()
    rig.held()
    for value in (1, POISON, 3):
        rig.ask(value)
    rig.release()
    assert sorted(map(str, [rig.answer() for _ in range(3)])) == sorted(map(str, [2.0, 6.0, Code.INTERNAL]))
    rig.engine.seen.clear()
    rig.ask(5)
    assert rig.answer() == 10
    assert len(rig.engine.seen) == 1


def test_what_a_failing_row_left_behind_fails_nobody(make: Callable[..., Rig]) -> None:
    """The last of a full batch fails: its row is not there any more when a smaller batch comes."""
    rig = make()
    rig.held()
    for value in (1, 2, 3, POISON):
        rig.ask(value)
    rig.release()
    for _ in range(4):
        rig.answer()
    rig.engine.seen.clear()
    rig.ask(7)
    assert rig.answer() == 14
    assert len(rig.engine.seen) == 1


def test_a_model_that_takes_no_zeros_is_served_too(make: Callable[..., Rig]) -> None:
    """Cleared rows make it fail: that is nobody's fault, and nobody's answer."""
    rig = make()
    rig.engine.needs_data = True
    for value, expected in ((1, 2), (POISON, Code.INTERNAL), (3, 6), (4, 8)):
        rig.ask(value)
        assert rig.answer() == expected


def test_stages_add_up_and_are_each_ones_own(make: Callable[..., Rig]) -> None:
    """Of every request: the stages sum to the total, and infer is the inference, not the waiting for others."""
    rig = make(timeout_ms=60_000)
    started = now_ns()
    for value in range(3):
        rig.ask(value, deadline_ms=60_000)
    eventually(lambda: len(rig.worker.current) == 3, "three wait for the fourth")
    gathered = now_ns()
    time.sleep(0.05)
    full = now_ns()
    rig.ask(3, deadline_ms=60_000)
    for _ in range(4):
        rig.answer()
    ended = now_ns()
    eventually(lambda: rig.worker.figures.snapshot().histograms["total"].count == 4, "all are recorded")
    histograms = dict(rig.worker.figures.snapshot().histograms)
    total = histograms.pop("total")
    assert sum(histogram.sum_ns for histogram in histograms.values()) == total.sum_ns
    assert histograms["queue"].sum_ns >= 2 * (full - gathered)  # of three, but for what decoding takes
    assert histograms["infer"].max_ns <= ended - full
    assert total.max_ns <= ended - started


def test_a_stop_answers_what_was_gathered(make: Callable[..., Rig]) -> None:
    """A long timeout does not hold up the end, and nothing is lost."""
    rig = make(timeout_ms=10_000)
    rig.ask(1)
    rig.ask(2)
    eventually(lambda: len(rig.worker.current) == 2, "both are gathered")
    eventually(lambda: rig.worker.busy_since_ns == 0, "waiting for others is no hang")
    started = now_ns()
    assert rig.worker.stop(5)
    assert now_ns() - started < 5_000 * NS_PER_MS
    assert sorted([rig.answer(), rig.answer()], key=str) == [2, 4]


def test_idle_work_is_not_lost_to_the_gathering(make: Callable[..., Rig]) -> None:
    """A nudge among the requests ends the waiting, and is heeded after them."""
    rig = make(timeout_ms=5_000)
    rig.ask(1)
    eventually(lambda: len(rig.worker.current) == 1, "it is gathered")
    seen, before = len(rig.engine.seen), rig.worker.last_idle_ns
    rig.worker.admission.nudge()
    assert rig.answer() == 2
    eventually(lambda: rig.worker.last_idle_ns > before, "idle was called")
    assert len(rig.engine.seen) == seen + 2


def test_a_model_whose_rows_are_not_independent_is_not_served(tmp_path: Path) -> None:
    """What one gets must not depend on who else asks at the time."""
    rig = Rig(tmp_path)
    rig.engine.mixes[...] = 1
    rig.start()
    assert "output 'y' of one request depends on the others of its batch" in rig.worker.reason
    rig.stop()


PAIRS = [(row, other) for row in range(ROWS) for other in range(ROWS) if row != other]


@pytest.mark.parametrize(("row", "other"), PAIRS)
def test_one_row_that_depends_on_one_other_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: int, other: int
) -> None:
    """Whichever they are, and however much the bundle allows its answers to be off."""
    some = np.random.default_rng(1).normal(size=(3, ROWS, 3)).astype(np.float32)
    golden = Golden({"x": some}, {"y": 2 * some}, {"y": 2 * some}, {"y": 100.0})
    monkeypatch.setattr(Bundle, "golden", lambda _self: golden)
    rig = Rig(tmp_path)
    rig.engine.mixes[row, other] = 0.01
    rig.start()
    assert "output 'y' of one request depends on the others of its batch" in rig.worker.reason
    rig.stop()


@pytest.mark.parametrize(("size", "pairs"), [(1, {(0, 1), (0, 3)}), (2, {(0, 1), (1, 3)}), (3, {(2, 3), (2, 1)})])
def test_rows_that_no_request_gets_count_as_others(tmp_path: Path, size: int, pairs: set[tuple[int, int]]) -> None:
    """A model may have more rows than are served: those that are must not depend on any, the rest may."""
    for number, (row, other) in enumerate([*pairs, (3, 0)]):
        rig = Rig(tmp_path / str(number), size=size)
        rig.engine.mixes[row, other] = 0.01
        rig.start()
        assert bool(rig.worker.reason) == ((row, other) in pairs)
        rig.stop()


def test_a_model_whose_rows_are_not_alike_is_not_served(tmp_path: Path) -> None:
    """What one gets must not depend on how many came before it."""
    rig = Rig(tmp_path)
    rig.engine.place = 0.5
    rig.start()
    assert "output 'y' of one request depends on its place in the batch" in rig.worker.reason
    rig.stop()

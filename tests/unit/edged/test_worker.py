"""The pinned loop: one thread, one answer a request, whatever the engine or the payload does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.brokers import eventually
from support.engines import ScriptedEngine
from support.requests import Inbox
from support.rig import WorkerRig

from edged.errors import Code
from edged.meta import parse_meta
from edged.worker import ModelState

X = np.array([[1.5, -2.0, 0.25]], np.float32)


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    engine = ScriptedEngine()
    yield engine
    engine.hang.set()


@pytest.fixture
def rig(tmp_path: Path, engine: ScriptedEngine) -> Iterator[WorkerRig]:
    rig = WorkerRig(tmp_path, lambda: engine, warmup=3)
    yield rig.start()
    engine.hang.set()
    rig.stop()


def code_of(inbox: Inbox) -> Code | None:
    error = inbox.get().error
    return None if error is None else error.code


def test_a_good_request_is_answered_with_its_facts(rig: WorkerRig) -> None:
    """The outputs are the engine's, and meta tells version, path, delegate, times and how to read the bytes."""
    rig.router.submit(rig.inbox.request(X.tobytes()))
    reply = rig.inbox.get()
    assert reply.payload == (2 * X).tobytes()
    meta = parse_meta(reply.meta)
    assert (meta.version, meta.path, meta.delegate) == (4, "local", "cpu")
    assert [(o.name, o.dtype, o.shape) for o in meta.outputs] == [("y", "float32", (1, 3))]
    assert meta.queue_us is not None
    assert meta.infer_us is not None


def test_every_invoke_runs_on_the_workers_own_thread(rig: WorkerRig, engine: ScriptedEngine) -> None:
    """Warm-up and requests: one thread, not the caller's."""
    for _ in range(5):
        rig.router.submit(rig.inbox.request(X.tobytes()))
        rig.inbox.get()
    assert engine.threads == {rig.worker._thread.native_id}
    assert threading.get_native_id() not in engine.threads


def test_warm_up_is_not_in_the_percentiles(rig: WorkerRig) -> None:
    """Three warm-up invokes are told apart; the histograms are empty before the first request."""
    assert len(rig.worker.warmup_us) == 3
    assert rig.worker.figures.snapshot().histograms["infer"].count == 0


def test_a_raising_engine_costs_one_error_reply(rig: WorkerRig, engine: ScriptedEngine) -> None:
    """INTERNAL with the runtime's own words; the next request is served by the same thread."""
    engine.raises = RuntimeError("Node 4 failed to invoke")
    rig.router.submit(rig.inbox.request(X.tobytes()))
    error = rig.inbox.get().error
    assert error is not None
    assert error.code is Code.INTERNAL
    assert "Node 4 failed" in error.message
    engine.raises = None
    rig.router.submit(rig.inbox.request(X.tobytes()))
    assert rig.inbox.get().payload == (2 * X).tobytes()


def test_a_bad_payload_costs_one_error_reply(rig: WorkerRig) -> None:
    """Too short: INVALID_ARGUMENT, and the engine is not run with what was there before."""
    rig.router.submit(rig.inbox.request(b"short"))
    assert code_of(rig.inbox) is Code.INVALID_ARGUMENT
    rig.router.submit(rig.inbox.request(X.tobytes()))
    assert code_of(rig.inbox) is None


def test_a_hanging_invoke_is_answered_at_the_deadline_and_once(rig: WorkerRig, engine: ScriptedEngine) -> None:
    """DEADLINE_EXCEEDED while the invoke hangs, also for what waits behind it; the late result is not sent."""
    engine.hang.clear()
    engine.entered.clear()
    rig.router.submit(rig.inbox.request(X.tobytes(), deadline_ms=80))
    assert engine.entered.wait(5)
    rig.router.submit(rig.inbox.request(X.tobytes(), deadline_ms=80))
    assert [code_of(rig.inbox), code_of(rig.inbox)] == [Code.DEADLINE_EXCEEDED] * 2
    engine.hang.set()
    rig.router.submit(rig.inbox.request(X.tobytes()))
    assert rig.inbox.get().payload == (2 * X).tobytes()
    assert rig.inbox.count() == 0


def test_an_answered_request_is_not_run(rig: WorkerRig, engine: ScriptedEngine) -> None:
    """What expired in the queue costs no invoke."""
    engine.hang.clear()
    engine.entered.clear()
    rig.router.submit(rig.inbox.request(X.tobytes()))
    assert engine.entered.wait(5)
    rig.router.submit(rig.inbox.request(X.tobytes(), deadline_ms=20))
    assert code_of(rig.inbox) is Code.DEADLINE_EXCEEDED
    engine.hang.set()
    rig.inbox.get()
    rig.worker.stop(5)
    assert rig.worker.figures.snapshot().histograms["infer"].count == 1


def test_stop_finishes_what_is_queued(rig: WorkerRig, engine: ScriptedEngine) -> None:
    """Ten waiting requests are all answered before the thread ends, and the engine is closed on it."""
    engine.hang.clear()
    for _ in range(10):
        rig.router.submit(rig.inbox.request(X.tobytes()))
    engine.hang.set()
    assert rig.worker.stop(5)
    assert rig.inbox.count() == 10
    assert engine.closed
    assert rig.states == [ModelState.READY, ModelState.STOPPED]


def test_stop_does_not_wait_for_ever(rig: WorkerRig, engine: ScriptedEngine) -> None:
    """A hung invoke: stop comes back within its bound and says so."""
    engine.hang.clear()
    engine.entered.clear()
    rig.router.submit(rig.inbox.request(X.tobytes()))
    assert engine.entered.wait(5)
    assert rig.worker.stop(0.05) is False


def test_a_model_that_cannot_be_opened_is_failed_with_the_reason(tmp_path: Path) -> None:
    """The daemon lives; requests are answered UNAVAILABLE with the reason."""

    def broken() -> ScriptedEngine:
        msg = "no such device"
        raise OSError(msg)

    rig = WorkerRig(tmp_path, broken).start()
    assert rig.worker.state is ModelState.FAILED
    rig.router.submit(rig.inbox.request(X.tobytes()))
    error = rig.inbox.get().error
    assert error is not None
    assert error.code is Code.UNAVAILABLE
    assert "no such device" in error.message
    rig.stop()


def test_stages_add_up_to_the_total(rig: WorkerRig) -> None:
    """Each stage is recorded once a request, and their means sum to the mean of the total."""
    for _ in range(50):
        rig.router.submit(rig.inbox.request(X.tobytes()))
        rig.inbox.get()
    eventually(lambda: rig.worker.figures.snapshot().histograms["total"].count == 50, "all are recorded")
    histograms = dict(rig.worker.figures.snapshot().histograms)
    total = histograms.pop("total")
    assert {name: h.count for name, h in histograms.items()} == dict.fromkeys(histograms, 50)
    assert sum(h.sum_ns for h in histograms.values()) == total.sum_ns


def test_refusals_do_not_flatter_the_percentiles(rig: WorkerRig, engine: ScriptedEngine) -> None:
    """A bad payload is counted as an error and not as a fast answer; a missed deadline is in the total."""
    rig.router.submit(rig.inbox.request(b"short"))
    rig.inbox.get()
    engine.hang.clear()
    rig.router.submit(rig.inbox.request(X.tobytes(), deadline_ms=30))
    rig.inbox.get()
    engine.hang.set()
    snapshot = rig.worker.figures.snapshot()
    assert snapshot.counts.errors == {"INVALID_ARGUMENT": 1, "DEADLINE_EXCEEDED": 1}
    assert snapshot.histograms["total"].count == 1
    assert snapshot.histograms["total"].min_ns >= 30_000_000


def test_one_reply_that_cannot_be_sent_does_not_end_the_model(rig: WorkerRig) -> None:
    """The first requester's answer raises; the model stays ready and the next one is served."""

    def raising(*_: object) -> None:
        msg = "no way out"
        raise OSError(msg)

    broken = rig.inbox.request(X.tobytes())
    broken.respond = raising
    rig.router.submit(broken)
    rig.router.submit(rig.inbox.request(X.tobytes()))
    assert rig.inbox.get().payload == (2 * X).tobytes()
    assert rig.worker.state is ModelState.READY

"""Every request that is not served is answered with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.engines import ScriptedEngine
from support.rig import WorkerRig

from edged.errors import Code, RequestError
from edged.worker import Worker


@pytest.fixture
def rig(tmp_path: Path) -> WorkerRig:
    return WorkerRig(tmp_path, ScriptedEngine)


def refused(rig: WorkerRig, **request: object) -> tuple[Code, str, bool]:
    rig.router.submit(rig.inbox.request(b"\0" * 12, **request))  # type: ignore[arg-type]
    error = rig.inbox.get().error
    assert error is not None
    return error.code, error.message, error.retryable


def test_an_unknown_model_is_not_found_and_the_known_ones_are_named(rig: WorkerRig) -> None:
    """NOT_FOUND is final, and counted apart."""
    code, message, retryable = refused(rig, model="nope")
    assert (code, retryable) == (Code.NOT_FOUND, False)
    assert "models: m" in message
    assert rig.router.unknown.counts().errors == {"NOT_FOUND": 1}
    rig.sweeper.stop()


def test_a_request_to_a_starting_model_waits_for_it(rig: WorkerRig) -> None:
    """Sent before the worker has opened anything, answered once it has."""
    rig.router.submit(rig.inbox.request(b"\0" * 12))
    rig.start()
    assert rig.inbox.get().error is None
    rig.stop()


def test_a_model_that_fails_to_open_answers_what_waited(tmp_path: Path) -> None:
    """UNAVAILABLE with the reason, at once and not at the deadline."""

    def broken() -> ScriptedEngine:
        msg = "no such device"
        raise OSError(msg)

    rig = WorkerRig(tmp_path, broken)
    request = rig.inbox.request(b"\0" * 12)
    rig.router.submit(request)
    rig.worker.start()
    error = rig.inbox.get().error
    assert error is not None
    code, message = error.code, error.message
    assert code is Code.UNAVAILABLE
    assert "no such device" in message
    rig.stop()


def test_draining_refuses_new_requests(rig: WorkerRig) -> None:
    """After `drain` nothing is admitted any more."""
    rig.start()
    rig.router.drain()
    code, message, _ = refused(rig)
    assert code is Code.UNAVAILABLE
    assert "shutting down" in message
    rig.stop()


def test_a_full_queue_is_an_answer(tmp_path: Path) -> None:
    """RESOURCE_EXHAUSTED reaches the requester; what was admitted is still answered."""
    engine = ScriptedEngine()
    engine.hang.clear()
    rig = WorkerRig(tmp_path, lambda: engine, max_requests=2).start()
    for _ in range(5):
        rig.router.submit(rig.inbox.request(b"\0" * 12))
    codes = [rig.inbox.get().error.code for _ in range(3)]  # type: ignore[union-attr]
    assert codes == [Code.RESOURCE_EXHAUSTED] * 3
    engine.hang.set()
    assert [rig.inbox.get().error for _ in range(2)] == [None, None]
    counts = rig.worker.figures.counts()
    assert (counts.requests, counts.ok, sum(counts.errors.values())) == (5, 2, 3)
    rig.stop()


def test_a_worker_that_was_replaced_since_it_was_looked_up(tmp_path: Path) -> None:
    """Its queue is closed: the request goes to the one that serves now, and is counted once."""
    old, new = WorkerRig(tmp_path / "old", ScriptedEngine), WorkerRig(tmp_path / "new", ScriptedEngine).start()
    old.worker.admission.close(RequestError(Code.UNAVAILABLE, "another version serves now"))

    looked_up = [old.worker]

    class Replaced(dict[str, Worker]):
        def get(self, name: str, default: object = None) -> Worker:  # type: ignore[override]
            return looked_up.pop() if looked_up else self[name]

    new.router.serve(Replaced(m=new.worker))
    new.router.submit(new.inbox.request(b"\0" * 12))
    assert new.inbox.get().error is None
    assert (old.worker.figures.counts().requests, new.worker.figures.counts().errors) == (1, {})
    old.sweeper.stop()
    new.stop()


def test_a_drain_ends_when_it_is_taken_back(rig: WorkerRig) -> None:
    """Refused with the reason meanwhile, and told that trying again may help."""
    rig.start()
    rig.router.drain("an operator took it out of service")
    assert refused(rig) == (Code.UNAVAILABLE, "an operator took it out of service", True)
    rig.router.resume()
    rig.router.submit(rig.inbox.request(b"\0" * 12))
    assert rig.inbox.get().error is None
    rig.stop()

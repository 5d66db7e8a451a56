"""One worker in another one's place: who answers which request, in which order, and what a failure leaves."""

from __future__ import annotations

import dataclasses
import gc
import json
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from support.brokers import eventually
from support.engines import ScriptedEngine
from support.rig import BOUNDS, WorkerRig

from edged import ending
from edged.admission import Admission, Bounds
from edged.assembly import Parts
from edged.bundle import Bundle
from edged.control.reported import Reported
from edged.errors import Code, UnavailableError
from edged.report import Hang, Identity, Report
from edged.swap import LATE, AbandonedError, Swapper
from edged.transports.base import Message
from edged.worker import ModelState, Worker

ROW = b"\0" * 12


class Place:
    """A worker that serves `m`, and a swapper that puts others in its place; their engines are `made`, in order."""

    def __init__(self, directory: Path, answering_s: float = 10.0, opening_s: float = 10.0) -> None:
        self.made: list[ScriptedEngine] = []
        self.wanted, self.steps = True, list[str]()
        self.on_open: Callable[[], None] = lambda: None
        self.rig = WorkerRig(directory, self._engine)
        self.workers = {"m": self.rig.worker}
        self.rig.router.serve(self.workers)
        parts = cast("Parts", _Parts(self.workers, self._beside))
        self.swapper = Swapper(parts, lambda: self.wanted, lambda: None, opening_s, lambda: answering_s)
        self.rig.start()

    def _engine(self) -> ScriptedEngine:
        self.on_open()
        self.made.append(ScriptedEngine())
        return self.made[-1]

    def _beside(
        self, old: Worker, bundle: Bundle, _: object, begin: Callable[[], None], on_state: Callable[[Worker], None]
    ) -> Worker:
        admission = Admission(Bounds(**BOUNDS), self.rig.sweeper, self.rig.router.fail)  # type: ignore[arg-type]
        plan = dataclasses.replace(old.plan, bundle=bundle, begin=begin)
        return Worker(plan, admission, old.figures, on_state)

    def swap(self) -> None:
        bundle = self.workers["m"].plan.bundle
        self.swapper.swap("m", bundle, cast("Any", None), lambda step, _: self.steps.append(step))

    def submit(self) -> None:
        self.rig.router.submit(self.rig.inbox.request(ROW))


class _Parts:
    def __init__(self, workers: dict[str, Worker], beside: Callable[..., Worker]) -> None:
        self.workers, self.beside = workers, beside


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    for engine in place.made:
        engine.hang.set()
    place.workers["m"].stop(5)
    place.rig.sweeper.stop()


def swapping(place: Place) -> threading.Thread:
    thread = threading.Thread(target=place.swap)
    thread.start()
    return thread


def test_the_new_one_serves_and_the_old_one_ends(place: Place) -> None:
    """Its engine is closed, its thread gone, its memory free; figures go on."""
    old = place.workers["m"]
    place.submit()
    place.rig.inbox.get()
    place.swap()
    place.submit()
    assert place.rig.inbox.get().error is None
    assert (place.made[0].invokes, place.made[1].invokes, place.made[0].closed) == (1, 1, True)
    assert (old.state, place.workers["m"].state) == (ModelState.STOPPED, ModelState.READY)
    assert place.workers["m"].figures.counts().ok == 2
    assert place.steps == ["WARMING", "SWITCHING"]


def test_nothing_of_the_old_one_waits_for_a_collection_of_garbage(place: Place) -> None:
    """With the collector off, as in a daemon between requests: the worker and its bundle are freed by counting."""
    gc.collect()
    gc.disable()
    try:
        place.swap()
        old = weakref.ref(place.workers["m"])
        place.swap()
        place.rig.states.clear()
        eventually(lambda: old() is None, "the old worker is freed")
    finally:
        gc.enable()


def test_no_answer_overtakes_another(place: Place) -> None:
    """The old one has three to answer: what comes after the switch waits for them, on an engine that is free."""
    place.made[0].hang.clear()
    for _ in range(3):
        place.submit()
    assert place.made[0].entered.wait(5)
    thread = swapping(place)
    eventually(lambda: place.workers["m"] is not place.rig.worker, "the switch")
    place.submit()
    assert not place.made[1].entered.wait(0.2)
    place.made[0].hang.set()
    thread.join(10)
    replies = [place.rig.inbox.replies.get(timeout=5) for _ in range(4)]
    order = [request.admitted_ns for request, _ in replies]
    assert order == sorted(order)
    assert all(reply.error is None for _, reply in replies)
    assert (place.made[0].invokes, place.made[1].invokes) == (3, 1)


def test_an_old_one_that_hangs_holds_the_new_one_up_for_a_bounded_time(tmp_path: Path) -> None:
    """Then the new one serves, the request is still answered at its deadline; the old one is told of till it ends."""
    place = Place(tmp_path, answering_s=0.1)
    place.made[0].hang.clear()
    place.rig.router.submit(place.rig.inbox.request(ROW, deadline_ms=600))
    assert place.made[0].entered.wait(5)
    thread = swapping(place)
    eventually(lambda: place.workers["m"] is not place.rig.worker, "the switch")
    place.submit()
    first, second = place.rig.inbox.replies.get(timeout=5), place.rig.inbox.replies.get(timeout=5)
    assert [reply.error and reply.error.code.value for _, reply in (first, second)] == [None, "DEADLINE_EXCEEDED"]
    thread.join(10)
    assert place.workers["m"].before is place.rig.worker
    said: list[Message] = []
    reported = Reported("box", cast("Parts", place.swapper.parts), said.append)
    reported.end("m", "READY", "the disk is full")
    assert not reported.stale
    place.made[0].hang.set()
    eventually(lambda: reported.stale, "its end is news")
    reported.publish()
    errors = [json.loads(bytes(message.payload))["models"]["m"]["error"] for message in said]
    assert errors == [f"{LATE}; the disk is full", "the disk is full"]
    assert (reported.stale, place.workers["m"].before) == (False, None)
    place.workers["m"].stop(5)
    place.rig.sweeper.stop()


@pytest.fixture
def late(tmp_path: Path) -> Iterator[Place]:
    """The one before has one request in work, two in its queue, and no time to answer them."""
    place = Place(tmp_path, answering_s=0.05, opening_s=0.5)
    place.made[0].hang.clear()
    for _ in range(3):
        place.rig.router.submit(place.rig.inbox.request(ROW, deadline_ms=60_000))
    assert place.made[0].entered.wait(5)
    place.swap()
    yield place
    place.made[0].hang.set()
    for worker in (place.rig.worker, place.workers["m"]):
        worker.stop(5)
    place.rig.sweeper.stop()


def test_what_the_one_before_owes_is_counted_and_answered_at_the_end(late: Place) -> None:
    """A drain waits for it, and a daemon that ends answers it: UNAVAILABLE, each once."""
    serving = late.workers["m"]
    assert (serving.before, serving.unanswered, serving.unanswered_bytes) == (late.rig.worker, 3, 3 * len(ROW))
    assert not ending.end(late.workers, late.rig.router, 0.05), "its inference does not return"
    codes = [late.rig.inbox.get().error for _ in range(3)]
    assert [error and error.code for error in codes] == [Code.UNAVAILABLE] * 3
    late.made[0].hang.set()
    eventually(lambda: serving.before is None, "it ends")
    assert (serving.unanswered, late.rig.inbox.count()) == (0, 0)


def test_the_next_swap_waits_until_the_one_before_has_ended(late: Place) -> None:
    """At most two are open; after `opening_s` it is an error, and what serves goes on."""
    serving = late.workers["m"]
    with pytest.raises(UnavailableError, match=r"the one before what serves had not ended after 0\.5 s"):
        late.swap()
    assert (late.workers["m"], len(late.made), late.steps[-1]) == (serving, 2, "QUEUED")
    late.made[0].hang.set()
    late.swapper = dataclasses.replace(late.swapper, opening_s=60)
    late.swap()
    assert late.workers["m"] is not serving
    assert [late.rig.inbox.get().error for _ in range(3)] == [None] * 3


def test_one_that_cannot_be_opened_changes_nothing(place: Place) -> None:
    """The reason is told, and the old one serves on."""

    def refuse() -> None:
        raise RuntimeError("no such op")

    place.on_open = refuse
    with pytest.raises(UnavailableError, match="no such op"):
        place.swap()
    place.submit()
    assert place.rig.inbox.get().error is None
    assert (place.workers["m"] is place.rig.worker, place.steps) == (True, ["WARMING"])


def test_one_that_is_not_open_in_time_changes_nothing(tmp_path: Path) -> None:
    """It hangs in native code: the old one serves on, and nothing waits for it."""
    place = Place(tmp_path, opening_s=0.1)
    released = threading.Event()
    place.on_open = lambda: cast("None", released.wait(10))
    with pytest.raises(UnavailableError, match=r"was not open after 0\.1 s"):
        place.swap()
    released.set()
    place.submit()
    assert place.rig.inbox.get().error is None
    eventually(lambda: place.made[-1].closed, "what was opened too late is closed")
    place.rig.stop()


def test_one_that_opened_during_a_command_is_not_late(tmp_path: Path) -> None:
    """Whoever is asked whether to go on may do something long meanwhile: the new one is open then, and serves."""
    place = Place(tmp_path, opening_s=0.2)
    released = threading.Event()
    place.on_open = lambda: cast("None", released.wait(5))

    def wanted() -> bool:
        released.set()
        eventually(lambda: place.rig.states.count(ModelState.READY) > 1 or len(place.made) > 1, "it is open")
        time.sleep(0.4)
        return True

    place.swapper = dataclasses.replace(place.swapper, wanted=wanted)
    place.swap()
    place.workers["m"].stop(5)
    place.rig.sweeper.stop()


def test_the_time_to_answer_is_asked_for_while_it_runs(tmp_path: Path) -> None:
    """A configuration read again in the middle of a swap holds for it."""
    place = Place(tmp_path, answering_s=60)
    seconds = [60.0]
    place.swapper = dataclasses.replace(place.swapper, answering_s=lambda: seconds[0])
    place.made[0].hang.clear()
    place.submit()
    assert place.made[0].entered.wait(5)
    thread = swapping(place)
    eventually(lambda: place.workers["m"] is not place.rig.worker, "the switch")
    place.submit()
    assert not place.made[1].entered.wait(0.2)
    seconds[0] = 0.0
    assert place.made[1].entered.wait(5)
    place.made[0].hang.set()
    thread.join(10)
    place.rig.worker.stop(5)
    place.workers["m"].stop(5)
    place.rig.sweeper.stop()


def test_one_that_is_no_longer_wanted_is_let_go(place: Place) -> None:
    """In the middle of its opening."""
    released = threading.Event()
    place.on_open = lambda: cast("None", released.wait(0.3))
    place.wanted = False
    with pytest.raises(AbandonedError):
        place.swap()
    eventually(lambda: place.made[-1].closed, "it is closed")
    assert place.workers["m"] is place.rig.worker


def test_what_was_measured_in_vain_is_not_opened(place: Place) -> None:
    """Measuring takes long: somebody may want another bundle meanwhile."""
    asked: list[dict[str, Any]] = []

    class Chooses:
        def choose(self, *_: object, **how: Any) -> str:
            asked.append(how)
            return "chosen"

    place.swapper.parts.selector = Chooses()  # type: ignore[misc,assignment]
    given: Any = None
    assert place.swapper.choose(given, given, lambda *_: None, fresh=True) == "chosen"  # type: ignore[comparison-overlap]
    assert asked == [{"fresh": True, "aside": True}]
    place.wanted = False
    with pytest.raises(AbandonedError):
        place.swapper.choose(given, given, lambda *_: None)


def test_the_status_is_published_for_another_version(place: Place) -> None:
    """Nothing else of the model changes."""
    report = Report(Identity("box", "b"), Hang(2, 1), dict, dict)
    report.watch(place.workers)
    before = report.models()
    assert report.models() == before
    bundle = place.workers["m"].plan.bundle
    newer = dataclasses.replace(bundle, manifest=dataclasses.replace(bundle.manifest, version=5))
    place.swapper.swap("m", newer, cast("Any", None), lambda *_: None)
    assert report.models() != before


def test_requests_that_meet_the_switch_find_the_one_that_serves(place: Place) -> None:
    """From four threads while forty swaps go on: each is answered once, and none is refused."""
    going, sent = threading.Event(), [0] * 4
    going.set()

    def ask(number: int) -> None:
        while going.is_set():
            place.submit()
            sent[number] += 1
            eventually(lambda: place.workers["m"].admission.requests < 32, "there is room")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(40):
        place.swap()
    going.clear()
    for thread in threads:
        thread.join()
    replies = [place.rig.inbox.replies.get(timeout=5) for _ in range(sum(sent))]
    assert {reply.error and str(reply.error) for _, reply in replies} == {None}
    assert len({id(request) for request, _ in replies}) == len(replies)
    assert place.rig.inbox.count() == 0


def test_a_model_that_failed_is_mended(place: Place) -> None:
    """The old worker's thread has ended long ago."""
    place.made[0].raises = None
    place.workers["m"].state = ModelState.FAILED
    place.workers["m"].stop(5)
    place.swap()
    place.submit()
    assert place.rig.inbox.get().error is None

"""The collector's schedule: nothing is collected while a request is served, and nothing that is garbage stays."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator

import pytest

from edged.collection import BUSY, IDLE, LEAK, PATIENCE, SWITCH_S, Collection
from edged.memory import SLACK


class Cycle:
    """An object that only the collector can free."""

    def __init__(self) -> None:
        self.me = self


class Traffic:
    """Whether requests are in flight and memory has grown, as a test says."""

    def __init__(self) -> None:
        self.busy, self.grown = False, SLACK + 1
        self.settled = 0

    def collection(self) -> Collection:
        return Collection(lambda: self.busy, lambda: self.grown, self._settled)

    def _settled(self) -> None:
        self.settled += 1


@pytest.fixture
def traffic() -> Traffic:
    return Traffic()


@pytest.fixture
def collection(traffic: Traffic) -> Iterator[Collection]:
    collection = traffic.collection()
    yield collection
    collection.release()


@pytest.fixture
def runs() -> Iterator[list[int]]:
    """The generations that were collected."""
    found: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            found.append(info["generation"])

    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)


def make_cycles(count: int) -> list[weakref.ref[Cycle]]:
    return [weakref.ref(Cycle()) for _ in range(count)]


def test_no_number_of_objects_starts_a_collection(collection: Collection, runs: list[int]) -> None:
    """Ten times what starts the interpreter's own collector: it does not run by itself."""
    collection.settle()
    runs.clear()
    kept = [[number] for number in range(10 * gc.get_threshold()[0])]
    assert runs == []
    assert kept


def test_what_is_there_is_set_aside(collection: Collection) -> None:
    """After it is settled a full collection has nothing to look at, until it is released."""
    collection.settle()
    assert gc.get_freeze_count() > 1000
    collection.release()
    assert gc.get_freeze_count() == 0
    assert gc.isenabled()


def test_the_interpreter_is_shared_sooner_until_it_is_released(collection: Collection) -> None:
    """A thread that waits for the interpreter's lock gets it in a fraction of the default time; settled twice too."""
    before = sys.getswitchinterval()
    collection.settle()
    collection.settle()
    assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    collection.release()
    assert sys.getswitchinterval() == before


def test_a_gap_between_requests_is_used(collection: Collection, traffic: Traffic, runs: list[int]) -> None:
    """Cycles that a busy device keeps are freed at the first turn that finds nothing in flight."""
    collection.settle()
    runs.clear()
    cycles = make_cycles(IDLE + 100)
    traffic.busy = True
    collection.turn()
    assert runs == []
    traffic.busy = False
    collection.turn()
    assert runs
    assert not any(cycle() for cycle in cycles)


def test_a_device_that_is_never_idle_is_bounded_all_the_same(collection: Collection, traffic: Traffic) -> None:
    """Under requests without a gap the number of cycles that live stays below the limit, whatever is made."""
    collection.settle()
    traffic.busy = True
    alive: list[weakref.ref[Cycle]] = []
    most = 0
    for _ in range(50):
        alive = [cycle for cycle in [*alive, *make_cycles(1000)] if cycle() is not None]
        most = max(most, len(alive))
        collection.turn()
    assert most <= BUSY + 1000


def test_what_grew_old_is_not_looked_at_again(collection: Collection, runs: list[int]) -> None:
    """Objects that are kept (replies that a daemon remembers) make no collection longer: each is looked at once."""
    collection.settle()
    runs.clear()
    kept: list[list[int]] = []
    for _ in range(200):
        kept += [[number] for number in range(IDLE + 100)]
        collection.turn()
        assert len(gc.get_objects()) < IDLE
    assert runs == [0] * 200


def test_cycles_that_grew_old_are_found_once_memory_has_grown(collection: Collection, traffic: Traffic) -> None:
    """What became garbage after it was set aside is freed in a gap, where memory has grown by more than `LEAK`."""
    collection.settle()
    kept = [Cycle() for _ in range(IDLE + 100)]
    collection.turn()  # they are set aside now
    old = [weakref.ref(cycle) for cycle in kept]
    kept.clear()
    for grown, freed in ((LEAK, False), (LEAK + 1, True)):
        traffic.grown = grown
        for _ in range(3):
            make_cycles(IDLE + 100)
            collection.turn()
        assert [cycle() is None for cycle in old] == [freed] * len(old)


def test_growth_without_a_gap_is_looked_at_in_time(collection: Collection, traffic: Traffic) -> None:
    """A device that is never idle has its garbage of old freed too, after `PATIENCE` turns."""
    collection.settle()
    cycle = Cycle()
    old = weakref.ref(cycle)
    gc.freeze()
    del cycle
    traffic.busy, traffic.grown = True, LEAK + 1
    for _ in range(PATIENCE + 1):
        make_cycles(BUSY + 100)
        collection.turn()
    assert old() is None


def test_settled_again_in_a_gap(collection: Collection, traffic: Traffic) -> None:
    """A cycle that was set aside is freed after `resettle`, once nothing is in flight; then memory is given back."""
    aside = Cycle()
    collection.settle()
    gone = weakref.ref(aside)
    del aside
    gc.collect()
    assert gone() is not None
    traffic.busy = True
    collection.resettle()
    collection.turn()
    assert (gone() is None, traffic.settled) == (False, 1)
    traffic.busy = False
    collection.turn()
    assert (gone() is None, traffic.settled) == (True, 2)
    collection.turn()
    assert traffic.settled == 2


def test_without_growth_only_what_is_new_is_looked_at(collection: Collection, traffic: Traffic) -> None:
    """New cycles are freed, the rest is set aside too; what was set aside before waits until memory has grown."""
    aside = Cycle()
    collection.settle()
    frozen, before = gc.get_freeze_count(), weakref.ref(aside)
    del aside
    kept, new = [[number] for number in range(1000)], make_cycles(10)
    traffic.grown = SLACK
    collection.resettle()
    collection.turn()
    assert (before() is None, traffic.settled, gc.get_count()[2]) == (False, 1, 0)
    assert not any(cycle() for cycle in new)
    assert gc.get_freeze_count() >= frozen + len(kept)
    traffic.grown = SLACK + 1
    collection.turn()
    assert before() is not None, "nobody asked"
    collection.resettle()
    collection.turn()
    assert (before() is None, traffic.settled) == (True, 2)


def test_settled_again_without_a_gap(collection: Collection, traffic: Traffic) -> None:
    """Where there is no gap it is done after `PATIENCE` turns, once."""
    traffic.busy = True
    collection.resettle()
    for _ in range(PATIENCE - 1):
        collection.turn()
    assert (traffic.settled, collection.waiting) == (0, True)
    for _ in range(PATIENCE):
        collection.turn()
    assert (traffic.settled, collection.waiting) == (1, False)

"""The way back of a delegate that failed: waits that double, probes that must be good, and nothing left open."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from support.brokers import eventually
from support.engines import ScriptedDelegate
from support.failovers import FAILURES, Served, X, lose

from edged.config import FailoverConfig
from edged.engines.failover_probe import Backoff


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    if served.engine is not None:
        served.reopen.hold.set()
        served.engine.close()


def test_probes_that_fail_wait_twice_as_long_and_are_told(served: Served) -> None:
    """0.1, 0.2, 0.4 and never more than backoff_max_s; the count and the last reason stand in `degraded`."""
    served.reopen.raises = OSError("libnpu.so: device not found")
    engine = served.open(primary=False, why="gone")
    told = [engine.info.degraded]
    while len(told) < 5:
        assert served.changes.acquire(timeout=10)
        engine.idle()
        told.append(engine.info.degraded)
    ends = [text.partition("cpu serves; ")[2] for text in told]
    assert ends == [
        "next probe in 0.1 s",
        "a probe failed: libnpu.so: device not found; next probe in 0.2 s",
        "2 probes failed, the last: libnpu.so: device not found; next probe in 0.4 s",
        "3 probes failed, the last: libnpu.so: device not found; next probe in 0.4 s",
        "4 probes failed, the last: libnpu.so: device not found; next probe in 0.4 s",
    ]
    served.reopen.raises = None
    served.back()
    assert engine.info.delegate == "npu"


@pytest.mark.parametrize("failure", ["crash", "error", "hang"])
def test_a_process_that_fails_its_probe_is_closed(served: Served, failure: str) -> None:
    """Each that is opened and is no good; the first that is good is taken."""
    scripts = iter([FAILURES[failure][0]] * 2)
    served.rules = FailoverConfig(hang_floor_ms=20, backoff_s=0.1, backoff_max_s=0.1)
    served.reopen.script = lambda engine: after_first(engine, next(scripts, lambda _: None))
    served.open(primary=False)
    served.back()
    assert [engine.closed for engine in served.reopen.opened] == [True, True, False]


def after_first(engine: ScriptedDelegate, script: Callable[[ScriptedDelegate], None]) -> None:
    """Let the script take effect after the first inference, which is not judged by its time."""
    invoke = engine.invoke

    def run() -> None:
        invoke()
        script(engine)

    engine.invoke = run  # type: ignore[method-assign]


def test_wrong_numbers_are_not_taken_back(served: Served) -> None:
    """One golden sample beyond its tolerance is a probe that failed, and says which."""
    served.reopen.script = lambda engine: setattr(engine, "off_by", 0.5)
    engine = served.open(primary=False)
    assert served.changes.acquire(timeout=10)
    engine.idle()
    assert "a probe failed: wrong numbers: golden sample" in engine.info.degraded
    assert engine.info.delegate == "cpu"
    assert served.reopen.opened[0].closed


def test_a_delegate_that_comes_and_goes_is_left_alone_for_longer(served: Served) -> None:
    """Failing soon after each return, its wait goes on doubling."""
    served.rules = FailoverConfig(hang_floor_ms=20, backoff_s=0.1, backoff_max_s=60)
    engine = served.open()
    waits = []
    for number in range(3):
        lose(served.npu if not number else served.reopen.opened[-1])
        served.ask()
        waits.append(engine.info.degraded.rpartition("in ")[2])
        served.back()
    assert waits == ["0.1 s", "0.2 s", "0.4 s"]


def test_a_delegate_that_served_well_begins_anew(served: Served) -> None:
    """It served for longer than backoff_max_s before it failed: the wait is the first one again."""
    served.rules = FailoverConfig(hang_floor_ms=20, backoff_s=0.1, backoff_max_s=0.2)
    engine = served.open()
    lose(served.npu)
    served.ask()
    served.back()
    threading.Event().wait(0.25)
    lose(served.reopen.opened[-1])
    served.ask()
    assert engine.info.degraded.endswith("next probe in 0.1 s")


def test_the_time_served_counts_from_the_return(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not from the start: an hour of good service before the first failure is no excuse for the second."""
    clock = [0]
    monkeypatch.setattr("edged.engines.failover_probe.now_ns", lambda: clock[0])
    backoff = Backoff(1.0, 300.0)
    clock[0] = 3_600_000_000_000
    backoff.failed()
    assert backoff.next_s() == 1.0
    backoff.taken_back()
    clock[0] += 299_000_000_000
    backoff.failed()
    assert backoff.next_s() == 2.0
    backoff.taken_back()
    clock[0] += 300_000_000_000
    backoff.failed()
    assert backoff.next_s() == 1.0


def test_without_golden_samples_it_must_run(tmp_path: Path) -> None:
    """There is nothing to compare with: the probes are inferences that come back in time."""
    served = Served(tmp_path, golden=False)
    engine = served.open()
    assert served.cpu.invokes == 3
    lose(served.npu)
    served.ask()
    served.back()
    assert served.reopen.opened[0].invokes == 4
    assert np.array_equal(served.ask(), 2 * X)
    engine.close()


def test_closing_ends_the_probing_and_everything_that_is_open(served: Served) -> None:
    """The delegate that was just probed and not yet taken, too."""
    engine = served.open(primary=False)
    assert served.changes.acquire(timeout=10)
    engine.close()
    assert served.reopen.opened[0].closed
    assert served.cpu.closed
    assert not [thread for thread in threading.enumerate() if thread.name == "edged-reprobe"]


def test_closing_while_it_is_opened_leaks_no_process(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Close does not wait for long; what was being opened is closed as soon as it is there, unprobed."""
    monkeypatch.setattr("edged.engines.failover_probe.STOP_S", 0.05)
    served.reopen.hold.clear()
    engine = served.open(primary=False)
    eventually(lambda: served.reopen.calls == 1, "it is being opened")
    engine.close()
    served.reopen.hold.set()
    eventually(lambda: bool(served.reopen.opened) and served.reopen.opened[0].closed, "what was opened is closed")
    assert served.reopen.opened[0].invokes == 0


def test_closing_while_it_waits_is_quick(served: Served) -> None:
    """A wait of minutes is cut short."""
    served.rules = FailoverConfig(backoff_s=300, backoff_max_s=300)
    engine = served.open(primary=False)
    engine.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "edged-reprobe"]
    assert served.reopen.calls == 0


def test_probing_gives_up_the_workers_priority(served: Served) -> None:
    """A pinned, urgent worker starts the thread; what is opened there must not take its CPU nor its rank."""
    found: list[tuple[int, set[int], int]] = []

    def look(engine: ScriptedDelegate) -> None:
        thread = threading.get_native_id()
        priority = os.getpriority(os.PRIO_PROCESS, thread)
        found.append((os.sched_getscheduler(thread), os.sched_getaffinity(thread), priority))

    def work() -> None:
        os.sched_setaffinity(threading.get_native_id(), {min(os.sched_getaffinity(0))})
        served.reopen.script = look
        served.open(primary=False)

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    served.back()
    process = os.getpid()
    expected = (os.SCHED_OTHER, os.sched_getaffinity(process), os.getpriority(os.PRIO_PROCESS, process))
    assert found == [expected]

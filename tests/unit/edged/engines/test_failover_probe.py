"""The way back of a delegate that failed: waits that double, probes that must be good, and nothing left open."""

from __future__ import annotations

import logging
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
from edged.engines.base import SettledError
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
        told.append(served.news())
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
    served.news()
    assert "a probe failed: wrong numbers: golden sample" in engine.info.degraded
    assert engine.info.delegate == "cpu"
    assert served.reopen.opened[0].closed


def test_one_that_is_refused_for_good_is_not_tried_again(served: Served) -> None:
    """It was judged meanwhile and cannot serve: the CPU goes on, the reason stays, and no thread is left."""
    served.reopen.raises = SettledError("refused: takes none of the model's 6 ops", rightful=False)
    engine = served.open(primary=False, why="no such device")
    eventually(lambda: not probing(), "the probing ends")
    engine.idle()
    assert engine.info.degraded == (
        "external:libnpu.so: no such device; cpu serves; not tried again: refused: takes none of the model's 6 ops"
    )
    told = engine.info
    engine.idle()
    assert engine.info is told
    assert served.reopen.calls == 1
    assert np.array_equal(served.ask(), 2 * X)


def test_one_that_is_slower_than_the_cpu_is_missed_no_more(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """The CPU is the right choice: nothing is degraded, and the log says why."""
    caplog.set_level(logging.INFO)
    served.reopen.raises = SettledError("slower: P50 9.0 µs against 2.0 µs", rightful=True)
    engine = served.open(primary=False, why="no such device")
    assert engine.info.degraded
    assert served.news() == ""
    assert engine.info.delegate == "cpu"
    told = "model m: external:libnpu.so: not tried again: slower: P50 9.0 µs against 2.0 µs; cpu serves"
    assert told in [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    told_last = engine.info
    engine.idle()
    assert engine.info is told_last
    eventually(lambda: not probing(), "the probing ends")
    assert np.array_equal(served.ask(), 2 * X)


def probing() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "edged-reprobe"]


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
    """It is judged by all that the stand-in answered at the start: eight inputs, after a first one."""
    served = Served(tmp_path, golden=False)
    engine = served.open()
    assert served.cpu.invokes == 8 + 3
    lose(served.npu)
    served.ask()
    served.back()
    assert served.reopen.opened[0].invokes == 1 + 8
    assert np.array_equal(served.ask(), 2 * X)
    engine.close()


def test_without_a_thread_it_is_probed_later(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on threads: the request is answered, the reason is told, and a later `idle` gets a thread."""
    monkeypatch.setattr("edged.engines.failover_probe.THREAD_NS", 0)
    engine = served.open()
    start, tried = threading.Thread.start, []

    def refuse(thread: threading.Thread) -> None:
        tried.append(thread)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    lose(served.npu)
    assert np.array_equal(served.ask(), 2 * X)
    waits = "cpu serves; not probed yet: can't start new thread"
    assert engine.info.degraded == f"external:libnpu.so: was killed by SIGSEGV; {waits}"
    assert engine.ended()
    told = engine.info
    engine.idle()
    assert engine.info is told
    assert len(tried) == 2
    assert not served.npu.closed
    monkeypatch.setattr(threading.Thread, "start", start)
    engine.idle()
    assert engine.info.degraded.endswith("; cpu serves; next probe in 0.1 s")
    assert not engine.ended()
    served.back()
    assert served.npu.closed
    assert engine.info.returns == 1


def test_it_is_asked_for_a_thread_now_and_then(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at every turn of the thread that looks after idle models."""
    engine = served.open()
    monkeypatch.setattr(threading.Thread, "start", lambda _: (_ for _ in ()).throw(RuntimeError("none")))
    lose(served.npu)
    served.ask()
    assert not engine.ended()


@pytest.mark.parametrize("at_start", [False, True])
def test_closing_without_a_thread(served: Served, monkeypatch: pytest.MonkeyPatch, at_start: bool) -> None:
    """What was lost is closed here, and nothing is joined that never ran."""
    if not at_start:
        served.open()
    monkeypatch.setattr(threading.Thread, "start", lambda _: (_ for _ in ()).throw(RuntimeError("none")))
    if at_start:
        served.open(primary=False)
    else:
        lose(served.npu)
        served.ask()
    engine = served.engine
    assert engine is not None
    assert "not probed yet: none" in engine.info.degraded
    engine.close()
    assert served.npu.closed is not at_start
    assert served.cpu.closed


def test_while_it_is_probed_that_is_told(served: Served) -> None:
    """A probe can take long; that the next one is due in so many seconds would not be true meanwhile."""
    served.reopen.hold.clear()
    engine = served.open(primary=False, why="gone")
    assert served.changes.acquire(timeout=10)
    engine.idle()
    assert engine.info.degraded == "external:libnpu.so: gone; cpu serves; being probed"
    served.reopen.raises = OSError("no such device")
    served.reopen.hold.set()
    assert served.news().endswith("; cpu serves; a probe failed: no such device; next probe in 0.2 s")


def test_a_cause_is_not_told_twice(served: Served) -> None:
    """A probe that fails as it did at the start says so, without the words."""
    served.reopen.raises = OSError("libnpu.so: device not found.")
    served.open(primary=False, why="unavailable: libnpu.so: device not found")
    start = "external:libnpu.so: unavailable: libnpu.so: device not found; cpu serves; "
    assert served.news() == f"{start}a probe failed likewise; next probe in 0.2 s"
    assert served.news() == f"{start}2 probes failed, the last likewise; next probe in 0.4 s"


def test_a_first_inference_that_is_late_is_given_more_time(served: Served) -> None:
    """What was measured bounds it, so a hang is told soon; one that is only slower comes back in the end."""
    served.rules = FailoverConfig(hang_floor_ms=20, probes=1, backoff_s=0.1, backoff_max_s=0.1)
    served.open(primary=False, first_ms=60.0)
    limits: list[list[int]] = []

    def script(engine: ScriptedDelegate) -> None:
        limits.append(engine.limits)
        if len(limits) < 3:
            engine.lost = "gave no answer in time"
            engine.hung = True

    served.reopen.script = script
    served.back()
    assert [first[0] // 1_000_000 for first in limits] == [1200, 2400, 4800]


def test_closing_ends_the_probing_and_everything_that_is_open(served: Served) -> None:
    """The delegate that was just probed and not yet taken, too."""
    engine = served.open(primary=False)
    assert served.changes.acquire(timeout=10)
    engine.close()
    assert served.reopen.opened[0].closed
    assert served.cpu.closed
    assert not probing()


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
    assert not probing()
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

"""The engine that goes on answering: what each failure of a delegate costs, who answers, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from support.brokers import eventually
from support.failovers import FAILURES, RULES, Served, X, answer_nan, lose, refuse

from edged.engines import base, failover_probe
from edged.engines.failover import FailoverEngine
from edged.errors import Code, InternalError, RequestError


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    if served.engine is not None:
        served.reopen.hold.set()
        served.engine.close()


def test_the_delegate_serves_on_its_own_arrays(served: Served) -> None:
    """While all is well nothing is copied and the stand-in does not run."""
    engine = served.open()
    before = served.cpu.invokes
    assert np.array_equal(served.ask(), 2 * X)
    assert engine.inputs[0] is served.npu.inputs[0]
    assert engine.outputs[0] is served.npu.outputs[0]
    assert served.cpu.invokes == before
    info = engine.info
    assert (info.delegate, info.mapping, info.nodes_delegated, info.nodes_total) == ("npu", "partial", 3, 4)
    assert (info.degraded, info.failovers, info.returns) == ("", 0, 0)


@pytest.mark.parametrize("failure", FAILURES)
def test_the_request_at_hand_is_answered_by_the_stand_in(served: Served, failure: str) -> None:
    """Its inputs are those of the request, and the info of that call names who answered and why."""
    break_it, reason = FAILURES[failure]
    engine = served.open()
    break_it(served.npu)
    assert np.array_equal(served.ask(), 2 * X)
    info = engine.info
    assert (info.delegate, info.failovers, info.returns) == ("cpu", 1, 0)
    assert info.degraded.startswith(f"external:libnpu.so{reason}")
    assert info.degraded.endswith("; cpu serves; next probe in 0.1 s")
    assert engine.pid is None


@pytest.mark.parametrize("failure", FAILURES)
def test_it_serves_again_after_good_probes(served: Served, failure: str) -> None:
    """A new process answers one sample to get going and three to be judged; then its arrays are the engine's."""
    served.open()
    FAILURES[failure][0](served.npu)
    served.ask()
    served.back()
    engine, fresh = served.engine, served.reopen.opened[0]
    assert engine is not None
    assert (engine.info.delegate, engine.info.failovers, engine.info.returns) == ("npu", 1, 1)
    assert fresh.invokes == 1 + RULES.probes
    assert np.array_equal(served.ask(), 2 * X)
    assert engine.outputs[0] is fresh.outputs[0]
    assert engine.pid == fresh.pid


def test_what_failed_is_closed_away_from_the_request(served: Served) -> None:
    """Ending a process can take long: the thread that probes does it, not the worker's."""
    served.open()
    lose(served.npu)
    served.ask()
    eventually(lambda: served.npu.closed, "the lost process is closed")
    assert served.npu.closers == ["edged-reprobe"]


def test_a_request_at_which_both_err_is_to_blame(served: Served) -> None:
    """The error is the stand-in's own, and the delegate is kept."""
    engine = served.open()
    refuse(served.npu)
    served.cpu.raises = RuntimeError("index 9 out of range")
    with pytest.raises(RuntimeError, match="index 9"):
        served.ask()
    served.npu.raises = None
    assert np.array_equal(served.ask(), 2 * X)
    assert (engine.info.delegate, engine.info.failovers) == ("npu", 0)


def test_a_lost_process_is_left_even_when_the_request_is_to_blame(served: Served) -> None:
    """What is gone cannot be kept; the request still gets the stand-in's error."""
    engine = served.open()
    lose(served.npu)
    served.cpu.raises = RuntimeError("index 9 out of range")
    with pytest.raises(RuntimeError, match="index 9"):
        served.ask()
    assert (engine.info.delegate, engine.info.failovers) == ("cpu", 1)


def test_nan_of_both_in_the_same_place_is_the_answer(served: Served) -> None:
    """An input may have no finite answer: the delegate's own is given, and it is kept."""
    engine = served.open()
    answer_nan(served.npu)
    served.cpu.nan_at = 1
    answer = served.ask()
    assert np.isnan(answer[0, 1])
    assert answer[0, 0] == 2 * X[0, 0]
    assert (engine.info.delegate, engine.info.failovers) == ("npu", 0)
    assert engine.outputs[0] is served.npu.outputs[0]


def test_nan_in_another_place_than_the_stand_ins_is_a_failure(served: Served) -> None:
    """Only where the stand-in has a number can the delegate be wrong to have none, and there it is."""
    engine = served.open()
    answer_nan(served.npu)
    served.cpu.nan_at = 2
    answer = served.ask()
    assert np.isnan(answer[0]).tolist() == [False, False, True]
    assert engine.info.delegate == "cpu"


def test_without_a_stand_in_requests_are_refused_until_it_is_back(served: Served) -> None:
    """UNAVAILABLE, to be tried again; a request while nothing serves is decoded into arrays of the right form."""
    engine = served.open(stand_in=False)
    lose(served.npu)
    for _ in range(2):
        with pytest.raises(RequestError) as caught:
            served.ask()
        assert caught.value.code is Code.UNAVAILABLE
        assert caught.value.retryable
    assert "nothing serves" in engine.info.degraded
    served.back()
    assert np.array_equal(served.ask(), 2 * X)
    assert engine.info.returns == 1


def test_without_a_stand_in_golden_samples_tell_who_is_to_blame(served: Served) -> None:
    """A request that errs on a sound delegate gets the error; NaN of a sound one is its answer."""
    engine = served.open(stand_in=False)
    served.npu.invoke = once(served.npu.invoke, RuntimeError("index 9 out of range"))  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="index 9"):
        served.ask()
    served.npu.invoke = once(served.npu.invoke, None, lambda: served.npu.outputs[0].fill(np.inf))  # type: ignore[method-assign]
    assert np.isinf(served.ask()).all()
    assert (engine.info.delegate, engine.info.failovers) == ("npu", 0)


def test_without_a_stand_in_a_delegate_that_fails_its_samples_is_left(served: Served) -> None:
    """It errs at the request and at the golden sample alike."""
    engine = served.open(stand_in=False)
    refuse(served.npu)
    with pytest.raises(RequestError):
        served.ask()
    assert engine.info.failovers == 1


def once(
    invoke: Callable[[], None], error: Exception | None, after: Callable[[], None] = lambda: None
) -> Callable[[], None]:
    """An invoke which the first time raises, or does something more."""
    calls = iter([True])

    def run() -> None:
        first = next(calls, False)
        if first and error is not None:
            raise error
        invoke()
        if first:
            after()

    return run


# --- at the start -----------------------------------------------------------------------------------------------------


def test_a_delegate_that_is_not_there_is_probed_from_the_start(served: Served) -> None:
    """It starts degraded with the reason given, and the delegate serves as soon as it can."""
    engine = served.open(primary=False, why="libnpu.so: no such file")
    assert np.array_equal(served.ask(), 2 * X)
    assert (engine.info.delegate, engine.info.failovers) == ("cpu", 0)
    assert engine.info.degraded == (
        "external:libnpu.so: libnpu.so: no such file; cpu serves; next probe in 0.1 s"
    )  # fmt: skip
    served.back()
    assert (engine.info.delegate, engine.info.failovers, engine.info.returns) == ("npu", 0, 1)


@pytest.mark.parametrize("failure", FAILURES)
def test_a_delegate_that_fails_while_it_is_checked_is_left(
    served: Served, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model starts all the same, on the stand-in, and says so."""
    monkeypatch.setattr("edged.engines.failover_checks.FIRST_NS", 50_000_000)
    FAILURES[failure][0](served.npu)
    engine = served.open()
    assert (engine.info.delegate, engine.info.failovers) == ("cpu", 1)
    assert engine.info.degraded


def test_wrong_numbers_at_the_start_are_a_failure(served: Served) -> None:
    """With the sample and how far it is off."""
    served.npu.off_by = 0.5
    engine = served.open()
    assert engine.info.delegate == "cpu"
    assert "wrong numbers: golden sample 1, output 'y': off by 0.5, tolerance 1e-06" in engine.info.degraded


def test_a_stand_in_that_is_wrong_is_an_error(served: Served) -> None:
    """It would answer for the delegate one day; nothing is left open."""
    served.cpu.off_by = 0.5
    with pytest.raises(InternalError, match="cpu cannot stand in: wrong numbers"):
        served.open()
    assert served.cpu.closed
    assert served.npu.closed


def test_the_first_inference_may_be_slow(served: Served) -> None:
    """Compiling is no hang: the first one has a minute where nothing is known, those after it what was measured."""
    served.open()
    assert served.npu.limits[0] == 60_000_000_000
    assert set(served.npu.limits[1:]) == {20_000_000}  # the floor; 20 x 0.1 ms is less


def test_the_first_inference_is_bounded_by_what_it_took_before(served: Served) -> None:
    """20 x 100 ms, as measured by the selection."""
    served.open(first_ms=100.0)
    assert served.npu.limits[0] == 2_000_000_000


def test_a_later_first_inference_is_bounded_by_the_one_at_the_start(served: Served) -> None:
    """Nothing was measured: what the start took is known all the same, and it was quick. The floor is a second."""
    served.open(p99_us=None)
    lose(served.npu)
    served.ask()
    served.back()
    assert served.reopen.opened[0].limits[0] == 1_000_000_000


@pytest.mark.parametrize("when", ["at the start", "at a probe", "later"])
def test_wrong_numbers_without_golden_samples(tmp_path: Path, when: str) -> None:
    """What the stand-in answered at the start tells: wrong by half is found, wrong by a hair is not."""
    served = Served(tmp_path, golden=False)
    served.npu.off_by = 1e-3
    served.reopen.script = lambda engine: setattr(engine, "off_by", 0.0 if when == "later" else 1.0)
    if when == "at the start":
        served.npu.off_by = 1.0
    engine = served.open()
    assert engine.info.failovers == (when == "at the start")
    if when == "at a probe":
        lose(served.npu)
        served.ask()
        assert "a probe failed: wrong numbers: random inputs, output 'y': off by 1" in served.news()
    if when == "later":
        served.npu.off_by = 1.0
        engine.idle()
    assert engine.info.delegate == "cpu"
    if when != "at a probe":
        assert "wrong numbers: random inputs, output 'y': off by 1" in engine.info.degraded
    served.reopen.script = lambda engine: setattr(engine, "off_by", 0.0)
    served.back()
    assert served.reopen.calls == 1 + (when == "at a probe")  # what was wrong before is forgotten
    assert np.array_equal(served.ask(), 2 * X)
    engine.close()


def test_an_inference_is_given_the_time_of_now(served: Served) -> None:
    """After a hundred quick ones it is no longer four floors."""
    served.open()
    for _ in range(120):
        served.ask()
    assert 20_000_000 <= served.npu.limits[-1] < 80_000_000


def test_the_stand_in_is_warm_before_the_first_failure(served: Served) -> None:
    """It has run its four golden samples before anything is asked of it."""
    served.open()
    assert served.cpu.invokes == 4


# --- idle -------------------------------------------------------------------------------------------------------------


def test_idle_runs_one_golden_sample_after_the_other(served: Served) -> None:
    """Round robin on the delegate: four calls see each of the four samples once."""
    engine = served.open()
    seen = []
    for _ in range(4):
        engine.idle()
        seen.append(float(served.npu.inputs[0][0, 0]))
    assert sorted(seen) == [1.0, 4.0, 7.0, 10.0]


def test_idle_finds_wrong_numbers(served: Served) -> None:
    """A delegate that went wrong without an error is left at the next check, for what it answered."""
    engine = served.open()
    served.npu.off_by = 3.0
    engine.idle()
    assert (engine.info.delegate, engine.info.failovers) == ("cpu", 1)
    assert "wrong numbers: golden sample" in engine.info.degraded
    assert "off by 3, tolerance 1e-06" in engine.info.degraded


def test_idle_finds_what_was_lost_meanwhile(served: Served) -> None:
    """Before a request has to."""
    engine = served.open()
    lose(served.npu)
    engine.idle()
    assert engine.info.delegate == "cpu"
    assert np.array_equal(served.ask(), 2 * X)


def test_idle_keeps_the_stand_in_warm(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it serves at each call; while the delegate serves now and then."""
    engine = served.open()
    engine.idle()
    assert served.cpu.idles == 0
    monkeypatch.setattr("edged.engines.failover.WARM_NS", 0)
    engine.idle()
    assert served.cpu.idles == 1
    served.reopen.hold.clear()
    lose(served.npu)
    served.ask()
    engine.idle()
    assert served.cpu.idles == 2


# --- asked from other threads -----------------------------------------------------------------------------------------


def test_its_process_may_vanish_while_another_thread_asks(served: Served) -> None:
    """The delegate is left between two looks of the thread that reports: it gets an answer, no error."""
    engine = served.open()
    looks = iter([served.npu, None])

    class Vanishing(FailoverEngine):
        _primary = property(lambda _: next(looks))  # type: ignore[assignment]

    engine.__class__ = Vanishing
    try:
        assert engine.pid == served.npu.pid
        looks = iter([served.npu, None])
        assert engine.ended() is False
    finally:
        engine.__class__ = FailoverEngine


def test_the_end_of_its_process_can_be_seen_without_a_request(served: Served) -> None:
    """Until the next call, which finds it; while the delegate is away nothing has ended."""
    served.reopen.hold.clear()
    engine = served.open()
    assert not engine.ended()
    lose(served.npu)
    assert engine.ended()
    engine.idle()
    assert engine.info.delegate == "cpu"
    assert not engine.ended()


def test_closing_takes_what_its_parts_may_take(served: Served) -> None:
    """A process that does not let go, and the thread that opens another one."""
    assert served.open().closing_s == base.CLOSING_S + failover_probe.STOP_S

"""From a choice to the engine: the CPU alone, an accelerator with its stand-in, or the stand-in while it is away."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import delegates, tinymodel
from support.brokers import eventually

from delegates.base import TFLITE_RUNTIME
from delegates.select import Measured
from edged import bundle
from edged.affinity import ThreadPolicy
from edged.bundle import Bundle
from edged.clock import NS_PER_S
from edged.config import FailoverConfig
from edged.engines import failover_checks
from edged.engines.base import Engine
from edged.engines.candidate import Candidate
from edged.engines.failover import FailoverEngine
from edged.engines.tflite import TfliteEngine
from edged.selection import NothingAgreesError, Selection, Selector, Wish, serving
from edged.selection.selector import Miss
from edged.selection.serving import Serving

CPU = Candidate(TFLITE_RUNTIME)
RULES = FailoverConfig(backoff_s=0.1, backoff_max_s=0.2, probes=1)
ONES = np.ones((1, delegates.SIZE), np.float32)


def chip(**options: Any) -> Candidate:
    return Candidate.of(TFLITE_RUNTIME, "external", {"library": str(delegates.library()), "options": options})


@pytest.fixture
def adder(tmp_path: Path) -> Bundle:
    tinymodel.require_runtime(TFLITE_RUNTIME)
    return bundle.read(delegates.adder_bundle(tmp_path / "adder"))


@pytest.fixture
def opened(adder: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that opens what a made-up choice asks for, and closes it at the end."""
    engines: list[Engine] = []

    def open_(
        choice: Selection | Exception, nudge: Callable[[], None] = lambda: None, wanted: Any = None,
        note: Callable[[str], None] = lambda _: None,
    ) -> Any:  # fmt: skip
        selector = Selector(tmp_path / "state", 10)

        def choose(*asked: Any, aside: bool = False) -> Selection:
            if aside:
                return Selector.choose(selector, *asked, aside=aside)
            if isinstance(choice, Exception):
                raise choice
            return choice

        monkeypatch.setattr(selector, "choose", choose)
        wish = Wish(wanted, (TFLITE_RUNTIME,), 1, ThreadPolicy())
        engines.append(Serving(selector, "m", adder, wish, RULES, nudge, note).open())
        return engines[-1]

    yield open_
    for engine in engines:
        engine.close()


def answer(engine: Engine) -> Any:
    engine.inputs[0][...] = ONES
    engine.invoke()
    return engine.outputs[0].copy()


RIGHT = delegates.adder_expected(ONES)


def row(verdict: Any = "chosen", reason: str = "") -> Measured:
    return Measured("l", TFLITE_RUNTIME, "d", 1, verdict=verdict, reason=reason)


def missing(vendor: Candidate) -> Miss:
    return Miss("external:libedged_testdelegate.so", "failed: testdelegate: no such device", vendor)


def settled(engine: Engine) -> str:
    """Wait until it is not tried any more; return what is told then."""

    def told() -> bool:
        engine.idle()
        return not engine.info.degraded or "not tried again" in engine.info.degraded

    eventually(told, "it is settled", 30)
    return str(engine.info.degraded)


def test_the_cpu_alone_is_the_plain_engine(opened: Any) -> None:
    """No process, no failover."""
    engine = opened(Selection((row(),), CPU, CPU))
    assert isinstance(engine, TfliteEngine)
    assert engine.info.degraded == ""
    assert (answer(engine) == RIGHT).all()


def test_what_was_asked_for_and_stays_wrong_is_told_by_the_plain_engine(opened: Any) -> None:
    """Refused: trying again is no use, and the status says why the CPU serves."""
    engine = opened(Selection((row(),), CPU, CPU, (Miss("vx", "refused: off by 3"),)))
    assert isinstance(engine, TfliteEngine)
    assert engine.info.degraded == "vx: refused: off by 3; cpu serves"


def test_an_accelerator_serves_with_the_cpu_behind_it(opened: Any) -> None:
    """In a process of its own, and all is well."""
    engine = opened(Selection((row(),), chip(), CPU, p99_us=20.0))
    assert isinstance(engine, FailoverEngine)
    assert engine.pid is not None
    assert (engine.info.delegate, engine.info.degraded) == ("external:libedged_testdelegate.so", "")
    assert (answer(engine) == RIGHT).all()


@pytest.mark.parametrize("missed", [False, True])
def test_one_that_cannot_be_opened_is_tried_in_the_background(missed: bool, opened: Any, tmp_path: Path) -> None:
    """Measured as good and gone since, or never there: the CPU serves, the reason is told, and it comes back."""
    gone = tmp_path / "gone"
    gone.touch()
    vendor = chip(fail="create", when=str(gone))
    nudges: list[float] = []
    choice = Selection((row(),), CPU, CPU, (missing(vendor),)) if missed else Selection((row(),), vendor, CPU)
    engine = opened(choice, lambda: nudges.append(time.monotonic()))
    assert engine.info.delegate == "cpu"
    assert "testdelegate: no such device; cpu serves" in engine.info.degraded
    assert engine.info.degraded.count("external:libedged_testdelegate.so: ") == 1
    assert (answer(engine) == RIGHT).all()
    gone.unlink()

    def back() -> bool:
        engine.idle()
        return bool(engine.info.degraded == "")

    eventually(back, "it is taken back")
    assert nudges
    assert (answer(engine) == RIGHT).all()


def test_nothing_that_serves_now_and_may_later_refuses_until_then(opened: Any, adder: Bundle) -> None:
    """A model for the accelerator alone, which is unplugged: no error at the start that would need another one."""
    engine = opened(NothingAgreesError(adder, (row("failed", "no such device"),), (missing(chip(fail="create")),)))
    assert isinstance(engine, FailoverEngine)
    assert "no such device" in engine.info.degraded
    assert engine.pid is None


def test_nothing_that_ever_will_is_an_error(opened: Any, adder: Bundle) -> None:
    """Wrong numbers on everything: the model fails with the reasons."""
    with pytest.raises(NothingAgreesError, match="off by 3"):
        opened(NothingAgreesError(adder, (row("refused", "off by 3"),), ()))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_nodes": 0}, "refused: takes none of the model's 6 ops, so it would be the CPU by another name"),
        ({"fail": "wrong", "after": 6}, "refused: random inputs, output 'y': off by 1"),
        ({"fail": "segfault", "where": "open"}, "failed: was killed by SIGSEGV while opening"),
    ],
)
def test_one_that_comes_late_is_judged_before_it_serves(options: dict[str, Any], reason: str, opened: Any) -> None:
    """Not there at the start, and no use when it is: the CPU serves on, the reason is told, and no probe follows."""
    engine = opened(Selection((row(),), CPU, CPU, (missing(chip(**options)),)))
    assert reason in settled(engine)
    assert "not tried again: " in engine.info.degraded
    assert (engine.info.delegate, engine.pid) == ("cpu", None)
    assert (answer(engine) == RIGHT).all()


def test_one_that_comes_late_and_is_slower_is_not_missed(opened: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The CPU was asked for as well, and is quicker: it is the rightful choice, so all is well, with a line."""
    vendor = chip(slow_ms=20)
    wanted = ((vendor.delegate, json.loads(vendor.options)), ("cpu", {}))
    with caplog.at_level(logging.INFO):
        engine = opened(Selection((row(),), CPU, CPU, (missing(vendor),)), wanted=wanted)
        assert settled(engine) == ""
    assert (engine.info.delegate, engine.pid) == ("cpu", None)
    assert "slower: P50 " in caplog.text


def test_one_that_is_slower_serves_where_it_alone_was_asked_for(opened: Any) -> None:
    """The CPU only stands in: being quicker is no reason to leave it."""
    vendor = chip(slow_ms=5)
    wanted = ((vendor.delegate, json.loads(vendor.options)),)
    engine = opened(Selection((row(),), CPU, CPU, (missing(vendor),)), wanted=wanted)
    assert settled(engine) == ""
    assert engine.info.delegate == "external:libedged_testdelegate.so"


@pytest.mark.parametrize("when", ["at the start", "at a probe"])
def test_one_that_takes_nothing_any_more_does_not_serve(when: str, opened: Any, monkeypatch: Any) -> None:
    """Measured as good, and another since: it would be the CPU by another name. The CPU serves, and it is tried on."""
    monkeypatch.setattr(Selector, "agrees", lambda *_: True)
    choice = Selection((row(),), chip(max_nodes=0), CPU)
    if when == "at a probe":
        choice = Selection((row(),), CPU, CPU, (missing(chip(max_nodes=0)),))
    engine = opened(choice)
    reason = "takes none of the model's 6 ops, so it would be the CPU by another name"
    if when == "at a probe":
        reason = f"a probe failed: {reason}; next probe in "

    def told() -> bool:
        engine.idle()
        return reason in engine.info.degraded

    eventually(told, "it is told", 30)
    assert (engine.info.delegate, engine.pid) == ("cpu", None)


def test_one_that_hangs_at_the_start_is_not_waited_for(opened: Any, monkeypatch: Any, tmp_path: Path) -> None:
    """It is given ten times what its opening took when it was measured; the CPU is open before, and serves then."""
    monkeypatch.setattr(serving, "FLOOR_NS", NS_PER_S // 2)
    (tmp_path / "stuck").touch()
    vendor = chip(fail="hang", where="open", when=str(tmp_path / "stuck"))
    chosen = replace(row(), open_ms=5.0, first_ms=1.0)
    asked: list[tuple[str, float | None]] = []
    open_ = Selector.open

    def noted(self: Any, read: Bundle, one: Candidate, policy: ThreadPolicy, within_s: float | None = None) -> Engine:
        asked.append((one.delegate, within_s))
        return open_(self, read, one, policy, within_s)

    monkeypatch.setattr(Selector, "open", noted)
    engine = opened(Selection((chosen,), vendor, CPU))
    assert asked == [("cpu", None), ("external", 0.5)]
    assert "did not open within 0.5 s; cpu serves; " in engine.info.degraded
    assert (answer(engine) == RIGHT).all()
    monkeypatch.setattr(Selector, "agrees", lambda *_: True)
    (tmp_path / "stuck").unlink()

    def back() -> bool:
        engine.idle()
        return bool(engine.info.degraded == "")

    eventually(back, "it is taken back", 30)
    assert asked[2] == ("external", 1.0)  # late once, so it is given twice as long


def test_what_takes_long_at_the_start_is_told(opened: Any) -> None:
    """The status says what is being opened, before it is."""
    told: list[str] = []
    opened(Selection((row(),), chip(), CPU), note=told.append)
    assert told == [f"opening {chip().label}"]


def test_the_first_inference_is_bounded_by_what_was_measured(opened: Any, monkeypatch: Any) -> None:
    """The row of the choice tells what it took."""
    seen: list[float | None] = []
    made = failover_checks.HangLimit.__init__

    def noted(self: Any, factor: float, floor_ms: int, p99_us: float | None, first_ms: float | None) -> None:
        seen.append(first_ms)
        made(self, factor, floor_ms, p99_us, first_ms)

    monkeypatch.setattr(failover_checks.HangLimit, "__init__", noted)
    opened(Selection((replace(row(), first_ms=3.5),), chip(), CPU, p99_us=20.0))
    assert seen == [3.5]


def test_what_else_is_missed_is_told_too(opened: Any, tmp_path: Path) -> None:
    """One is tried in the background; the other one's reason stands beside."""
    other = Miss("vx", "refused: off by 3")
    engine = opened(Selection((row(),), CPU, CPU, (other, missing(chip(fail="create")))))
    name = "external:libedged_testdelegate.so"
    assert engine.info.degraded.startswith(
        f"{name}: failed: testdelegate: no such device; vx: refused: off by 3; cpu serves; "
    )


@pytest.mark.parametrize("fails", [False, True])
def test_what_was_measured_limits_a_hang_from_the_start(fails: bool, opened: Any) -> None:
    """The P99 of the choice goes to the engine, also where the accelerator does not open."""
    seen: list[float | None] = []
    with pytest.MonkeyPatch.context() as patch:
        made = failover_checks.HangLimit.__init__

        def noted(self: Any, factor: float, floor_ms: int, p99_us: float | None = None, *more: Any) -> None:
            seen.append(p99_us)
            made(self, factor, floor_ms, p99_us, *more)

        patch.setattr(failover_checks.HangLimit, "__init__", noted)
        opened(Selection((row(),), chip(**({"fail": "create"} if fails else {})), CPU, p99_us=20.0))
    assert seen == [20.0]

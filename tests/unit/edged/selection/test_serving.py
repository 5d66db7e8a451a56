"""From a choice to the engine: the CPU alone, an accelerator with its stand-in, or the stand-in while it is away."""

from __future__ import annotations

import time
from collections.abc import Callable
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
from edged.config import FailoverConfig
from edged.engines.base import Engine
from edged.engines.candidate import Candidate
from edged.engines.failover import FailoverEngine
from edged.engines.tflite import TfliteEngine
from edged.selection import NothingAgreesError, Selection, Selector, Wish
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

    def open_(choice: Selection | Exception, nudge: Callable[[], None] = lambda: None) -> Any:
        selector = Selector(tmp_path / "state", 10)

        def choose(*_: object) -> Selection:
            if isinstance(choice, Exception):
                raise choice
            return choice

        monkeypatch.setattr(selector, "choose", choose)
        wish = Wish(None, (TFLITE_RUNTIME,), 1, ThreadPolicy())
        engines.append(Serving(selector, "m", adder, wish, RULES, nudge, lambda _: None).open())
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


def test_the_cpu_alone_is_the_plain_engine(opened: Any) -> None:
    """No process, no failover."""
    engine = opened(Selection((row(),), CPU, CPU))
    assert isinstance(engine, TfliteEngine)
    assert engine.info.degraded == ""
    assert (answer(engine) == RIGHT).all()


def test_what_was_asked_for_and_stays_wrong_is_told_by_the_plain_engine(opened: Any) -> None:
    """Refused: trying again is no use, and the status says why the CPU serves."""
    engine = opened(Selection((row(),), CPU, CPU, "vx: refused: off by 3"))
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
    if missed:
        name = "external:libedged_testdelegate.so"
        choice = Selection((row(),), CPU, CPU, f"{name}: failed: testdelegate: no such device", vendor)
    else:
        choice = Selection((row(),), vendor, CPU)
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
    engine = opened(NothingAgreesError(adder, (row("failed", "no such device"),), chip(fail="create")))
    assert isinstance(engine, FailoverEngine)
    assert "no such device" in engine.info.degraded
    assert engine.pid is None


def test_nothing_that_ever_will_is_an_error(opened: Any, adder: Bundle) -> None:
    """Wrong numbers on everything: the model fails with the reasons."""
    with pytest.raises(NothingAgreesError, match="off by 3"):
        opened(NothingAgreesError(adder, (row("refused", "off by 3"),), None))

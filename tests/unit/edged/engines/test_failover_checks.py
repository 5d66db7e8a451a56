"""How long an inference may take, and whether an answer is a number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support import failovers, tinymodel
from support.engines import ScriptedDelegate

from edged.engines import failover_checks
from edged.engines.failover_checks import FIRST_NS, Examiner, Finite, HangLimit

MS = 1_000_000


def test_nothing_known_gives_the_first_inference_its_time() -> None:
    """Then the slowest of a few counts, and never less than four floors."""
    limit = HangLimit(20.0, 250)
    assert limit.ns == FIRST_NS
    limit.record(1 * MS)
    assert limit.ns == 1000 * MS
    limit.record(80 * MS)
    assert limit.ns == 1600 * MS
    limit.record(2 * MS)
    assert limit.ns == 1600 * MS


def test_what_was_measured_before_counts_until_there_is_enough() -> None:
    """100 ms of the selection: 2 s, although the first few were quicker."""
    limit = HangLimit(20.0, 250, p99_us=100_000.0)
    for _ in range(50):
        limit.record(1 * MS)
    assert limit.ns == 2000 * MS


def test_what_was_measured_needs_no_more_floors() -> None:
    """20 times 1 ms is below the floor, which is 250 ms from the start; four of them hold where nothing is known."""
    limit = HangLimit(20.0, 250, p99_us=1000.0)
    assert limit.ns == 250 * MS
    limit.record(1 * MS)
    assert limit.ns == 250 * MS


def test_the_first_inference_has_a_limit_of_its_own() -> None:
    """A minute unknown; 20 times what was measured, or the P99 where that is more; a second, or four floors."""
    assert HangLimit(20.0, 250, p99_us=1000.0).first.ns == FIRST_NS
    assert HangLimit(20.0, 250, 1000.0, 200.0).first.ns == 4000 * MS
    assert HangLimit(20.0, 250, 500_000.0, 200.0).first.ns == 10_000 * MS
    assert HangLimit(20.0, 10, 1000.0, 1.0).first.ns == 1000 * MS
    assert HangLimit(20.0, 500, 1000.0, 1.0).first.ns == 2000 * MS
    assert HangLimit(20.0, 250, 1000.0, 50_000.0).first.ns == 100_000 * MS


def test_from_a_hundred_on_it_is_a_multiple_of_the_p99() -> None:
    """numpy's P99 of the same durations, times the factor, within the histogram's 1 %."""
    limit = HangLimit(20.0, 250, p99_us=5_000_000.0)
    taken = np.random.default_rng(1).integers(20 * MS, 60 * MS, 400)
    for ns in taken.tolist():
        limit.record(ns)
    assert limit.ns == pytest.approx(20 * np.percentile(taken, 99), rel=0.02)


def test_the_floor_holds_for_a_quick_delegate() -> None:
    """20 times 10 us is no reason to kill it."""
    limit = HangLimit(20.0, 250)
    for _ in range(100):
        limit.record(10_000)
    assert limit.ns == 250 * MS


def test_a_few_slow_ones_among_many_change_nothing() -> None:
    """A percentile is looked at again as the numbers grow; one of a thousand is beyond it."""
    limit = HangLimit(20.0, 1)
    for index in range(2000):
        limit.record(900 * MS if index % 1000 == 500 else 5 * MS)
    assert limit.ns == pytest.approx(100 * MS, rel=0.02)


def test_a_delegate_that_became_slower_is_given_more_time() -> None:
    """10,000 later the limit has followed."""
    limit = HangLimit(20.0, 1)
    for ns in (5 * MS, 20 * MS):
        for _ in range(20_000):
            limit.record(ns)
    assert limit.ns == pytest.approx(400 * MS, rel=0.02)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_one_value_that_is_no_number_is_found(dtype: str, bad: float) -> None:
    """Anywhere, in any output of floats; the largest finite values are no reason."""
    shape = (7, 333)
    finite = Finite((tinymodel.spec("a", (2,), "int32"), tinymodel.spec("y", shape, dtype)))
    outputs = [np.array([1, 2], np.int32), np.full(shape, np.finfo(dtype).max, dtype)]
    assert finite.holds(outputs)
    other = [output.copy() for output in outputs]
    outputs[1][6, 332] = bad
    assert not finite.holds(outputs)
    assert finite.blame(outputs, other) == "output 'y': 1 of 2331 values are not finite"
    assert finite.blame(outputs, outputs) == ""


def test_outputs_that_are_always_finite_are_not_looked_at() -> None:
    """Whole numbers, and what is dequantized from them."""
    quantized = tinymodel.spec("q", (1, 8), "int8", scale=0.1, zero_point=3, io="float")
    finite = Finite((tinymodel.spec("a", (2,), "int32"), quantized))
    assert finite.holds([np.zeros(2, np.int32), np.full((1, 8), np.nan, np.float32)])


def test_a_scalar_and_an_empty_output_are_looked_at() -> None:
    """Shapes without an element, and without an axis."""
    finite = Finite((tinymodel.spec("s", ()), tinymodel.spec("e", (0, 3))))
    assert finite.holds([np.array(1.0, np.float32), np.zeros((0, 3), np.float32)])
    assert not finite.holds([np.array(np.nan, np.float32), np.zeros((0, 3), np.float32)])


def test_only_the_inference_counts_as_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filling the inputs and comparing the outputs may take long: a limit made of that would let a hang pass."""
    clock, taken = [0], []
    monkeypatch.setattr(failover_checks, "now_ns", lambda: clock[0])

    def passes(ns: int) -> None:
        clock[0] += ns

    class Slow(ScriptedDelegate):
        def __getattribute__(self, name: str) -> object:
            passes(60_000 * MS if name in ("inputs", "outputs") else 0)
            return super().__getattribute__(name)

        def invoke(self) -> None:
            passes(3 * MS)
            vars(self)["outputs"][0][...] = 2 * vars(self)["inputs"][0]

    class Recorded(HangLimit):
        def record(self, ns: int) -> None:
            taken.append(ns)
            super().record(ns)

    Examiner(failovers.write(tmp_path / "b"), Recorded(20.0, 250)).admit(Slow(), 3)
    assert taken == [3 * MS] * 3

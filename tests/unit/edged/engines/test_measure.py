"""A candidate is blamed for what it does itself, and for nothing that the CPU or the system does."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.engines import ScriptedEngine
from support.failovers import write

from edged.bundle import Bundle, Golden
from edged.engines import golden, measure, opening
from edged.engines.base import EngineLostError
from edged.engines.candidate import Candidate
from edged.engines.measure import Job

REFUSED = RuntimeError("gather index out of bounds")


class Cpu:
    """Plays the CPU's two engines: `reference` with its plain kernels, `default` with the others; None: no such."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.reference: ScriptedEngine | None = ScriptedEngine()
        self.default: ScriptedEngine | None = ScriptedEngine()
        patch.setattr(opening, "open_here", self._open)

    def _open(self, _bundle: Bundle, candidate: Candidate) -> Any:
        engine = self.reference if "xnnpack" in candidate.options else self.default
        if engine is None:
            raise MemoryError
        return engine


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> Cpu:
    return Cpu(monkeypatch)


@pytest.fixture
def loaded(tmp_path: Path) -> Bundle:
    return write(tmp_path / "b")


def compared(engine: Any, loaded: Bundle) -> Any:
    return measure._on_random(engine, loaded, None, "r", measure._compared(loaded, None))


def test_right_answers_agree_and_wrong_ones_do_not(cpu: Cpu, loaded: Bundle) -> None:
    """The same function, and one that is off by one."""
    engine = ScriptedEngine()
    assert compared(engine, loaded).ratio == 0.0
    engine.off_by = 1.0
    assert compared(engine, loaded).ratio > 1


def test_default_kernels_that_do_not_open_or_refuse_are_not_the_candidates_fault(cpu: Cpu, loaded: Bundle) -> None:
    """They only widen the tolerance: without them the plain kernels tell."""
    assert cpu.default is not None
    cpu.default.raises = REFUSED
    assert compared(ScriptedEngine(), loaded).ratio == 0.0
    cpu.default = None
    assert compared(ScriptedEngine(), loaded).ratio == 0.0


def test_what_the_plain_kernels_refuse_is_asked_of_nobody(cpu: Cpu, loaded: Bundle) -> None:
    """Random inputs may be none of the model's: where the CPU says so, there is nothing to compare with."""
    assert cpu.reference is not None
    engine = ScriptedEngine()
    cpu.reference.raises = engine.raises = REFUSED
    assert compared(engine, loaded) is None
    assert engine.invokes == 0
    cpu.reference = None
    assert compared(engine, loaded) is None


def test_inputs_that_the_cpu_takes_are_compared_all_the_same(cpu: Cpu, loaded: Bundle) -> None:
    """One is refused, the others tell."""
    assert cpu.reference is not None
    plain, calls = cpu.reference.invoke, []

    def first_refused() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise REFUSED
        plain()

    cpu.reference.invoke = first_refused  # type: ignore[method-assign]
    engine = ScriptedEngine()
    engine.off_by = 1.0
    assert compared(engine, loaded).ratio > 1


def test_what_the_candidate_refuses_is_its_own(cpu: Cpu, loaded: Bundle) -> None:
    """The CPU has an answer, and it has none."""
    engine = ScriptedEngine()
    engine.raises = REFUSED
    with pytest.raises(RuntimeError, match="out of bounds"):
        compared(engine, loaded)


class Scaled(ScriptedEngine):
    """Answers 2x, the last element a thousandth of it: pixels beside a score."""

    def invoke(self) -> None:
        super().invoke()
        self.outputs[0][..., 2] = self.inputs[0][..., 2] / 500 * (1 + self.off_by)
        self.outputs[0][..., :2] -= self.off_by


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("off_by", [0.0, 1.0])
def test_columns_are_judged_on_golden_samples_too(runs: bool, off_by: float, cpu: Cpu, loaded: Bundle) -> None:
    """The last one is off by 100 %, within the bundle's tolerance; also where the CPU cannot run the model."""
    x = np.arange(1, 13, dtype=np.float32).reshape(4, 1, 3)
    samples = Golden({"x": x}, {"y": x * np.float32([2, 2, 0.002])}, {}, {"y": 0.2})
    compared, engine = measure._compared(loaded, samples), Scaled()
    engine.off_by = off_by
    assert measure._on_golden(engine, loaded, samples, compared, range(4)).ratio < 1
    cpu.reference, cpu.default = Scaled() if runs else None, None
    if runs:
        engine.off_by = 0.0  # right on every other input
    found = measure._on_random(engine, loaded, samples, "r", compared)
    assert found is not None
    assert (found.ratio > 1) == bool(off_by)
    assert not off_by or "output 'y', column 2 (0.006 to 0.024): off by 0.024" in found.text


@pytest.mark.parametrize("fails", [False, True])
def test_both_engines_of_the_cpu_are_closed(fails: bool, cpu: Cpu, loaded: Bundle) -> None:
    """Whatever comes of it."""
    engine, opened = ScriptedEngine(), (cpu.reference, cpu.default)
    if fails:
        engine.raises = EngineLostError("was killed by SIGSEGV", code=-11)
        with pytest.raises(EngineLostError):
            compared(engine, loaded)
    else:
        compared(engine, loaded)
    assert [one is not None and one.closed for one in opened] == [True, True]


@pytest.mark.parametrize(
    ("error", "crashed", "hung"),
    [
        (EngineLostError("was killed by SIGSEGV", code=-11), True, False),
        (EngineLostError("was killed by SIGABRT: got SIGKILL from the firmware", code=-6), True, False),
        (EngineLostError("was killed by SIGKILL (most often: out of memory)", code=-9), False, False),
        (EngineLostError("ended with 3", code=3), True, False),
        (EngineLostError("gave no answer within 5 ms (hang)", hung=True), False, True),
        (EngineLostError("closed its socket"), False, False),
        (RuntimeError("was killed by SIGSEGV"), False, False),
    ],
)
def test_how_a_process_ended_is_told_by_its_status(
    error: Exception, crashed: bool, hung: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by its words, which a vendor's library may have written."""
    loaded = write(tmp_path / "b")

    def lost(*_: object, **__: object) -> Any:
        raise error

    monkeypatch.setattr(opening, "open_as_served", lost)
    row = measure.measure(Job(loaded.path, loaded.model_sha256, Candidate("ai-edge-litert")))
    assert (row.verdict, row.reason, row.crashed, row.hung) == ("failed", str(error), crashed, hung)


def test_a_row_begins_as_the_candidate_says() -> None:
    """The same one that stands where nothing was measured."""
    candidate = Candidate("ai-edge-litert", threads=2)
    gauge = measure._Gauge(Job(Path("b"), "", candidate))
    assert gauge.row == candidate.unmeasured()
    assert (gauge.row.label, gauge.row.verdict) == ("cpu on ai-edge-litert, 2 threads", "unmeasured")


def test_every_error_of_a_runtime_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what the runtime puts behind every refusal."""
    loaded = write(tmp_path / "b")
    said = "no such device\nRestored original execution plan after delegate application failure."

    def refuse(*_: object, **__: object) -> Any:
        raise ValueError(said)

    monkeypatch.setattr(opening, "open_as_served", refuse)
    row = measure.measure(Job(loaded.path, loaded.model_sha256, Candidate("ai-edge-litert")))
    assert row.reason == "no such device"


class Judged:
    """A candidate of the CPU, scripted, that takes `each_s` for an inference, on a clock that only it moves on."""

    def __init__(self, tmp_path: Path, patch: pytest.MonkeyPatch, each_s: float) -> None:
        self.clock, self.loaded = 0, write(tmp_path / "b")
        engine = ScriptedEngine()
        plain = engine.invoke

        def slow() -> None:
            self.clock += int(each_s * 1e9)
            plain()

        engine.invoke = slow  # type: ignore[method-assign]
        patch.setattr(measure, "now_ns", lambda: self.clock)
        patch.setattr(opening, "open_as_served", lambda *_, **__: engine)

    def row(self, seconds: float) -> Any:
        return measure.measure(
            Job(self.loaded.path, self.loaded.model_sha256, Candidate("ai-edge-litert"), seconds=seconds)
        )


def test_golden_samples_take_half_of_the_time_that_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is slow and right is measured in its time, by as many samples as fit; all four where there is time."""
    judged = Judged(tmp_path, monkeypatch, 1.0)
    row = judged.row(6.0)  # the first inference takes one of them
    assert (row.verdict, row.checked, row.samples) == ("agrees", 3, measure.MIN_TIMED)
    assert Judged(tmp_path / "fast", monkeypatch, 0.001).row(6.0).checked == 4


def test_the_figures_take_half_of_what_the_samples_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1.2 s the first inference and four samples took 0.5: the timed ones end after 0.35, and not after a second."""
    assert Judged(tmp_path, monkeypatch, 0.1).row(1.2).samples == 4
    assert Judged(tmp_path / "b", monkeypatch, 0.1).row(60.0).samples == 10


def test_one_golden_sample_is_checked_in_any_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where the first inference took all the time."""
    judged = Judged(tmp_path, monkeypatch, 10.0)
    row = judged.row(6.0)
    assert (row.verdict, row.checked) == ("agrees", 1)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 60, 1000])
def test_the_first_few_samples_lie_all_over_them(count: int) -> None:
    """Each comes once; of the first ten no two are closer than a 25th of the whole."""
    order = list(golden.spread(count))
    assert sorted(order) == list(range(count))
    first = sorted(order[: min(10, count // 2)])
    assert all(after - before >= count / 25 for before, after in itertools.pairwise(first))

"""What a conversion asks of coverage: rows of the runtimes here, and delegates that are of no use."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import tinymodel

from converters import coverage
from edged.engines import tflite_runtime, tflite_tried
from edged.engines.tflite_tried import Tried
from edged.errors import BadDataError, UnavailableError
from edged.limits import Limits


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A float model of one op."""
    (tmp_path / "m.tflite").write_bytes(tinymodel.dense_model())
    return tmp_path / "m.tflite"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Limits]:
    """Two runtimes that are not started: the first takes the op, the second dies of it. Returns the limits they had."""
    both = tuple(tflite_runtime.Runtime(runtime.name, "json") for runtime in tflite_runtime.RUNTIMES)
    monkeypatch.setattr(tflite_runtime, "RUNTIMES", both)
    given: list[Limits] = []

    def one(_path: Path, runtime: tflite_runtime.Runtime, limits: Limits) -> Tried:
        given.append(limits)
        if runtime is both[0]:
            return Tried(runtime.name, "9.9", loads=True, partition=(0,))
        return Tried(runtime.name, "9.9", loads=False, reason="its process was killed by SIGSEGV")

    monkeypatch.setattr(tflite_tried, "_try", one)
    return given


def test_a_death_becomes_a_row(model: Path, asked: list[Limits]) -> None:
    """A runtime that dies of the model has a row; the children share the conversion's time and are told as stages."""
    stages: list[str] = []
    limits = Limits(5, 6)
    alive, dead = coverage.of(model, stages.append, limits)[:2]
    assert (alive.source, alive.taken, alive.total, alive.partitions) == ("ai-edge-litert 9.9", 1, 1, 1)
    assert (dead.how, dead.taken, dead.total, dead.partition) == ("measured", 0, 1, ())
    assert dead.reason == "its process was killed by SIGSEGV"
    assert [one.memory for one in asked] == [6, 6]
    assert [one.seconds for one in asked] == pytest.approx([2.5, 5], abs=0.5)  # what the first leaves is the second's
    assert [stage.rpartition(" ")[2] for stage in stages] == ["ai-edge-litert", "tflite-runtime"]


def test_what_is_no_model_is_named(tmp_path: Path) -> None:
    """Before any child is started."""
    (tmp_path / "m.tflite").write_bytes(b"no model")
    with pytest.raises(BadDataError, match=r"m\.tflite"):
        coverage.of(tmp_path / "m.tflite", lambda _: None, Limits())


def test_without_a_runtime(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be measured: said, not passed over."""
    monkeypatch.setattr(tflite_runtime, "RUNTIMES", ())
    with pytest.raises(UnavailableError, match="no TFLite runtime"):
        coverage.of(model, lambda _: None, Limits())


def test_nothing_is_read_where_no_delegate_is_named(tmp_path: Path) -> None:
    """There is no such file, and nobody asks for it."""
    assert coverage.useless((), tmp_path / "none.tflite", lambda _: None, Limits(), ()) == []


def test_a_delegate_by_its_table_starts_no_runtime(model: Path, asked: list[Limits]) -> None:
    """The Edge TPU takes no float: a document tells, and its sentence names the op."""
    said = coverage.useless(("edgetpu", "gpu"), model, lambda _: None, Limits(), ())
    assert said == ["edgetpu: takes no op; FULLY_CONNECTED: float32 (takes int8, uint8)"]
    assert asked == []


def test_xnnpack_is_measured(model: Path, asked: list[Limits]) -> None:
    """One runtime takes the op: XNNPACK is of use, unless the fleet has the other one."""
    assert coverage.useless(("xnnpack",), model, lambda _: None, Limits(5), ()) == []
    assert len(asked) == 2
    said = coverage.useless(("xnnpack",), model, lambda _: None, Limits(), ("tflite-runtime",))
    assert said == ["xnnpack (tflite-runtime 9.9): its process was killed by SIGSEGV"]

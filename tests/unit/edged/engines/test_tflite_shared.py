"""Tensors in memory that comes from outside: where the runtime can, and everywhere else the same numbers by a copy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support import tinymodel

from delegates import registry
from edged import bundle
from edged.bundle import Bundle, TensorSpec
from edged.engines import tflite_shared
from edged.engines.base import Array
from edged.engines.tflite import TfliteEngine
from edged.engines.tflite_runtime import Runtime
from edged.engines.wire import Wire

RANDOM = np.random.default_rng(3)


def outside(spec: TensorSpec, offset: int = 0) -> Array:
    """An array `offset` bytes behind an address that is a multiple of 64, with room behind it."""
    raw = np.zeros(spec.wire_bytes + 256, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    return raw[start : start + spec.wire_bytes].view(spec.wire_dtype).reshape(spec.shape)


def wire(loaded: Bundle, offset: int = 0) -> Wire:
    manifest = loaded.manifest
    return Wire([outside(s, offset) for s in manifest.inputs], [outside(s, offset) for s in manifest.outputs])


def opened(loaded: Bundle, runtime: Runtime, given: Wire | None = None) -> TfliteEngine:
    return TfliteEngine(loaded, runtime, registry.create("cpu"), wire=given)


def filled(engine: TfliteEngine, value: int) -> list[bytes]:
    for array in engine.inputs:
        array[...] = np.random.default_rng(value).uniform(-5, 5, array.shape).astype(array.dtype)
    engine.invoke()
    return [output.tobytes() for output in engine.outputs]


def address(engine: TfliteEngine, index: int) -> int:
    return int(engine._interpreter.tensor(index)().ctypes.data)


def test_a_tensor_is_the_array_where_the_runtime_can(runtime: Runtime, tmp_path: Path) -> None:
    """tflite-runtime exports what it takes, ai-edge-litert does not."""
    loaded = bundle.read(tinymodel.write_dense_bundle(tmp_path / "b"))
    given = wire(loaded)
    engine = opened(loaded, runtime, given)
    addresses = (given.inputs[0].ctypes.data, given.outputs[0].ctypes.data)
    can = runtime.name == "tflite-runtime"
    assert ((address(engine, 0), address(engine, 3)) == addresses) is can
    assert engine.inputs[0] is given.inputs[0]
    assert engine.outputs[0] is given.outputs[0]
    for value in range(5):
        assert filled(engine, value) == filled(opened(loaded, runtime), value)
    assert ((address(engine, 0), address(engine, 3)) == addresses) is can


@pytest.mark.parametrize("xnnpack", [True, False])
@pytest.mark.parametrize("kind", ["dense", "int8", "int8 quantized", "difference", "counting", "add"])
def test_the_bits_are_the_same_wherever_tensors_lie(runtime: Runtime, tmp_path: Path, kind: str, xnnpack: bool) -> None:
    """Float, int8 with and without conversion, several tensors, tensors that move; on XNNPACK and without."""
    writers: dict[str, Callable[[Path], Path]] = {
        "dense": tinymodel.write_dense_bundle, "int8": tinymodel.write_int8_bundle,
        "difference": tinymodel.write_difference_bundle, "counting": tinymodel.write_counting_bundle,
        "int8 quantized": lambda path: tinymodel.write_int8_bundle(path, io="quantized"),
        "add": lambda path: tinymodel.write_add_bundle(path, 150_528),
    }  # fmt: skip
    loaded = bundle.read(writers[kind](tmp_path / "b"))
    cpu = registry.create("cpu", {"xnnpack": xnnpack})
    plain = TfliteEngine(loaded, runtime, cpu)
    shared = TfliteEngine(loaded, runtime, cpu, wire=wire(loaded))
    for value in range(10):
        assert filled(shared, value) == filled(plain, value)


def test_an_array_that_is_not_aligned_is_copied(runtime: Runtime, tmp_path: Path) -> None:
    """The runtime's rule is 64 bytes."""
    loaded = bundle.read(tinymodel.write_dense_bundle(tmp_path / "b"))
    engine = opened(loaded, runtime, wire(loaded, offset=8))
    assert address(engine, 0) != engine.inputs[0].ctypes.data
    assert filled(engine, 1) == filled(opened(loaded, runtime), 1)


def test_the_runtime_is_not_even_asked_for_what_it_could_not_use(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for an array that is not aligned nor for one with gaps: the call trusts what it is told."""
    asked = []
    monkeypatch.setattr(tflite_shared, "_function", lambda _: lambda *args: asked.append(args) or 1)
    loaded = bundle.read(tinymodel.write_dense_bundle(tmp_path / "b"))
    opened(loaded, runtime, wire(loaded, offset=8))
    gaps = wire(loaded)
    interpreter = opened(loaded, runtime)._interpreter
    aligned = np.zeros((64, 16), np.float32)[:, ::2]
    assert tflite_shared.place(runtime, interpreter, {0: aligned}) == set()
    assert asked == []
    assert tflite_shared.place(runtime, interpreter, {0: gaps.inputs[0]}) == set()
    assert len(asked) == 1


def test_a_tensor_that_is_converted_keeps_its_memory(runtime: Runtime, tmp_path: Path) -> None:
    """The client's floats are not the model's integers: quantized straight from one to the other."""
    loaded = bundle.read(tinymodel.write_int8_bundle(tmp_path / "b"))
    engine = opened(loaded, runtime, wire(loaded))
    assert address(engine, 0) != engine.inputs[0].ctypes.data


def test_a_model_whose_tensors_move_is_opened_without(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its outputs would leave the memory that they were given in the middle of an invoke."""
    placed = []
    place = tflite_shared.place

    def noted(*args: object) -> set[int]:
        placed.append(place(*args))  # type: ignore[arg-type]
        return placed[-1]

    monkeypatch.setattr(tflite_shared, "place", noted)
    loaded = bundle.read(tinymodel.write_counting_bundle(tmp_path / "b"))
    engine = opened(loaded, runtime, wire(loaded))
    assert bool(placed[0]) is (runtime.name == "tflite-runtime")
    assert address(engine, 0) != engine.inputs[0].ctypes.data
    for array in engine.inputs:
        array[...] = [[0, 3, 0, 4]]
    for _ in range(3):
        engine.invoke()
        assert engine.outputs[0].tolist() == [2, 2]
        assert engine.outputs[1].tolist() == [[0, 6, 0, 8]]


def test_a_runtime_that_says_no_is_taken_at_its_word(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A status that is not 0 is a copy, and the same bits."""
    monkeypatch.setattr(tflite_shared, "_function", lambda _: lambda *_: 1)
    loaded = bundle.read(tinymodel.write_dense_bundle(tmp_path / "b"))
    engine = opened(loaded, runtime, wire(loaded))
    assert address(engine, 0) != engine.inputs[0].ctypes.data
    assert filled(engine, 1) == filled(opened(loaded, runtime), 1)

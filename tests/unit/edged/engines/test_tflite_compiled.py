"""The engine on CompiledModel, really run on the CPU, which needs no accelerator; and how it opens one."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
from support import tflitefiles, tinymodel

from delegates.base import LITERT, Opening, Probe
from delegates.gpu import WEIGHTS, beside
from edged import bundle
from edged.bundle import Bundle, TensorSpec
from edged.compilecache import CompileCache
from edged.engines.tflite_compiled import CompiledEngine
from edged.engines.wire import Wire
from edged.errors import BadDataError

PART = b"1 operations will run on the GPU, and the remaining 1 operations will run on the CPU.\n"
CAUSE = b"ERROR: Following operations are not supported by GPU delegate:\nROUND: Operation is not supported.\n"


@dataclass
class OnCpu:
    """CompiledModel's CPU in the place of an accelerator.

    alone, both: what it writes as LiteRT does, then it refuses alone where `part` is set. asked: how it was opened.
    """

    part: bool = False
    alone: bytes = CAUSE + PART
    both: bytes = CAUSE + PART
    asked: list[Opening] = field(default_factory=list)

    name: ClassVar[str] = "mock"
    isolated: ClassVar[bool] = True
    api: ClassVar[Any] = "compiled_model"
    runtimes: ClassVar[frozenset[str]] = frozenset({LITERT})
    caches: ClassVar[bool] = True

    def probe(self) -> Probe:
        return Probe(available=True)

    def open(self, module: ModuleType, how: Opening) -> Mapping[str, Any]:
        self.asked.append(how)
        if not self.part:
            return {"options": module.Options()}
        os.write(2, self.alone if how.alone else self.both)
        if how.alone:
            raise RuntimeError("└ Some ops are not accelerated.")
        return {"options": module.Options(**beside(module, module.HardwareAccelerator.CPU, how))}


@pytest.fixture(autouse=True)
def _litert() -> None:
    tinymodel.require_runtime(LITERT)


def dense(path: Path) -> Bundle:
    return bundle.read(tinymodel.write_dense_bundle(path / "dense"))


def answer(engine: CompiledEngine, *inputs: Any) -> np.ndarray[Any, Any]:
    for array, values in zip(engine.inputs, inputs, strict=True):
        array[...] = values
    engine.invoke()
    return engine.outputs[0].copy()


def test_answers_are_the_model_s(tmp_path: Path) -> None:
    """Twice, with other inputs: buffers are made once and used again; every op of the file was taken."""
    engine = CompiledEngine(dense(tmp_path), OnCpu())
    for x in ([[1, 2, 3]], [[-1, 0.5, 0.25]]):
        expected = tinymodel.dense_expected(np.array(x, np.float32))
        np.testing.assert_allclose(answer(engine, x), expected, rtol=1e-6)
    info = engine.info
    assert (info.delegate, info.mapping, info.nodes_delegated, info.nodes_total) == ("mock", "full", 1, 1)
    assert info.runtime.startswith("ai-edge-litert ")
    engine.idle()
    engine.close()


def test_tensors_are_bound_by_name(tmp_path: Path) -> None:
    """The model's order of inputs is b, a; the bundle's is a, b."""
    engine = CompiledEngine(bundle.read(tinymodel.write_difference_bundle(tmp_path / "d")), OnCpu())
    difference = answer(engine, [[1, 2, 3, 4]], [[10, 10, 10, 10]])
    np.testing.assert_array_equal(difference, [[9, 8, 7, 6]])
    np.testing.assert_array_equal(engine.outputs[1], [[11, 12, 13, 14]])
    engine.close()


@pytest.mark.parametrize("io", ["float", "quantized"])
def test_a_quantized_model_takes_what_the_client_sends(tmp_path: Path, io: str) -> None:
    """y = 2x at twice the scale: in whole numbers it is the identity, beyond the range it saturates."""
    engine = CompiledEngine(bundle.read(tinymodel.write_int8_bundle(tmp_path / io, io=io)), OnCpu())
    steps = np.array([[-128, -3, 0, 3, 4, 50, 100, 127]])
    sent = (steps - 3) * np.float32(0.05) if io == "float" else steps
    assert engine.inputs[0].dtype == (np.float32 if io == "float" else np.int8)
    expected = 2 * sent if io == "float" else steps
    np.testing.assert_allclose(answer(engine, sent), expected, rtol=1e-5, atol=1e-6)
    if io == "float":
        assert answer(engine, 1000.0)[0, 0] == pytest.approx((127 - 3) * 0.1)
    engine.close()


@pytest.mark.parametrize("io", ["float", "quantized"])
def test_arrays_may_lie_elsewhere(tmp_path: Path, io: str) -> None:
    """Given arrays are the engine's inputs and outputs themselves, for an engine in another process."""
    dtype = np.float32 if io == "float" else np.int8
    wire = Wire([np.ones((1, 8), dtype)], [np.full((1, 8), 7, dtype)])
    engine = CompiledEngine(bundle.read(tinymodel.write_int8_bundle(tmp_path / io, io=io)), OnCpu(), wire=wire)
    assert engine.inputs[0] is wire.inputs[0]
    assert engine.outputs[0] is wire.outputs[0]
    engine.invoke()
    np.testing.assert_allclose(wire.outputs[0], 2.0 if io == "float" else 1, rtol=1e-6)
    engine.close()


def test_a_model_without_signatures_is_bound_by_tensor_names(tmp_path: Path) -> None:
    """LiteRT gives such a file one signature of its own naming."""
    loaded = tflitefiles.schema().ModelT.InitFromPackedBuf(bytearray(tinymodel.dense_model()), 0)
    loaded.signatureDefs = None
    engine = CompiledEngine(_with(dense(tmp_path), tflitefiles.packed(**vars(loaded))), OnCpu())
    np.testing.assert_allclose(answer(engine, [[1, 2, 3]]), [[4.625, -0.75]])
    engine.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dtype": "int8", "scale": 0.1}, "tensor 'x' is float32[1, 3], bundle.json says int8[1, 3]"),
        ({"shape": (1, 2)}, "tensor 'x' is float32[1, 3], bundle.json says float32[1, 2]"),
        ({"name": "z"}, "bundle.json leaves out x of the model"),
        ({"dtype": "int64"}, "tensor 'x' is int64 (CompiledModel takes"),
    ],
)
def test_what_the_bundle_says_must_be_so(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    """The runtime would take a short array, or int8 for float32, without a word."""
    loaded = dense(tmp_path)
    spec = dataclasses.replace(loaded.manifest.inputs[0], **change)
    wrong = dataclasses.replace(loaded, manifest=dataclasses.replace(loaded.manifest, inputs=(spec,)))
    with pytest.raises(BadDataError) as caught:
        CompiledEngine(wrong, OnCpu())
    assert words in str(caught.value)


def test_names_that_are_not_there_are_told(tmp_path: Path) -> None:
    """A tensor too many, and a signature that the model lacks."""
    loaded = dense(tmp_path)
    more = (*loaded.manifest.inputs, TensorSpec(name="z", dtype="float32", shape=(1,)))
    with pytest.raises(BadDataError, match="the model has no tensor 'z'"):
        CompiledEngine(dataclasses.replace(loaded, manifest=dataclasses.replace(loaded.manifest, inputs=more)), OnCpu())
    other = dataclasses.replace(loaded.manifest, signature="other")
    with pytest.raises(BadDataError, match=r"no signature 'other' \(it has serving_default"):
        CompiledEngine(dataclasses.replace(loaded, manifest=other), OnCpu())


def test_a_part_is_served_only_where_the_runtime_says_so(tmp_path: Path) -> None:
    """Alone first; then, since it was said in numbers, with the CPU beside it, and the mapping is told as partial."""
    delegate = OnCpu(part=True)
    engine = CompiledEngine(dense(tmp_path), delegate, Opening(threads=2))
    assert [how.alone for how in delegate.asked] == [True, False]
    assert [how.threads for how in delegate.asked] == [2, 2]
    info = engine.info
    assert (info.mapping, info.nodes_delegated, info.nodes_total, info.threads) == ("partial", 1, 2, 2)
    np.testing.assert_allclose(answer(engine, [[1, 2, 3]]), [[4.625, -0.75]])
    engine.close()


@pytest.mark.parametrize(
    ("delegate", "opened", "reason"),
    [
        (OnCpu(part=True, alone=CAUSE), 1, "ROUND: Operation is not supported."),
        (OnCpu(part=True, alone=b""), 1, "Some ops are not accelerated."),
        (OnCpu(part=True, alone=b"0" + PART[1:]), 1, "0 operations will run on the GPU"),
        (OnCpu(part=True, both=b""), 2, "took 1 of 2 ops alone, and does not say so with the CPU beside it"),
    ],
    ids=["says why not", "says nothing", "takes none", "takes nothing beside the CPU"],
)
def test_the_cpu_never_serves_under_another_name(
    tmp_path: Path, delegate: OnCpu, opened: int, reason: str
) -> None:  # fmt: skip
    """With the CPU beside it all of these would open, run, and say that they are fully accelerated."""
    delegate.asked.clear()
    with pytest.raises(RuntimeError) as caught:
        CompiledEngine(dense(tmp_path), delegate)
    assert str(caught.value).startswith(reason)  # without its name: whoever opens it knows that
    assert len(delegate.asked) == opened


def test_damaged_weights_are_used_silently_unless_the_cache_is_checked(tmp_path: Path) -> None:
    """XNNPACK takes its cache file as it lies there: a flipped bit gives wrong numbers; CompileCache throws it away."""
    loaded, cache, key = dense(tmp_path), CompileCache(tmp_path), {"model": "dense"}
    right = tinymodel.dense_expected(np.array([[1, 2, 3]], np.float32))

    def opened(folder: Path | None) -> np.ndarray[Any, Any]:
        engine = CompiledEngine(loaded, OnCpu(part=True), Opening(cache=folder))
        found = answer(engine, [[1, 2, 3]])
        engine.close()
        return found

    folder = cache.prepared(key)
    assert folder is not None
    np.testing.assert_allclose(opened(folder), right)
    assert cache.seal(folder, key)
    kept = (folder / WEIGHTS).read_bytes()
    cache.release(folder)
    folder = cache.prepared(key)
    assert folder is not None
    np.testing.assert_allclose(opened(folder), right)
    assert (folder / WEIGHTS).read_bytes() == kept  # a start that finds it leaves it as it is
    cache.seal(folder, key)
    cache.release(folder)

    at = kept.index(tinymodel.BIAS.tobytes())
    (folder / WEIGHTS).write_bytes(kept[: at + 3] + bytes([kept[at + 3] ^ 8]) + kept[at + 4 :])
    assert not np.allclose(opened(folder), right)
    folder = cache.prepared(key)
    assert folder is not None
    assert cache.discarded == 1
    np.testing.assert_allclose(opened(folder), right)


def _with(loaded: Bundle, model: bytes) -> Bundle:
    return dataclasses.replace(loaded, files={**loaded.files, bundle.MODEL: model})

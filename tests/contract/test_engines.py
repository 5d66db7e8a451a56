"""Every engine, on every TFLite runtime, against the runtime's own bare Interpreter and against numpy.

In this process and in one of its own: what `inputs` and `outputs` mean, and the bits, must not depend on that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import tinymodel

from delegates import registry
from edged import bundle
from edged.bundle import Bundle
from edged.engines import golden, opening
from edged.engines.base import Engine
from edged.engines.candidate import Candidate
from edged.engines.isolated import IsolatedEngine
from edged.engines.tflite import TfliteEngine
from edged.engines.tflite_runtime import Runtime
from edged.errors import BadDataError
from edged.golden import Golden

RANDOM = np.random.default_rng(7)


Open = Callable[[Path], tuple[Engine, Bundle]]
KINDS: dict[str, Callable[[Bundle, Candidate], Engine]] = {"here": opening.open_here, "isolated": IsolatedEngine}


@pytest.fixture(params=KINDS)
def open_engine(request: pytest.FixtureRequest, runtime: Runtime) -> Iterator[Open]:
    """Opens a bundle on the CPU with each kind of engine in turn; closes what was opened."""
    with ExitStack() as stack:

        def open_one(path: Path) -> tuple[Engine, Bundle]:
            read = bundle.read(path)
            return stack.enter_context(closing(KINDS[request.param](read, Candidate(runtime.name)))), read

        yield open_one


def open_here(path: Path, runtime: Runtime) -> tuple[TfliteEngine, Bundle]:
    read = bundle.read(path)
    return TfliteEngine(read, runtime, registry.create("cpu")), read


def bare(runtime: Runtime, model: bytes, inputs: dict[int, np.ndarray[Any, Any]], outputs: list[int]) -> list[Any]:
    """The independent source: set_tensor, invoke, get_tensor on the runtime's own Interpreter."""
    interpreter = runtime.module().Interpreter(model_content=model)
    interpreter.allocate_tensors()
    for index, array in inputs.items():
        interpreter.set_tensor(index, array)
    interpreter.invoke()
    return [interpreter.get_tensor(index) for index in outputs]


def test_float_outputs_equal_the_bare_interpreters(open_engine: Open, runtime: Runtime, tmp_path: Path) -> None:
    """Bit for bit, over many inputs on one engine; and close to numpy's own matrix product."""
    engine, read = open_engine(tinymodel.write_dense_bundle(tmp_path / "b"))
    for _ in range(50):
        x = RANDOM.normal(size=(1, 3)).astype(np.float32)
        engine.inputs[0][...] = x
        engine.invoke()
        expected = bare(runtime, read.model, {0: x}, [3])[0]
        assert engine.outputs[0].tobytes() == expected.tobytes()
        np.testing.assert_allclose(engine.outputs[0], tinymodel.dense_expected(x), rtol=1e-5, atol=1e-6)


def test_inputs_are_the_tensors_memory(runtime: Runtime, tmp_path: Path) -> None:
    """Zero copy: the array a codec writes into lies at the tensor's own address, and does not move with invokes."""
    engine, _ = open_here(tinymodel.write_dense_bundle(tmp_path / "b"), runtime)
    address = engine._interpreter.tensor(0)().ctypes.data
    assert engine.inputs[0].ctypes.data == address
    for _ in range(20):
        engine.invoke()
    assert engine._interpreter.tensor(0)().ctypes.data == address
    assert address % 64 == 0


def test_int8_with_float_clients(open_engine: Open, runtime: Runtime, tmp_path: Path) -> None:
    """io float: quantized by scale and zero point, clipped, and back; the integers equal the bare interpreter's."""
    engine, read = open_engine(tinymodel.write_int8_bundle(tmp_path / "b"))
    real = np.array([[-100.0, -6.56, -0.075, 0.0, 0.024, 0.026, 3.1, 100.0]], np.float32)
    engine.inputs[0][...] = real
    engine.invoke()
    quantized = np.clip(np.round(real / np.float32(0.05)) + 3, -128, 127).astype(np.int8)
    expected = bare(runtime, read.model, {0: quantized}, [1])[0]
    # real = scale (q - zero point), with the scale and zero point that tinymodel wrote into the file.
    by_hand = np.float32(0.1) * (expected.astype(np.float32) - np.float32(3))
    np.testing.assert_array_equal(engine.outputs[0], by_hand)
    assert engine.outputs[0].dtype == np.float32


def test_int8_with_quantized_clients(open_engine: Open, runtime: Runtime, tmp_path: Path) -> None:
    """io quantized: the client's int8 goes in as it is and int8 comes back."""
    engine, read = open_engine(tinymodel.write_int8_bundle(tmp_path / "b", io="quantized"))
    x = RANDOM.integers(-128, 128, size=(1, 8)).astype(np.int8)
    engine.inputs[0][...] = x
    engine.invoke()
    np.testing.assert_array_equal(engine.outputs[0], bare(runtime, read.model, {0: x}, [1])[0])


def test_tensors_are_bound_by_name(open_engine: Open, tmp_path: Path) -> None:
    """b - a is not a - b: the model's tensor order is the reverse of the signature's."""
    engine, _ = open_engine(tinymodel.write_difference_bundle(tmp_path / "b"))
    engine.inputs[0][...], engine.inputs[1][...] = 3, 10  # a, b
    engine.invoke()
    np.testing.assert_array_equal(engine.outputs[0], np.full((1, 4), 7))
    np.testing.assert_array_equal(engine.outputs[1], np.full((1, 4), 13))


def test_nodes_are_counted(open_engine: Open, runtime: Runtime, tmp_path: Path) -> None:
    """XNNPACK takes the one float node on both runtimes; int8 stays with tflite-runtime's own kernels."""
    dense, _ = open_engine(tinymodel.write_dense_bundle(tmp_path / "f"))
    assert (dense.info.nodes_delegated, dense.info.nodes_total) == (1, 1)
    int8, _ = open_engine(tinymodel.write_int8_bundle(tmp_path / "q"))
    assert (int8.info.nodes_delegated, int8.info.nodes_total) == (1 if "litert" in runtime.name else 0, 1)


def test_the_reference_resolver_leaves_xnnpack_out(runtime: Runtime, tmp_path: Path) -> None:
    """`xnnpack: false` really delegates nothing."""
    read = bundle.read(tinymodel.write_dense_bundle(tmp_path / "b"))
    engine = TfliteEngine(read, runtime, registry.create("cpu", {"xnnpack": False}))
    assert engine.info.nodes_delegated == 0


def test_a_bundle_that_lies_about_its_model_is_refused(open_engine: Open, tmp_path: Path) -> None:
    """Shape, dtype and name are checked against the tensors before anything runs."""
    model = tinymodel.dense_model()
    for number, wrong in enumerate((
        tinymodel.spec("x", (1, 4)), tinymodel.spec("x", (1, 3), "int8"), tinymodel.spec("other", (1, 3)),
    )):  # fmt: skip
        manifest = bundle.Manifest(1, "b", 1, {}, "serving_default", (wrong,), (tinymodel.spec("y", (1, 2)),))
        bundle.write(tmp_path / str(number), manifest, {bundle.MODEL: model})
        with pytest.raises(BadDataError):
            open_engine(tmp_path / str(number))


def test_golden_agreement_and_disagreement(open_engine: Open, tmp_path: Path) -> None:
    """Right samples agree; samples off by one are told with output and figure."""
    engine, read = open_engine(tinymodel.write_dense_bundle(tmp_path / "good"))
    samples = read.golden()
    assert samples is not None
    assert golden.disagreement(engine, read, samples) is None
    engine, read = open_engine(tinymodel.write_dense_bundle(tmp_path / "bad", wrong_golden=True))
    samples = read.golden()
    assert samples is not None
    wrong = golden.disagreement(engine, read, samples)
    assert wrong is not None
    assert "output 'y': off by 1" in wrong


def test_a_nan_output_disagrees(open_engine: Open, tmp_path: Path) -> None:
    """NaN compares false with everything, and must not pass for that."""
    engine, read = open_engine(tinymodel.write_dense_bundle(tmp_path / "b"))
    nan = np.full((1, 1, 2), np.nan, np.float32)
    samples = Golden({"x": np.full((1, 1, 3), np.nan, np.float32)}, {"y": nan}, {"y": nan}, {"y": 1e9})
    assert golden.disagreement(engine, read, samples) is not None


def test_close_lets_go_of_the_memory(runtime: Runtime, tmp_path: Path) -> None:
    """100 engines opened and closed leave no interpreter alive."""
    import gc
    import weakref

    path, alive = tinymodel.write_dense_bundle(tmp_path / "b"), []
    for _ in range(100):
        engine, _ = open_here(path, runtime)
        alive.append(weakref.ref(engine._interpreter))
        engine.close()
    gc.collect()
    assert sum(ref() is not None for ref in alive) == 0


def test_fresh_inputs_are_zero(open_engine: Open, tmp_path: Path) -> None:
    """A warm-up before the first request must not run on whatever lay in that memory."""
    for _ in range(4):
        engine, _read = open_engine(tinymodel.write_dense_bundle(tmp_path / f"b{_}"))
        assert not engine.inputs[0].any()
        engine.inputs[0][...] = 7


def test_a_bundle_must_declare_all_the_model_has(open_engine: Open, tmp_path: Path) -> None:
    """An input left out would hold anything; an output left out would not be checked."""
    a, b = tinymodel.spec("a", (1, 4)), tinymodel.spec("b", (1, 4))
    z, s = tinymodel.spec("z_diff", (1, 4)), tinymodel.spec("a_sum", (1, 4))
    for number, (ins, outs) in enumerate((((a,), (z, s)), ((a, b), (z,)))):
        manifest = bundle.Manifest(1, "b", 1, {}, "serving_default", ins, outs)
        bundle.write(tmp_path / str(number), manifest, {bundle.MODEL: tinymodel.difference_model()})
        with pytest.raises(BadDataError, match="leaves out"):
            open_engine(tmp_path / str(number))


def test_tensors_that_move_in_the_middle_of_an_invoke(open_engine: Open, tmp_path: Path) -> None:
    """A size that is known only at run time makes the runtime plan its memory anew; the arrays stay where they are."""
    engine, _ = open_engine(tinymodel.write_counting_bundle(tmp_path / "b"))
    x, count, double = engine.inputs[0], *engine.outputs
    for value in ([0, 0, 0, 0], [1, 0, 2, 0], [1, 2, 3, 4], [0, 0, 0, 5]):
        x[...] = value
        engine.invoke()
        assert count.tolist() == [np.count_nonzero(value), 2]
        np.testing.assert_array_equal(double, [2 * np.array(value)])


def test_idle_leaves_it_fit(open_engine: Open, tmp_path: Path) -> None:
    """Between two requests, as often as one likes; the next answer is that of its own inputs."""
    engine, _ = open_engine(tinymodel.write_dense_bundle(tmp_path / "b"))
    x = RANDOM.normal(size=(1, 3)).astype(np.float32)
    for _ in range(3):
        engine.idle()
        engine.inputs[0][...] = x
        engine.invoke()
        np.testing.assert_allclose(engine.outputs[0], tinymodel.dense_expected(x), rtol=1e-5, atol=1e-6)


def test_inputs_are_kept_by_an_invoke(open_engine: Open, tmp_path: Path) -> None:
    """Whoever answers in its place needs them."""
    engine, _ = open_engine(tinymodel.write_difference_bundle(tmp_path / "b"))
    engine.inputs[0][...], engine.inputs[1][...] = 3, 10
    for _ in range(3):
        engine.invoke()
    assert [array.tolist() for array in engine.inputs] == [[[3] * 4], [[10] * 4]]


def test_what_serves_is_told(open_engine: Open, runtime: Runtime, tmp_path: Path) -> None:
    """Runtime and version, delegate, threads, and how much of the graph it took."""
    engine, _ = open_engine(tinymodel.write_difference_bundle(tmp_path / "b"))
    info = engine.info
    assert (info.runtime, info.delegate, info.threads) == (f"{runtime.name} {runtime.version}", "cpu", 1)
    assert (info.nodes_delegated, info.nodes_total, info.mapping) == (2, 2, "full")
    assert (info.degraded, info.failovers, info.returns) == ("", 0, 0)
    partly, _ = open_engine(tinymodel.write_counting_bundle(tmp_path / "c"))
    assert partly.info.mapping == "partial"

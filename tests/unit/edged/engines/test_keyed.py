"""One interpreter for each key: answers are those of separate interpreters, and state is bounded and forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import tflitefiles, tinymodel

from delegates.cpu import Cpu
from edged import bundle, memory
from edged.bundle import Bundle, Manifest
from edged.engines import tflite_runtime
from edged.engines.base import Engine
from edged.engines.keyed import KeyedEngine
from edged.engines.tflite import TfliteEngine
from edged.engines.tflite_runtime import Runtime


@pytest.fixture(params=["ai-edge-litert", "tflite-runtime"])
def runtime(request: pytest.FixtureRequest) -> Runtime:
    return tinymodel.require_runtime(request.param)


def tensor_state(folder: Path) -> Bundle:
    """State in a variable tensor (SVDF)."""
    return bundle.read(tinymodel.write_memory_bundle(folder / "memory"))


def resource_state(folder: Path) -> Bundle:
    """State in a resource variable (VAR_HANDLE), converted from TensorFlow: a running sum."""
    specs = (tinymodel.spec("v", (1, 3)),), (tinymodel.spec("sum", (1, 3)),)
    manifest = Manifest(1, "count", 1, {}, "count", *specs, stateful=True)
    bundle.write(folder / "count", manifest, {bundle.MODEL: tflitefiles.converted("count")})
    return bundle.read(folder / "count")


class Bare:
    """What the runtime itself answers, an interpreter for each key."""

    def __init__(self, loaded: Bundle, runtime: Runtime) -> None:
        self._loaded, self._runtime = loaded, runtime
        self._of: dict[str, Any] = {}

    def step(self, key: str, x: Any) -> Any:
        if key not in self._of:
            made = self._runtime.module().Interpreter(model_content=self._loaded.model, num_threads=1)
            made.allocate_tensors()
            self._of[key] = made
        made = self._of[key]
        made.set_tensor(made.get_input_details()[0]["index"], x)
        made.invoke()
        return made.get_tensor(made.get_output_details()[0]["index"])


def step(engine: KeyedEngine, key: str, x: Any) -> Any:
    engine.turn(key)
    engine.inputs[0][...] = x
    engine.invoke()
    return engine.outputs[0].copy()


@pytest.mark.parametrize("make", [tensor_state, pytest.param(resource_state, marks=pytest.mark.tf)])
def test_interleaved_keys_answer_as_separate_interpreters(
    make: Callable[[Path], Bundle], runtime: Runtime, tmp_path: Path
) -> None:
    """Three keys in turn at random, over golden samples and warm-up before and idle calls between: bit for bit."""
    loaded = make(tmp_path)
    engine = KeyedEngine(lambda: TfliteEngine(loaded, runtime, Cpu()), 8, 1, lambda: None)
    for _ in range(3):  # the warm-up, on data that would show
        engine.inputs[0][...] = 7
        engine.invoke()
    engine.begin()
    bare, rng = Bare(loaded, runtime), np.random.default_rng(5)
    for _ in range(60):
        key, x = f"c/{rng.integers(3)}", rng.normal(size=(1, 3)).astype(np.float32)
        assert step(engine, key, x).tobytes() == bare.step(key, x).tobytes()
        if rng.random() < 0.3:
            engine.idle()
    assert (engine.keys, engine.steps, engine.evicted) == (3, 60, 0)
    engine.close()


@pytest.mark.parametrize("make", [tensor_state, pytest.param(resource_state, marks=pytest.mark.tf)])
def test_reset_is_the_first_state_again(make: Callable[[Path], Bundle], runtime: Runtime, tmp_path: Path) -> None:
    """One key begins anew and answers as it first did; the other goes on."""
    loaded = make(tmp_path)
    engine = KeyedEngine(lambda: TfliteEngine(loaded, runtime, Cpu()), 8, 0, lambda: None)
    engine.begin()
    x = np.array([[1.0, 2.0, 3.0]], np.float32)
    first, second = step(engine, "c/a", x), step(engine, "c/a", x)
    step(engine, "c/b", x)
    assert first.tobytes() != second.tobytes()
    assert engine.reset("c/a") == 1
    assert step(engine, "c/a", x).tobytes() == first.tobytes()
    assert step(engine, "c/b", x).tobytes() == second.tobytes()
    assert engine.reset(None) == 2
    assert (engine.keys, engine.resets) == (0, 3)
    engine.close()


def test_a_numpy_recurrence_says_the_same(runtime: Runtime, tmp_path: Path) -> None:
    """The memory model's answers over ten steps are those of its formula."""
    loaded = tensor_state(tmp_path)
    engine = KeyedEngine(lambda: TfliteEngine(loaded, runtime, Cpu()), 8, 0, lambda: None)
    steps = np.random.default_rng(1).normal(size=(10, 3)).astype(np.float32)
    answers = np.concatenate([step(engine, "c/a", x[None]) for x in steps])
    np.testing.assert_allclose(answers, tinymodel.memory_expected(steps), rtol=1e-5, atol=1e-6)
    engine.close()


class Sum:
    """A running sum, without any runtime."""

    made: int = 0
    living: int = 0
    raises: Exception | None = None

    def __init__(self) -> None:
        Sum.made += 1
        Sum.living += 1
        self.info, self.total = tflite_info(), 0.0
        self.inputs, self.outputs = [np.zeros((1, 1), np.float32)], [np.zeros((1, 1), np.float32)]

    def invoke(self) -> None:
        if Sum.raises is not None:
            raise Sum.raises
        self.total += float(self.inputs[0][0, 0])
        self.outputs[0][...] = self.total

    def idle(self) -> None:
        self.invoke()

    def close(self) -> None:
        Sum.living -= 1


def tflite_info() -> Any:
    from edged.engines.base import EngineInfo

    return EngineInfo("none", "cpu", 1)


@pytest.fixture
def sums() -> Iterator[Callable[..., KeyedEngine]]:
    Sum.made = Sum.living = 0
    Sum.raises = None
    engines: list[KeyedEngine] = []

    def make(max_keys: int = 4, ahead: int = 1, nudge: Callable[[], None] = lambda: None) -> KeyedEngine:
        opener: Callable[[], Engine] = Sum
        engine = KeyedEngine(opener, max_keys, ahead, nudge)
        engine.begin()
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        engine.close()
    assert Sum.living == 0


def add(engine: KeyedEngine, key: str, value: float = 1.0) -> float:
    return float(step(engine, key, value)[0, 0])


def test_a_new_key_takes_what_was_made_ahead(sums: Callable[..., KeyedEngine]) -> None:
    """Nothing is made in a new key's own turn; the next spare is asked for, and made in `idle`, one a call."""
    nudges: list[int] = []
    engine = sums(8, 2, lambda: nudges.append(1))
    made = Sum.made
    add(engine, "c/a")
    add(engine, "c/b")
    assert (Sum.made, engine.spare, len(nudges)) == (made, 0, 2)
    engine.idle()
    assert (Sum.made, engine.spare, len(nudges)) == (made + 1, 1, 3)
    engine.idle()
    assert (Sum.made, engine.spare, len(nudges)) == (made + 2, 2, 3)
    assert (add(engine, "c/a"), add(engine, "c/b")) == (2.0, 2.0)
    assert len(nudges) == 3


def test_a_key_with_no_spare_left_is_served_all_the_same(sums: Callable[..., KeyedEngine]) -> None:
    """It pays for its own construction."""
    engine = sums(8, 1)
    assert [add(engine, f"c/{n}") for n in range(4)] == [1.0] * 4


def test_the_one_silent_longest_makes_room(sums: Callable[..., KeyedEngine]) -> None:
    """Of owners with one key each: by last use, not by age; interpreters in all stay bounded."""
    engine = sums(3, 0)
    for key in ("c/a", "c/b", "c/c", "c/a", "c/d"):
        add(engine, key)
    assert (engine.keys, engine.evicted) == (3, 1)
    assert add(engine, "c/a") == 3.0
    assert add(engine, "c/d") == 2.0
    assert add(engine, "c/b") == 1.0  # it began anew
    engine.idle()
    assert Sum.living == 4  # three keys, and nobody's


def test_who_invents_keys_pushes_out_its_own(sums: Callable[..., KeyedEngine]) -> None:
    """A hundred keys of one user leave another user's and a stream's state alone, though these were silent longest."""
    engine = sums(5, 0)
    add(engine, "c/quiet")
    add(engine, "out/imu/left")
    for number in range(100):
        add(engine, f"c/noisy/{number}")
    assert add(engine, "c/quiet") == 2.0
    assert add(engine, "out/imu/left") == 2.0
    assert engine.keys == 5


def test_reset_reaches_what_lies_below(sums: Callable[..., KeyedEngine]) -> None:
    """A user with all its own keys, and no user whose name begins alike."""
    engine = sums(8, 0)
    for key in ("c/al", "c/al/1", "c/al/2", "c/alice"):
        add(engine, key)
    assert engine.reset("c/al") == 3
    assert engine.reset("c/nobody") == 0
    assert add(engine, "c/alice") == 2.0
    assert add(engine, "c/al/1") == 1.0


def test_a_failure_in_the_middle_leaves_no_unknown_state(sums: Callable[..., KeyedEngine]) -> None:
    """The key begins anew, counted, and the error says so; other keys go on."""
    engine = sums(8, 0)
    add(engine, "c/a")
    add(engine, "c/b")
    Sum.raises = RuntimeError("node 3 failed")
    with pytest.raises(RuntimeError, match=r"node 3 failed \(the state begins anew\)"):
        add(engine, "c/a")
    Sum.raises = None
    assert (add(engine, "c/a"), add(engine, "c/b")) == (1.0, 2.0)
    assert engine.broken == 1
    assert engine.steps == 4


def test_what_is_reset_while_it_is_in_use_is_closed_later(sums: Callable[..., KeyedEngine]) -> None:
    """Another thread's reset between two calls of one turn: the turn ends on what it began with."""
    engine = sums(8, 0)
    engine.turn("c/a")
    living = Sum.living
    assert engine.reset("c/a") == 1
    assert Sum.living == living
    engine.inputs[0][...] = 5
    engine.invoke()
    assert engine.outputs[0][0, 0] == 5
    assert add(engine, "c/a") == 1.0
    assert Sum.living == living


def test_memory_of_a_key_is_told(tmp_path: Path, runtime: Runtime) -> None:
    """A model of four megabytes of tensors costs about that much for each key, also where a heap has free room."""
    if memory.allocated() is None:
        pytest.skip("this C library does not tell what is allocated")
    loaded = bundle.read(tinymodel.write_add_bundle(tmp_path / "add", 1 << 19))
    for _ in range(2):
        engine = KeyedEngine(lambda: TfliteEngine(loaded, runtime, Cpu()), 4, 0, lambda: None)
        engine.invoke()
        engine.begin()
        assert engine.bytes_each is not None
        assert 4 << 20 <= engine.bytes_each < 8 << 20
        assert engine.made_ns > 0
        engine.close()


@pytest.mark.tf
def test_the_runtimes_themselves_do_not_set_back(runtime: Runtime) -> None:
    """Why state begins with a new interpreter: `reset_all_variables` leaves a resource variable as it is."""
    made = tflite_runtime.by_name(runtime.name).module().Interpreter(model_content=tflitefiles.converted("count"))
    made.allocate_tensors()
    index, out = made.get_input_details()[0]["index"], made.get_output_details()[0]["index"]
    for _ in range(2):
        made.set_tensor(index, np.ones((1, 3), np.float32))
        made.invoke()
        made.reset_all_variables()
    assert made.get_tensor(out)[0, 0] == 2.0

"""A damaged compile cache is a real danger (with the test delegate, in each runtime), and none once verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import delegates

from edged.compilecache import CompileCache
from edged.engines.tflite_runtime import Runtime

KEY = {"model": "ab12"}
X = np.linspace(-1, 1, delegates.SIZE, dtype=np.float32).reshape(1, -1)


def answered(runtime: Runtime, cache: Path) -> tuple[np.ndarray[Any, Any], str]:
    """Return the answer of the test delegate with a cache, and whether it hit."""
    module, log = runtime.module(), cache.parent / "delegate.log"
    delegate = module.load_delegate(str(delegates.library()), {"cache": str(cache), "log": str(log)})
    interpreter = module.Interpreter(model_content=delegates.adder_model(), experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], X)
    interpreter.invoke()
    told = [line for line in log.read_text().splitlines() if line.startswith("cache")][-1]
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"]), told


@pytest.fixture
def compiled(tmp_path: Path, runtime: Runtime) -> Path:
    """A directory that the delegate filled, sealed, in which one bit was then flipped."""
    cache = CompileCache(tmp_path)
    path = cache.prepared(KEY)
    assert path is not None
    y, told = answered(runtime, path)
    assert (y.tolist(), told) == (delegates.adder_expected(X).tolist(), "cache miss")
    assert cache.seal(path, KEY)
    cache.release(path)
    data = bytearray((path / "compiled.bin").read_bytes())
    data[8] ^= 1
    (path / "compiled.bin").write_bytes(data)
    return path


def test_unverified_a_flipped_bit_gives_wrong_numbers(compiled: Path, runtime: Runtime) -> None:
    """The danger is real: the delegate says hit, and nothing else."""
    y, told = answered(runtime, compiled)
    assert told == "cache hit"
    assert not np.allclose(y, delegates.adder_expected(X), atol=0.1)


def test_verified_a_flipped_bit_costs_a_compilation(compiled: Path, runtime: Runtime, tmp_path: Path) -> None:
    """Through the cache the answer is right; sealed again, the next start hits and is right too."""
    for wanted in ("cache miss", "cache hit"):
        cache = CompileCache(tmp_path)
        path = cache.prepared(KEY)
        assert path == compiled
        y, told = answered(runtime, path)
        assert (y.tolist(), told) == (delegates.adder_expected(X).tolist(), wanted)
        assert cache.seal(path, KEY)
        assert cache.discarded == (1 if wanted == "cache miss" else 0)
        cache.release(path)

"""The mixed-precision search on real models, with TensorFlow, its quantizer and the installed runtimes.

`scaled`: x[1, 16] whose first numbers are a thousand times larger than the last, a product that makes them alike, tanh
and two dense layers. One int8 scale for x loses the small numbers, so the product must read float; nothing else must.
`split`: the same, with the halves of x scaled behind a split, whose op has two outputs.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import require

from edged.engines import op_versions, tflite_file
from edged.engines.tflite_file import ModelFile
from edged.engines.tflite_runtime import Runtime

_ROOT = Path(__file__).resolve().parent.parent.parent
_ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1", "TF_ENABLE_ONEDNN_OPTS": "0"}

_WORK = """
import dataclasses, json, sys
from pathlib import Path
import numpy as np, tensorflow as tf
from converters import loadtest, mixed, mixed_halves, savedmodel
from converters.compat import CompatFlags
from converters.judge import Evaluation, Judge
from converters.options import Options
from converters.samples import Samples

out = Path(sys.argv[1])
r = np.random.default_rng(0)
scale = np.repeat(np.float32([1000, 1]), 8)
w1, w2 = (r.standard_normal(shape).astype(np.float32) / 4 for shape in ((16, 64), (64, 8)))
big = r.standard_normal((64, 64)).astype(np.float32) / 8
np.savez(out / "weights.npz", w1=w1, w2=w2, scale=scale, big=big)

class Model(tf.Module):
    def __init__(self):
        self.w1, self.w2, self.big = tf.Variable(w1), tf.Variable(w2), tf.Variable(big)

    @tf.function(input_signature=[tf.TensorSpec([1, 16], tf.float32, name="x")])
    def scaled(self, x):
        return {"y": tf.nn.relu(tf.tanh(x * (1 / scale)) @ self.w1) @ self.w2}

    @tf.function(input_signature=[tf.TensorSpec([1, 16], tf.float32, name="x")])
    def split(self, x):
        a, b = tf.split(x * 1.5, 2, axis=1)
        return {"y": tf.nn.relu(tf.tanh(tf.concat([a / 1000.0, b], 1)) @ self.w1) @ self.w2}

    @tf.function(input_signature=[tf.TensorSpec([1, 64], tf.float32, name="x")])
    def plain(self, x):
        return {"y": tf.nn.relu(x @ self.big) @ (self.big * 1e-9)}

model = Model()
x = (r.standard_normal((60, 1, 16)) * scale).astype(np.float32)
results = {}
for name, budgets in (("scaled", (20, 20, 1)), ("split", (20,))):
    tf.saved_model.save(model, str(out / name), signatures=getattr(model, name))
    for run, budget in enumerate(budgets):
        folder = out / f"{name}_{run}"
        (folder / "mixed").mkdir(parents=True)
        options = Options(
            model=out / name,
            output=out / "b",
            name="n",
            version=1,
            quantize="mixed",
            calibration="c",
            search_budget=budget,
        )
        loaded = savedmodel.load(options, folder)
        held = x[40:]
        floats = {"y": np.stack([loaded({"x": a})["y"] for a in held])}
        loadtest.save(folder / "inputs.npz", {"x": held})
        judge = Judge(Evaluation({"x": held}, floats), options)
        stages = []
        samples = Samples("c", {"x": x[:40]})
        made, search = mixed.search(
            loaded, options, samples=samples, judge=judge, inputs=folder / "inputs.npz", folder=folder / "mixed",
            on_stage=stages.append, flags=CompatFlags(), runtimes=(),
        )
        (out / f"{name}_{run}.tflite").write_bytes(made)
        results[f"{name}_{run}"] = {"search": dataclasses.asdict(search), "stages": stages}
converter = tf.lite.TFLiteConverter.from_concrete_functions([model.plain.get_concrete_function()], model)
(out / "plain.tflite").write_bytes(converter.convert())
(out / "halved.tflite").write_bytes(mixed_halves.halve((out / "plain.tflite").read_bytes()))
(out / "results.json").write_text(json.dumps(results))
"""


@functools.cache
def _made() -> tuple[Path, dict[str, Any]]:
    """Search once for all tests; TensorFlow stays in a child."""
    require.packages("tensorflow")
    out = Path(tempfile.mkdtemp(prefix="edged-mixed-"))
    atexit.register(shutil.rmtree, out, ignore_errors=True)
    environment = {**os.environ, **_ENVIRONMENT, "PYTHONPATH": str(_ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", _WORK, str(out)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return out, json.loads((out / "results.json").read_text())


def _file(name: str) -> ModelFile:
    return tflite_file.read((_made()[0] / f"{name}.tflite").read_bytes())


def _answers(runtime: Runtime, name: str, samples: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What the bare interpreter makes of samples [n, 1, width]."""
    interpreter = importlib.import_module(f"{runtime.package}.interpreter").Interpreter
    runner = interpreter(model_content=(_made()[0] / f"{name}.tflite").read_bytes())
    runner.allocate_tensors()
    (given,), (found,) = runner.get_input_details(), runner.get_output_details()
    answers = []
    for sample in samples:
        runner.set_tensor(given["index"], sample)
        runner.invoke()
        answers.append(runner.get_tensor(found["index"]).copy())
    return np.stack(answers)


def _expected(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    with np.load(_made()[0] / "weights.npz") as w:
        return np.maximum(np.tanh(x / w["scale"]) @ w["w1"], 0) @ w["w2"]


def _x(count: int) -> np.ndarray[Any, Any]:
    scale = np.repeat(np.float32([1000, 1]), 8)
    return (np.random.default_rng(7).standard_normal((count, 1, 16)) * scale).astype(np.float32)


def test_the_layer_that_int8_ruins_is_kept_float_and_named() -> None:
    """The product comes first in the table, is float, and is the only one; int8 alone fails, the result passes."""
    search = _made()[1]["scaled_0"]["search"]
    costs = search["costs"]
    others = [cost["op"] for cost in costs[1:]]
    assert [(cost["op"], cost["kept_float"]) for cost in costs] == [
        ("MUL", True),
        *[(op, False) for op in others],
    ]
    assert sorted(others) == ["FULLY_CONNECTED", "FULLY_CONNECTED", "TANH"]
    assert costs[0]["gained"] > 10 * max(cost["gained"] for cost in costs[1:])
    assert search["uniform"] < 0 <= search["final"]
    assert search["tried"] <= search["budget"] == 20


def test_the_file_is_what_the_table_says() -> None:
    """The bytes themselves: the product reads float32, both dense layers int8; inputs and outputs are float32."""
    (graph,) = _file("scaled_0").graphs
    dtypes = {op.name: {graph.tensors[i].dtype for i in op.inputs[:2]} for op in graph.ops}
    assert dtypes["MUL"] == {"float32"}
    assert dtypes["FULLY_CONNECTED"] == {"int8"}
    assert {graph.tensors[i].dtype for i in (*graph.inputs, *graph.outputs)} == {"float32"}


def test_the_file_answers_as_the_float_model_on_both_runtimes(runtime: Runtime) -> None:
    """Against numpy: within 5 % of the largest value, where int8 for every layer is off by more than a third."""
    x = _x(30)
    expected = _expected(x)
    uniform, mixed = (np.abs(_answers(runtime, name, x) - expected).max() for name in ("scaled_2", "scaled_0"))
    assert mixed < 0.05 * np.abs(expected).max()
    assert uniform > 0.33 * np.abs(expected).max()


def test_a_spent_budget_gives_the_best_so_far() -> None:
    """One try is every layer int8: it comes back though it fails, with nothing kept float, for others to refuse."""
    search = _made()[1]["scaled_2"]["search"]
    assert (search["tried"], search["costs"]) == (1, [])
    assert search["final"] == search["uniform"] < 0


def test_two_searches_give_the_same_bytes() -> None:
    """The same SavedModel, samples and flags: byte for byte the same file and the same table."""
    out, results = _made()
    assert (out / "scaled_0.tflite").read_bytes() == (out / "scaled_1.tflite").read_bytes()
    assert results["scaled_0"] == results["scaled_1"]


def test_an_op_with_two_outputs_is_kept_float_too(runtime: Runtime) -> None:
    """The quantizer knows no name for a split; left int8 between float layers it would lose the small numbers."""
    (graph,) = _file("split_0").graphs
    (split,) = (op for op in graph.ops if op.name.startswith("SPLIT"))
    assert {graph.tensors[i].dtype for i in split.outputs} == {"float32"}
    x = _x(30)
    expected = _expected(1.5 * x)
    assert np.abs(_answers(runtime, "split_0", x) - expected).max() < 0.1 * np.abs(expected).max()


def test_every_try_is_told() -> None:
    """A person sees how far the search is, and the smallest file that passes so far."""
    told = _made()[1]["scaled_0"]
    counted = [stage for stage in told["stages"] if "tried" in stage]
    assert counted[0].startswith("searching mixed precision: 1 of 20 tried, none passes yet")
    assert counted[-1].endswith(f"smallest that passes {(_made()[0] / 'scaled_0.tflite').stat().st_size:,} bytes")


def test_large_float_constants_are_stored_as_float16(runtime: Runtime) -> None:
    """A matrix of 16 KiB takes 8, and the answer keeps 11 bits; one too small for float16 stays float32."""
    dtypes = sorted(t.dtype for t in _file("halved").graphs[0].tensors if len(t.data) >= 4096)
    assert dtypes == ["float16", "float32"]
    x = np.random.default_rng(3).standard_normal((5, 1, 64)).astype(np.float32)
    whole, half = (_answers(runtime, name, x) for name in ("plain", "halved"))
    assert 0 < np.abs(half - whole).max() < 2e-3 * np.abs(whole).max()


def test_constants_keep_the_alignment_of_the_format() -> None:
    """Vector units of devices read 16 bytes at once: every constant of 16 bytes and more begins at a multiple of 16."""
    model = (_made()[0] / "halved.tflite").read_bytes()
    found = [t.data for t in tflite_file.read(model).graphs[0].tensors if len(t.data) >= 16]
    assert len(found) >= 2
    assert {model.index(data) % 16 for data in found} == {0}


@pytest.mark.parametrize("name", ["scaled_0", "halved"])
def test_no_op_is_too_new_for_the_older_runtime(name: str) -> None:
    """Every version that is written is in the measured table of tflite-runtime 2.14.0."""
    file = _file(name)
    assert {"DEQUANTIZE", "FULLY_CONNECTED"} <= set(file.versions)
    assert op_versions.missing(file.versions, (), "tflite-runtime 2.14.0") == ()

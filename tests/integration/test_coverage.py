"""Coverage of real models on real runtimes, against counts read from a bare Interpreter and from the vendor's compiler.

A small MobileNet-like network in five modes, and a graph with two ops in its middle that XNNPACK lacks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import require

from converters import coverage
from edged.engines import tflite_coverage, tflite_partitions, tflite_runtime
from edged.engines.tflite_coverage import Coverage, Refusal
from edged.limits import Limits

_MAKE = """
import sys, numpy as np, tensorflow as tf, keras
out = sys.argv[1]
keras.utils.set_random_seed(0)
L = keras.layers

def block(x, filters):
    y = L.Conv2D(2 * filters, 1, activation="relu6")(x)
    y = L.DepthwiseConv2D(3, padding="same", activation="relu6")(y)
    y = L.Conv2D(filters, 1)(y)
    return L.Add()([x, y]) if x.shape[-1] == filters else y

x = first = keras.Input((16, 16, 3), batch_size=1)
x = L.Conv2D(8, 3, strides=2, padding="same", activation="relu")(x)
for filters in (8, 16, 16):
    x = block(x, filters)
x = L.GlobalAveragePooling2D()(x)
x = L.Dense(10, activation="softmax")(L.Dense(64, activation="relu")(x))
keras.Model(first, x).export(
    out + "/net", input_signature=[tf.TensorSpec((1, 16, 16, 3), tf.float32, name="x")], verbose=False
)

class Two(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec((1, 8, 8, 4), tf.float32, name="x")])
    def run(self, x):
        a = tf.nn.relu(x * 2.0) + 1.0
        b = tf.sqrt(tf.square(tf.cumsum(a, 1)) + 1.0)
        d = tf.sigmoid(a) + b
        return {"o": tf.nn.softmax(tf.cumsum(d, 2) * 3.0), "p": tf.abs(d)}

two = Two()
tf.saved_model.save(two, out + "/two", signatures=two.run)
sets = tf.lite.OpsSet
random = np.random.RandomState(0)
samples = [[random.rand(1, 16, 16, 3).astype(np.float32)] for _ in range(4)]

def convert(name, mode):
    c = tf.lite.TFLiteConverter.from_saved_model(f"{out}/{name}")
    if mode != "none":
        c.optimizations = [tf.lite.Optimize.DEFAULT]
    if mode == "dynamic":
        c._experimental_disable_per_channel_quantization_for_dense_layers = True
    if mode in ("int8", "int16x8"):
        c.representative_dataset = lambda: samples
        wide = sets.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
        c.target_spec.supported_ops = [sets.TFLITE_BUILTINS_INT8 if mode == "int8" else wide]
    open(f"{out}/{name}_{mode}.tflite", "wb").write(c.convert())

for mode in ("none", "dynamic", "int8", "int16x8"):
    convert("net", mode)
convert("two", "none")
"""

# What a bare Interpreter of that runtime lists: nothing of ours is imported.
_BARE = """
import importlib, json, sys
model = importlib.import_module(sys.argv[1] + ".interpreter").Interpreter(model_path=sys.argv[2])
model.allocate_tensors()
names = [node["op_name"] for node in model._get_ops_details()]
json.dump({"ops": len([n for n in names if n != "DELEGATE"]), "pieces": names.count("DELEGATE")}, sys.stdout)
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the models once, in a child: TensorFlow never enters this process."""
    require.packages("tensorflow")
    require.any_runtime()
    out = tmp_path_factory.mktemp("coverage")
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(
        [sys.executable, "-c", _MAKE, str(out)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return out


@pytest.fixture(scope="module")
def found(models: Path) -> dict[str, dict[str, Coverage]]:
    """Model → runtime → what is measured."""
    return {
        path.stem: {row.source.split()[0]: row for row in _measured(path)} for path in sorted(models.glob("*.tflite"))
    }


def left(row: Coverage) -> set[str]:
    return {refusal.op for refusal in row.refused}


@pytest.mark.parametrize("name", ["net_none", "net_dynamic", "net_int8", "net_int16x8", "two_none"])
@pytest.mark.parametrize("runtime", tflite_runtime.RUNTIMES, ids=lambda runtime: runtime.name)
def test_counts_are_those_of_a_bare_interpreter(
    name: str, runtime: tflite_runtime.Runtime, models: Path, found: dict[str, dict[str, Coverage]]
) -> None:
    """As many partitions as DELEGATE nodes, as many ops as the runtime lists."""
    require.packages(runtime.package)
    done = subprocess.run(
        [sys.executable, "-c", _BARE, runtime.package, str(models / f"{name}.tflite")], capture_output=True, check=True
    )
    bare, row = json.loads(done.stdout), found[name][runtime.name]
    assert (row.how, row.reason) == ("measured", "")
    assert (row.total, row.partitions) == (bare["ops"], bare["pieces"])
    assert row.taken == sum(number >= 0 for number in row.partition)
    assert set(row.partition) - {-1} == set(range(bare["pieces"]))
    assert row.taken + sum(refusal.count for refusal in row.refused) == row.total


def test_what_is_published_of_xnnpack(found: dict[str, dict[str, Coverage]]) -> None:
    """Float: all ops in both runtimes; int16x8: none; int8: none in tflite-runtime's wheel, nearly all in LiteRT."""
    require.packages("tflite_runtime", "ai_edge_litert")
    for runtime in ("tflite-runtime", "ai-edge-litert"):
        assert found["net_none"][runtime].refused == ()
        assert found["net_none"][runtime].partitions == 1
        assert found["net_int16x8"][runtime].taken == 0
        assert set(found["net_int16x8"][runtime].partition) == {-1}
    assert found["net_int8"]["tflite-runtime"].taken == 0
    assert left(found["net_int8"]["ai-edge-litert"]) <= {"SOFTMAX", "MEAN"}
    assert "FULLY_CONNECTED" in left(found["net_dynamic"]["tflite-runtime"])
    assert found["net_dynamic"]["ai-edge-litert"].refused == ()


def test_the_ops_in_the_middle_break_the_graph(found: dict[str, dict[str, Coverage]], models: Path) -> None:
    """CUMSUM twice: three pieces. What waits for no CUMSUM stands in the first, whatever its place in the file."""
    ops = coverage.read(models / "two_none.tflite").graphs[0].ops
    for row in found["two_none"].values():
        assert row.refused == (Refusal("CUMSUM", 2),)
        place = {op.name: number for op, number in zip(ops, row.partition, strict=True)}
        assert (place["LOGISTIC"], place["ABS"], place["SOFTMAX"], place["CUMSUM"]) == (0, 1, 2, -1)


def test_the_rule_cuts_as_the_runtimes_do(found: dict[str, dict[str, Coverage]], models: Path) -> None:
    """From the set of ops that a runtime took, the rule gives its very partitions."""
    for name, rows in found.items():
        main = coverage.read(models / f"{name}.tflite").graphs[0]
        for row in rows.values():
            assert tflite_partitions.cut(main, [number >= 0 for number in row.partition]) == row.partition


@pytest.mark.parametrize(
    ("name", "cpu"),
    [("net_int8", {"QUANTIZE", "DEQUANTIZE"}), ("net_int16x8", {"QUANTIZE", "DEQUANTIZE"}), ("net_none", None)],
)
def test_ethos_u_as_its_compiler_does(name: str, cpu: set[str] | None, models: Path) -> None:
    """Vela 5.2.0 run on these networks made one NPU op and left these to the CPU; of the float one it took nothing."""
    rows = {row.delegate: row for row in tflite_coverage.documented(coverage.read(models / f"{name}.tflite"))}
    row = rows["ethos_u"]
    assert (row.partitions, row.taken > 0) == ((0, False) if cpu is None else (1, True))
    assert cpu is None or left(row) == cpu


def test_a_model_that_a_runtime_refuses(tmp_path: Path, models: Path) -> None:
    """A custom op that nobody has: a row with the runtime's own words, and no partition."""
    require.packages("ai_edge_litert")
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs((models / "two_none.tflite").read_bytes(), 0))
    code = next(c for c in model.operatorCodes if c.builtinCode == schema.BuiltinOperator.CUMSUM)
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
    code.customCode = "Nobodys"
    import flatbuffers

    builder = flatbuffers.Builder(0)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    (tmp_path / "m.tflite").write_bytes(bytes(builder.Output()))
    for row in _measured(tmp_path / "m.tflite"):
        assert "Nobodys" in row.reason
        assert (row.taken, row.partition) == (0, ())


def _measured(path: Path) -> list[Coverage]:
    return [row for row in coverage.of(path, lambda _: None, Limits()) if row.how == "measured"]

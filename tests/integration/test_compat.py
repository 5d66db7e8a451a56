"""The table of op versions against the runtimes that are installed: pair by pair, and by loading converted files.

TensorFlow converts in one child; each runtime loads every file in a child of its own, with the bare Interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import require, tinymodel
from support.savedmodels import ROOT

from converters import compat
from converters.compat import RULES
from edged.engines import op_versions, tflite_file
from edged.engines import op_versions_measure as measuring
from edged.engines.tflite_file import ModelFile

RELEASES = op_versions.releases()
MAINTAIN = "python -m edged.engines.op_versions_measure --write"

# The releases that lack what the converter writes for an op by itself, and take what it writes with the flags.
_OLD = ("2.7.0", "2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.0", "2.13.0", "2.14.0")
_OLD_LITERT = ("1.0.0", "1.0.1", "1.1.0", "1.1.1", "1.1.2", "1.2.0", "1.3.0", "1.4.0")
CURED: dict[str, dict[str, tuple[str, ...]]] = {
    "FULLY_CONNECTED": {"tflite-runtime": _OLD},
    "EXP": {"tflite-runtime": _OLD[:6]},
    "GELU": {"tflite-runtime": ("2.8.0",)},  # 2.7.0 has none at all
    "LOG": {"tflite-runtime": _OLD},
    "SQRT": {"tflite-runtime": _OLD, "ai-edge-litert": _OLD_LITERT},
    "TILE": {"tflite-runtime": ("2.7.0",)},
}

# MODEL_MODE.tflite: as we convert without flags. MODEL_MODE_flags.tflite: with those of its cure.
_CONVERT = """
import dataclasses, sys, numpy as np, tensorflow as tf
from pathlib import Path
from converters import quantize, savedmodel
from converters.compat import RULES, CompatFlags
from converters.options import Options
from converters.samples import Samples
out, rng = Path(sys.argv[1]), np.random.default_rng(0)
square = tf.constant(rng.normal(size=(64, 64)).astype(np.float32))
middles = {
    "DENSE": tf.identity, "EXP": lambda v: tf.exp(-tf.abs(v)), "GELU": tf.nn.gelu,
    "LOG": lambda v: tf.math.log(tf.abs(v) + 1.0), "SQRT": lambda v: tf.sqrt(tf.abs(v)),
    "TILE": lambda v: tf.tile(v, [1, 2])[:, 32:96],
}
samples = Samples("c", {"x": rng.normal(size=(8, 1, 64)).astype(np.float32)})
cures = {rule.op: rule.flags for rule in RULES}

def loaded(op):
    class Model(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([1, 64], tf.float32, name="x")])
        def __call__(self, x):
            return {"y": tf.matmul(middles[op](tf.matmul(x, square)), square)}
    model = Model()
    tf.saved_model.save(model, str(out / op), signatures=model.__call__)
    (out / f"{op}_work").mkdir()
    return savedmodel.load(Options(out / op, out / "b", "m", 1), out / f"{op}_work")

def keep(name, model, mode, flags=CompatFlags()):
    options = Options(out, out / "b", "m", 1, quantize=mode, calibration="c")
    (out / f"{name}.tflite").write_bytes(quantize.convert(model, options, samples, flags))

dense, log = loaded("DENSE"), loaded("LOG")
for mode in ("none", "dynamic", "int8", "int16x8"):
    keep(f"DENSE_{mode}", dense, mode)
keep("DENSE_dynamic_flags", dense, "dynamic", cures["FULLY_CONNECTED"])
keep("LOG_int16x8", log, "int16x8")
for op in ("EXP", "GELU", "LOG", "SQRT", "TILE"):
    model = log if op == "LOG" else loaded(op)
    keep(f"{op}_int8", model, "int8")
    keep(f"{op}_int8_flags", model, "int8", cures[op])
"""

_LOAD = """
import importlib, json, pathlib, sys
module = importlib.import_module(sys.argv[1] + ".interpreter")
said = {}
for path in sorted(pathlib.Path(sys.argv[2]).glob("*.tflite")):
    try:
        module.Interpreter(model_content=path.read_bytes()).allocate_tensors()
        said[path.stem] = ""
    except (ValueError, RuntimeError) as exc:
        said[path.stem] = str(exc)
print(json.dumps(said))
"""


def child(source: str, *args: str) -> str:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", source, *args], env=environment, capture_output=True, text=True, check=False, timeout=150
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files as TensorFlow converts them."""
    require.packages("tensorflow")
    made = tmp_path_factory.mktemp("compat")
    # A file, for the converter reads the source of what it traces.
    (made / "convert.py").write_text(_CONVERT)
    child(
        "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0])", str(made / "convert.py"), str(made)
    )
    return made


def files(folder: Path) -> Iterator[tuple[str, ModelFile]]:
    for path in sorted(folder.glob("*.tflite")):
        yield path.stem, tflite_file.read(path.read_bytes())


@pytest.mark.parametrize("name", op_versions.RUNTIMES)
def test_the_table_is_what_the_runtime_has(name: str) -> None:
    """Every pair of op and version, and every custom op: the installed release says the same as the table."""
    tinymodel.require_runtime(name)
    measured = measuring.measure(name)
    assert measured.ops["builtin"]["FULLY_CONNECTED"] >= 9  # it did measure
    assert measuring.differences(op_versions.table(), measured) == [], f"{name} {measured.release}: {MAINTAIN}"


@pytest.mark.tf
@pytest.mark.parametrize("name", op_versions.RUNTIMES)
def test_a_runtime_loads_exactly_what_the_table_says(name: str, folder: Path) -> None:
    """Float, dynamic, int8, int16x8, with and without flags: loading agrees, and a refusal names an op that we name."""
    runtime = tinymodel.require_runtime(name)
    release = measuring.measure(name).release
    fleet = compat.targets([f"{name}=={release}"])
    said = json.loads(child(_LOAD, runtime.package, str(folder)))
    assert len(said) == 16
    for stem, file in files(folder):
        (judged,) = compat.judge(file.versions, (), fleet)
        assert judged.ok == (not said[stem]), (stem, judged.words, said[stem])
        assert judged.ok or any(f"'{m.op}' version '{m.needed}'" in said[stem] for m in judged.missing)
    if (name, release) == ("tflite-runtime", "2.14.0"):
        refused = {stem for stem, why in said.items() if why}
        assert refused == {"DENSE_dynamic", "LOG_int8", "LOG_int16x8", "SQRT_int8"}


@pytest.mark.tf
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.op)
def test_each_cure_is_what_the_converter_does(rule: compat.Rule, folder: Path) -> None:
    """Without the flags the version that the rule names, with them the one that the rule promises; and for exactly
    the releases above it is a cure."""
    stem = "DENSE_dynamic" if rule.flags.per_tensor_dense else f"{rule.op}_int8"
    found = dict(files(folder))
    assert found[stem].versions[rule.op] == rule.version
    assert found[f"{stem}_flags"].versions[rule.op] == rule.cured
    cured = [f"{name} {release}" for name, of in sorted(CURED[rule.op].items()) for release in of]
    told = {release: compat.cures(op_versions.missing(found[stem].versions, (), release)) for release in RELEASES}
    assert [release for release, flags in told.items() if flags is not None] == cured
    assert {flags for flags in told.values() if flags is not None} == {rule.flags}


@pytest.mark.tf
@pytest.mark.parametrize("name", op_versions.RUNTIMES)
def test_what_is_cured_loads(name: str, folder: Path) -> None:
    """On a runtime that is here: refused without the flags and taken with them, wherever a cure is promised."""
    runtime = tinymodel.require_runtime(name)
    release, said = measuring.measure(name).release, json.loads(child(_LOAD, runtime.package, str(folder)))
    for rule in RULES:
        stem = "DENSE_dynamic" if rule.flags.per_tensor_dense else f"{rule.op}_int8"
        assert said[f"{stem}_flags"] == ""
        assert (said[stem] != "") == (release in CURED[rule.op].get(name, ())), stem


@pytest.mark.tf
def test_the_metadata_promises_releases_that_cannot_load_the_file(folder: Path) -> None:
    """min_runtime_version is too low: int16x8 LOG loads on no tflite-runtime, int8 EXP only one release later."""
    found = dict(files(folder))
    log, exp = found["LOG_int16x8"], found["EXP_int8"]
    assert log.min_runtime_version == "1.14.0"
    assert op_versions.oldest(log.versions, (), "tflite-runtime") is None
    assert exp.min_runtime_version == "2.12.0"
    assert op_versions.oldest(exp.versions, (), "tflite-runtime") == "tflite-runtime 2.13.0"

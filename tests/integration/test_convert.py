"""`edged convert` as a person runs it, on real SavedModels, TensorFlow and runtimes.

Expected values come from numpy (the model's own weights), from a bare Interpreter, or from the SavedModel.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import require, savedmodels

from delegates import registry
from edged import bundle
from edged.bundle import Bundle
from edged.engines import golden
from edged.engines.tflite import TfliteEngine
from edged.engines.tflite_runtime import RUNTIMES, Runtime

pytestmark = pytest.mark.tf

GENERATOR = np.random.default_rng(7)
X = GENERATOR.normal(size=(200, 16)).astype(np.float32)
TEST = GENERATOR.normal(size=(60, 16)).astype(np.float32)


def convert(folder: Path, model: str, *args: str, ok: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the command in `folder` on one of our SavedModels."""
    command = [
        sys.executable,
        "-m",
        "edged",
        "convert",
        str(savedmodels.made() / model),
        "--name",
        "m",
        "--version",
        "3",
    ]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(savedmodels.ROOT), "HOME": str(folder)}
    done = subprocess.run(
        [*command, *args], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=170
    )
    assert not ok or done.returncode == 0, done.stderr
    return done


def hashes(path: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(path.iterdir())}


@pytest.fixture(scope="module")
def int8(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The dense classifier in int8, with calibration, evaluation and labels; the command's JSON beside it."""
    require.packages("tensorflow")
    folder = tmp_path_factory.mktemp("int8")
    return folder, int8_bundle(folder)


def int8_bundle(folder: Path) -> dict[str, Any]:
    np.savez(folder / "train.npz", inputs=X.astype(np.float64))
    np.savez(folder / "test.npz", inputs=TEST[:, np.newaxis], y=savedmodels.dense_answers(TEST).argmax(1))
    (folder / "classes.txt").write_text("sit\nwalk\nrun\nfall\n")
    data = ["--calibration", "train.npz", "--eval", "test.npz", "--labels", "classes.txt"]
    done = convert(folder, "dense", "-o", "out", "--quantize", "int8", *data, "--json")
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def interpreter_answers(model: bytes, x: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], float, int]:
    """int8 answers of a bare Interpreter to real inputs [n, 16], with the output's scale and zero point."""
    module = pytest.importorskip("ai_edge_litert.interpreter")
    kind = module.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = module.Interpreter(model_content=model, experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    source, sink = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    scale, zero = source["quantization"]
    answers = []
    for row in np.clip(np.rint(x / np.float32(scale)) + zero, -128, 127).astype(np.int8):
        interpreter.set_tensor(source["index"], row[np.newaxis])
        interpreter.invoke()
        answers.append(interpreter.get_tensor(sink["index"])[0])
    return np.stack(answers), *sink["quantization"]


def test_int8_bundle_says_what_a_bare_interpreter_and_numpy_say(int8: tuple[Path, dict[str, Any]]) -> None:
    """The manifest's agreement, error and accuracy are those of an independent run against independent maths."""
    made = bundle.read(int8[0] / "out")
    quality = made.manifest.quality[0]
    raw, scale, zero = interpreter_answers(made.model, TEST)
    converted, true = (raw.astype(np.float64) - zero) * scale, savedmodels.dense_answers(TEST)
    assert (quality.output, quality.metric, quality.threshold, quality.samples) == ("output_0", "agreement", 0.95, 60)
    assert quality.value == pytest.approx((converted.argmax(1) == true.argmax(1)).mean(), abs=1e-5)
    assert quality.details["max_abs"] == pytest.approx(np.abs(converted - true).max(), rel=1e-3)
    assert quality.details["accuracy_float"] == 1.0
    assert quality.details["accuracy"] == pytest.approx(quality.value)


def test_int8_manifest_tells_the_model_as_it_is(int8: tuple[Path, dict[str, Any]]) -> None:
    """dtypes, scales, ops, calibration range and runtimes in bundle.json match the file and the data."""
    made = bundle.read(int8[0] / "out")
    manifest = made.manifest
    _, scale, zero = interpreter_answers(made.model, TEST[:1])
    output = manifest.outputs[0]
    assert (output.dtype, output.shape, output.scale, output.zero_point, output.io) == (
        "int8",
        (1, 4),
        scale,
        zero,
        "float",
    )
    assert (manifest.inputs[0].name, manifest.inputs[0].dtype, manifest.inputs[0].shape) == ("inputs", "int8", (1, 16))
    assert manifest.requirements.ops == {"FULLY_CONNECTED": 4, "SOFTMAX": 2}
    assert {name.split()[0] for name in manifest.requirements.loaded_on} >= {"ai-edge-litert"}
    seen = manifest.calibration.ranges[0]
    assert (seen.minimum, seen.maximum) == (X.min(), X.max())
    assert made.labels == ("sit", "walk", "run", "fall")
    assert (manifest.postprocess.output, manifest.postprocess.top_k) == ("output_0", 4)
    assert manifest.converter.flags["signature"] == "serving_default"


def test_int8_golden_samples_are_the_interpreters_answers(int8: tuple[Path, dict[str, Any]]) -> None:
    """Golden inputs are real samples as a client sends them; references are the model's, floats the SavedModel's."""
    made = bundle.read(int8[0] / "out")
    golden = made.golden()
    assert golden is not None
    assert golden.samples == 8
    x = golden.inputs["inputs"][:, 0]
    assert x.dtype == np.float32
    assert all((row == TEST).all(axis=1).any() for row in x)
    raw, scale, zero = interpreter_answers(made.model, x)
    np.testing.assert_allclose(golden.reference["output_0"][:, 0], (raw.astype(np.float32) - zero) * scale, rtol=1e-6)
    np.testing.assert_allclose(golden.float_outputs["output_0"][:, 0], savedmodels.dense_answers(x), atol=1e-5)
    assert 2 * scale <= golden.tolerance["output_0"] <= 20.1 * scale


def test_same_input_and_flags_give_the_same_bytes(int8: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """A second run, elsewhere, gives equal files, bundle.json included: no dates, no paths, no randomness."""
    int8_bundle(tmp_path)
    assert hashes(tmp_path / "out") == hashes(int8[0] / "out")


def test_json_and_notes(int8: tuple[Path, dict[str, Any]]) -> None:
    """--json prints one document: the report and the manifest; a float64 file is used with a note."""
    facts = int8[1]
    (attempt,) = facts["attempts"]
    assert attempt["model_bytes"] == (int8[0] / "out" / "model.tflite").stat().st_size
    assert attempt["facts"]["dtypes"]["int8"][1] >= 16 * 8 + 8 * 4
    assert any("float64 is cast to float32" in note for note in facts["warnings"])
    assert facts["manifest"]["name"] == "m"
    assert {run["runtime"].split()[0] for run in attempt["targets"]} >= {"ai-edge-litert"}


def test_a_model_the_converter_would_strip_keeps_its_weights(tmp_path: Path) -> None:
    """tf.saved_model.save(keras 3 model): float, no data given; the answers are numpy's, so the weights are there."""
    done = convert(tmp_path, "dense", "-o", "out.tar")
    made = bundle.read(tmp_path / "out.tar")
    golden = made.golden()
    assert golden is not None
    expected = savedmodels.dense_answers(golden.inputs["inputs"][:, 0])
    np.testing.assert_allclose(golden.reference["output_0"][:, 0], expected, atol=1e-5)
    assert "READ_VARIABLE" not in made.manifest.requirements.ops
    assert "random inputs" in done.stderr
    assert "runs on: " in done.stdout


def test_wrong_calibration_fails_its_gate_and_leaves_nothing(tmp_path: Path) -> None:
    """Calibrated on unscaled data the model is broken: exit 65, the figure named, only the report left."""
    np.savez(tmp_path / "train.npz", inputs=X * np.float32(255))
    np.savez(tmp_path / "test.npz", inputs=TEST)
    data = ["--calibration", "train.npz", "--eval", "test.npz"]
    done = convert(tmp_path, "dense", "-o", "out", "--quantize", "int8", *data, ok=False)
    assert done.returncode == 65
    assert "agreement" in done.stderr
    assert "0.95" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "out-refused.html", "out-refused.json", "test.npz", "train.npz",
    ]  # fmt: skip
    report = json.loads((tmp_path / "out-refused.json").read_text())
    layers = report["attempts"][0]["layers"]
    assert layers[0]["snr_db"] == min(layer["snr_db"] for layer in layers) < 10
    assert "worst layers" in done.stdout


def test_two_inputs_are_bound_by_name_and_a_function_calibrates(tmp_path: Path) -> None:
    """Signature `predict`(z, a): names, not positions, decide; the client sends int8 where --io says so."""
    (tmp_path / "data.py").write_text(
        "import numpy as np\n"
        "def rows():\n"
        "    for i in range(120):\n"
        "        yield {'a': np.float32([i % 7]), 'z': np.float32([10 + i // 3 % 5])}\n"
    )
    data = ["--calibration", "data:rows", "--quantize", "int8", "--io", "quantized"]
    convert(tmp_path, "two", "-o", "out", *data)
    made = bundle.read(tmp_path / "out")
    assert made.manifest.signature == "predict"
    golden = made.golden()
    assert golden is not None
    assert golden.inputs["a"].dtype == golden.reference["z_diff"].dtype == np.int8
    specs = {spec.name: spec for spec in (*made.manifest.inputs, *made.manifest.outputs)}

    def real(name: str, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return (values.astype(np.float64) - specs[name].zero_point) * specs[name].scale

    z, a = real("z", golden.inputs["z"]), real("a", golden.inputs["a"])
    step = max(spec.scale for spec in specs.values())
    for name, expected in {"z_diff": z - a, "a_sum": z + a, "m_first": z}.items():
        np.testing.assert_allclose(real(name, golden.reference[name]), expected, atol=1.01 * step)
    assert np.abs(golden.float_outputs["z_diff"]).max() > 5


def test_dynamic_range_of_dense_weights_loads_on_the_older_runtime(tmp_path: Path) -> None:
    """Per-channel dense weights need FULLY_CONNECTED 12, which tflite-runtime 2.14 lacks: converted again, and said."""
    done = convert(tmp_path, "wide", "-o", "out", "--quantize", "dynamic")
    manifest = bundle.read(tmp_path / "out").manifest
    assert manifest.requirements.ops["FULLY_CONNECTED"] <= 9
    assert "one scale in all" in manifest.converter.flags["compatible"]
    assert "tflite-runtime 2.14.0" in manifest.requirements.loaded_on or not installed("tflite-runtime")
    sizes = [(tmp_path / "out" / "model.tflite").stat().st_size, 32 * 64 * 4]
    assert sizes[0] < sizes[1]
    assert "one scale in all" in done.stderr
    convert(tmp_path, "wide", "-o", "new", "--quantize", "dynamic", "--target", "ai-edge-litert")
    assert bundle.read(tmp_path / "new").manifest.requirements.ops["FULLY_CONNECTED"] == 12


def installed(name: str) -> bool:
    return any(runtime.name == name and runtime.installed for runtime in RUNTIMES)


def test_a_converter_that_dies_is_one_clear_error(tmp_path: Path) -> None:
    """TensorFlow's converter dies by SIGSEGV on this GRU in int8: the signal, and the modes that do work, proven."""
    np.savez(tmp_path / "train.npz", x=np.random.default_rng(0).normal(size=(100, 10, 6)).astype(np.float32))
    done = convert(tmp_path, "gru", "-o", "out", "--quantize", "int8", "--calibration", "train.npz", ok=False)
    assert done.returncode == 70
    assert "SIGSEGV while converting to int8" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    report = json.loads((tmp_path / "out-refused.json").read_text())
    passed = {a["quantize"] for a in report["attempts"] if a["state"] == "passed"}
    assert passed == {"none", "float16", "dynamic"}
    for mode in passed:
        assert f"--quantize {mode} keeps every limit" in done.stderr
    assert not (tmp_path / "out").exists()


def test_auto_tries_every_mode_and_says_why(int8: tuple[Path, dict[str, Any]]) -> None:
    """Every mode is measured on every runtime; the smallest that passes ships, and a second run chooses the same."""
    data = ["--calibration", "train.npz", "--eval", "test.npz", "--labels", "classes.txt"]
    done = convert(int8[0], "dense", "-o", "auto", "--quantize", "auto", *data, "--json")
    facts = json.loads(done.stdout)
    modes = {a["quantize"]: a for a in facts["attempts"]}
    assert list(modes) == ["none", "float16", "dynamic", "int8", "int16x8"]
    assert all(run["p50_us"] > 0 for a in modes.values() for run in a["targets"] if run["delegate"] == "default")
    smallest = min(modes.values(), key=lambda a: a["model_bytes"])
    assert facts["chosen"] == smallest["quantize"] == "int8"
    convert(int8[0], "dense", "-o", "again", "--quantize", "auto", *data)
    assert hashes(int8[0] / "again") == hashes(int8[0] / "auto")


def test_a_time_limit_ends_a_conversion(tmp_path: Path) -> None:
    """TensorFlow alone takes longer than this to start: the stage and the limit are named, nothing is left."""
    done = convert(tmp_path, "dense", "-o", "out", "--time-limit", "0.5", ok=False)
    assert done.returncode == 70
    assert "was not done after 0.5 s while starting" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_conversion_killed_at_any_moment_leaves_no_half_bundle(int8: tuple[Path, dict[str, Any]]) -> None:
    """SIGKILL at the beginning of several stages, the writing among them: the output is not there, or it is whole."""
    folder = int8[0]
    command = [sys.executable, "-m", "edged", "convert", str(savedmodels.made() / "dense"), "--name", "m"]
    command += ["--version", "3", "-o", "killed", "--force", "--verbose"]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(savedmodels.ROOT), "HOME": str(folder)}
    for stage in ("loading the SavedModel", "loading the model on", "writing the bundle", "writing the bundle"):
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        assert any(line.startswith(stage) for line in process.stderr), f"no stage {stage!r}"
        process.kill()
        process.wait()
        process.stderr.close()
        assert stage == "writing the bundle" or not (folder / "killed").exists()
        if (folder / "killed").exists():
            bundle.read(folder / "killed")


def test_a_model_with_state_is_compared_in_order_from_its_first_state(tmp_path: Path) -> None:
    """The running sum's golden references are the cumulative sums of its golden inputs; the manifest says stateful."""
    convert(tmp_path, "counter", "-o", "out")
    made = bundle.read(tmp_path / "out")
    golden = made.golden()
    assert golden is not None
    assert made.manifest.stateful
    np.testing.assert_allclose(golden.reference["sum"], np.cumsum(golden.inputs["v"], axis=0), atol=1e-5)


def test_whole_numbers_keep_their_dtype_and_images_calibrate(tmp_path: Path) -> None:
    """A uint8 image input stays uint8 in int8; a directory of images becomes samples as --preprocess says."""
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "photos").mkdir()
    for i in range(10):
        image.fromarray(np.full((16, 12, 3), 25 * i, np.uint8)).save(tmp_path / "photos" / f"{i}.png")
    (tmp_path / "image.yaml").write_text("channels: GRAY\n")
    data = ["--calibration", "photos", "--preprocess", "image.yaml"]
    done = convert(tmp_path, "gray", "-o", "out", "--quantize", "int8", *data)
    made = bundle.read(tmp_path / "out")
    assert (made.manifest.inputs[0].dtype, made.manifest.inputs[0].io) == ("uint8", "float")
    assert made.manifest.preprocess is not None
    assert (made.manifest.preprocess.width, made.manifest.preprocess.height) == (6, 8)
    golden = made.golden()
    assert golden is not None
    level = golden.inputs["pixels"][:, 0, 0, 0, 0].astype(float)
    np.testing.assert_allclose(golden.float_outputs["mean"][:, 0, 0], level / 255, atol=1e-6)
    assert "only 8 samples" in done.stderr  # of ten, every fifth is held out


@pytest.fixture(scope="module")
def gru(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A recurrent model, whose WHILE loop gives an output that has no memory before the first invoke."""
    require.packages("tensorflow")
    folder = tmp_path_factory.mktemp("gru")
    convert(folder, "gru", "-o", "out", "--quantize", "float16")
    return bundle.read(folder / "out")


def test_a_recurrent_model_is_served(gru: Bundle, runtime: Runtime) -> None:
    """Golden samples agree, and new inputs give the bytes of the bare runtime's signature runner."""
    engine = TfliteEngine(gru, runtime, registry.create("cpu"))
    samples = gru.golden()
    assert samples is not None
    assert golden.disagreement(engine, gru, samples) is None
    runner = runtime.module().Interpreter(model_content=gru.model).get_signature_runner(gru.manifest.signature)
    spec = gru.manifest.inputs[0]
    for _ in range(3):
        x = GENERATOR.normal(size=spec.shape).astype(np.float32)
        engine.inputs[0][...] = x
        engine.invoke()
        assert engine.outputs[0].tobytes() == runner(**{spec.name: x})[gru.manifest.outputs[0].name].tobytes()

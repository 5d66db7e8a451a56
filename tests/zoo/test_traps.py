"""Faults that other converters call a success, each as a test by its number and name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import require, zoo, zoobare, zoojudge, zootable

LABELLED = ("--postprocess", "post.yaml")


def weights(name: str) -> int:
    """Return the bytes of a SavedModel's variables."""
    return sum(path.stat().st_size for path in (zoo.made(name).folder / "saved_model" / "variables").iterdir())


@pytest.mark.parametrize("name", ["faces_r", "faces_o"])
def test_trap_1_a_model_without_weights(name: str) -> None:
    """Saved by plain tf.saved_model.save: the file holds all the weights, reads no variable, and answers no NaN."""
    model, made = zoo.made(name), zoo.convert(name, "none", *LABELLED)
    ops = made.manifest["requirements"]["ops"]
    assert not {"VAR_HANDLE", "READ_VARIABLE"} & set(ops)
    assert made.model.stat().st_size > 0.9 * weights(name)
    answers = zoobare.run(made.model, model.inputs).answers
    assert all(zoojudge.worst(answers[key], model.floats[key]) < 1e-5 for key in answers)


def test_trap_1_the_plain_converter_does_lose_them(tmp_path: Path) -> None:
    """The trap is there: TensorFlow's own reader makes of the same directory a file a tenth of its weights' size."""
    script = (
        "import sys, tensorflow as tf\n"
        "open(sys.argv[2], 'wb').write(tf.lite.TFLiteConverter.from_saved_model(sys.argv[1]).convert())"
    )
    out = tmp_path / "naive.tflite"
    saved = zoo.made("faces_r").folder / "saved_model"
    subprocess.run([sys.executable, "-c", script, str(saved), str(out)], check=True, capture_output=True, timeout=120)
    assert out.stat().st_size < 0.1 * weights("faces_r")


def test_trap_2_keras_2_with_its_optimizer() -> None:
    """Without tf_keras TensorFlow cannot load basic-pitch; we do, and the file is the same as with it."""
    script = "import sys, tensorflow as tf; sys.modules['tf_keras'] = None; tf.saved_model.load(sys.argv[1])"
    saved = zoo.made("pitch").folder / "saved_model"
    plain = subprocess.run([sys.executable, "-c", script, str(saved)], capture_output=True, text=True, check=False)
    assert "object has no attribute 'add_slot'" in plain.stderr
    made = zoo.convert("pitch", "none", hidden="tf_keras")
    assert made.model.read_bytes() == zoo.convert("pitch", "none").model.read_bytes()
    assert [spec["name"] for spec in made.manifest["inputs"]] == ["input_2"]


def test_trap_3_a_converter_that_dies() -> None:
    """A SIGSEGV in TensorFlow is an exit code and a line of ours, and no bundle; see test_sleep for the ways out."""
    made = zoo.convert("sleep", "int8")
    assert (made.code, made.folder.exists()) == (70, False)
    assert "SIGSEGV" in made.error


def test_trap_4_ops_newer_than_the_runtime() -> None:
    """Dynamic range of dense layers loads on both runtimes: its FULLY_CONNECTED is one that the older one has."""
    model, made = zoo.made("digits"), zoo.convert("digits", "dynamic")
    assert made.manifest["requirements"]["ops"]["FULLY_CONNECTED"] <= 9
    for runtime in zoobare.installed():
        run = zoobare.run(made.model, model.inputs, runtime)
        assert not run.error
        assert zoojudge.agreement(run.answers["output_0"], model.floats["output_0"]) > 0.99


def test_trap_4_loaded_on_is_what_loads() -> None:
    """Of every bundle of the zoo so far: the runtimes it names load it, and one it does not name is told of."""
    for name, mode in (("digits", "int8"), ("water", "mixed"), ("pitch", "auto"), ("sleep", "dynamic")):
        made = zoo.convert(name, mode)
        some = {key: array[:2] for key, array in zoo.made(name).inputs.items()}
        named = {text.split()[0] for text in made.manifest["requirements"]["loaded_on"]}
        loads = {runtime for runtime in zoobare.installed() if not zoobare.run(made.model, some, runtime).error}
        assert named <= loads
        assert all(runtime in made.words for runtime in loads - named)


def test_trap_5_state_that_leaks_between_requests() -> None:
    """A fused LSTM answers the same input otherwise the second time: it is refused, or the manifest says stateful.

    A person is told that the model keeps state, not only that figures are off.
    """
    made = zoo.convert("remembers", "none")
    zootable.add(made)
    attempt = made.attempts["none"]
    assert "UNIDIRECTIONAL_SEQUENCE_LSTM" in attempt["facts"]["ops"]
    assert attempt["facts"]["stateful"]
    assert made.code == 65 or made.manifest["stateful"]
    assert "state" in made.words


def test_trap_6_a_file_that_kills_the_process(tmp_path: Path) -> None:
    """Bytes of a real model are damaged until they kill a bare tflite-runtime; `edged inspect` outlives those files."""
    if "tflite-runtime" not in zoobare.installed():
        require.missing("tflite-runtime")
    good, inputs = zoo.convert("digits", "int8").model.read_bytes(), zoo.made("digits").inputs
    fatal = []
    for seed in range(20):
        file = tmp_path / f"{seed}.tflite"
        file.write_bytes(_damaged(good, seed))
        if zoobare.run(file, {"x": inputs["x"][:1]}, "tflite-runtime").error.startswith("exit -"):
            fatal.append(file)
        if len(fatal) == 2:
            break
    assert fatal, "no damaged file kills the runtime: damage them otherwise"
    for file in fatal:
        done = zoo.edged("inspect", str(file))
        assert done.returncode in (0, 65), done.stderr


def _damaged(model: bytes, seed: int) -> bytes:
    """Return the file with 40 bytes changed where its tables are."""
    generator, bad = np.random.default_rng(seed), bytearray(model)
    for place in generator.integers(len(model) * 3 // 4, len(model), 40):
        bad[place] ^= int(generator.integers(1, 256))
    return bytes(bad)


def test_trap_7_ops_that_no_device_has() -> None:
    """An op of TensorFlow alone is refused by name; where it is allowed, no runtime here runs it."""
    refused, allowed = zoo.convert("inverse", "none"), zoo.convert("inverse", "none", "--allow-flex")
    zootable.add(refused)
    assert refused.code == 65
    assert "MatrixInverse" in refused.error
    assert allowed.code == 65
    assert "no installed runtime runs it: does not load" in allowed.error
    assert "FlexMatrixInverse" in allowed.error


def test_trap_8_shapes_that_are_open(bare: str) -> None:
    """An open height and width needs --shape; the file then has no open dimension, whatever the runtime."""
    assert zoo.convert("faces_p", "none").code == 2
    made = zoo.convert("faces_p", "int8", "--shape", "x=1,64,64,3")
    assert made.manifest["inputs"][0]["shape"] == [1, 64, 64, 3]
    assert not made.attempts["int8"]["facts"]["open_shapes"]
    assert not zoobare.run(made.model, {"x": zoo.made("faces_p").inputs["x"][:1]}, bare).error


def test_trap_9_an_open_batch_and_a_recurrent_layer() -> None:
    """The recurrent model was exported with an open batch, which TensorFlow cannot convert: pinned, and said so."""
    made = zoo.convert("sleep", "none")
    assert [(p["dimension"], p["size"]) for p in made.facts["source"]["pinned"]] == [(0, 1)]


def test_trap_9_a_model_that_draws_lots() -> None:
    """Random answers cannot be compared: refused, and the random op is named as the reason."""
    made = zoo.convert("dice", "none")
    zootable.add(made)
    assert made.code == 65
    assert "RANDOM_UNIFORM" in made.words


def test_trap_10_headline_figures_hide_damage() -> None:
    """basic-pitch in dynamic range: notes alone look well by cosine, and frames fail; it is not passed on notes."""
    made = zoo.convert("pitch", "dynamic")
    figures = {o["output"]: o["figures"] for o in made.attempts["dynamic"]["targets"][0]["outputs"]}
    assert made.code == 65
    assert figures["note"]["cosine"] > 0.99
    assert min(f["f1"] for f in figures.values()) < 0.95


@pytest.mark.parametrize("data", ["one", "noise", "zeros"])
def test_trap_11_calibration_decides(data: str) -> None:
    """The same model on three calibrations that are none never ships; with its own data it does (test_calibration)."""
    made = zoo.convert("motions", "int8", "--calibration", f"{data}.npz", calibrated=False)
    assert (made.code, made.folder.exists()) == (65, False)


def test_trap_12_scores_that_saturate() -> None:
    """Calibrated on normal data only, the score of an anomaly is clipped: refused, and the clipping is told."""
    model, made = zoo.made("anomaly"), zoo.convert("anomaly", "int8")
    zootable.add(made)
    odd = model.arrays("odd")["odd"] == 1
    scores = model.floats["output_0"][:, 0]
    assert scores[odd].min() > 5 * scores[~odd].max()
    assert made.code == 65
    assert "beyond what int8 holds" in made.words


@pytest.mark.parametrize("mode", ["none", "int8"])
def test_two_inputs_are_bound_by_name(mode: str, bare: str) -> None:
    """The function takes zulu, then alpha; ranges are ten times apart: a swap is seen in answers and ranges."""
    model, made = zoo.made("two"), zoo.convert("two", mode)
    run = zoobare.run(made.model, model.inputs, bare)
    worst = max(
        zoojudge.worst(run.answers[name], model.floats[name]) / np.abs(model.floats[name]).max() for name in run.answers
    )
    zootable.add(made, f"worst {worst:.4f} of the largest")
    assert worst < (1e-5 if mode == "none" else 0.1)
    if mode == "int8":
        calibration = model.arrays("calibration")
        told = {r["input"]: (r["minimum"], r["maximum"]) for r in made.manifest["calibration"]["ranges"]}
        assert told == {name: (pytest.approx(a.min()), pytest.approx(a.max())) for name, a in calibration.items()}


@pytest.mark.parametrize("mode", ["none", "int8"])
def test_word_numbers_stay_whole(mode: str, bare: str) -> None:
    """An int32 input stays int32 in int8, every word number from 0 to 499 has its own row, and answers agree."""
    model, made = zoo.made("words"), zoo.convert("words", mode)
    zootable.add(made)
    dtypes = {spec["name"]: spec["dtype"] for spec in made.manifest["inputs"]}
    assert dtypes == {"ids": "int32", "extra": "float32" if mode == "none" else "int8"}
    answers = zoobare.run(made.model, model.inputs, bare).answers["output_0"]
    assert zoojudge.worst(answers, model.floats["output_0"]) < (1e-5 if mode == "none" else 0.05)


def test_an_op_that_turns_rounding_into_nan_is_refused() -> None:
    """log(x) of what int8 rounds to 0: refused on its figures; float passes."""
    made = zoo.convert("logarithm", "int8")
    zootable.add(made)
    assert zoo.convert("logarithm", "none").code == 0
    assert made.code == 65


def test_samples_without_an_answer_are_named() -> None:
    """Where the SavedModel itself answers NaN, the sample's number and the output are named, not the conversion."""
    made = zoo.convert("direction", "int8", "--eval", "silent.npz")
    zootable.add(made)
    assert made.code == 65
    assert "NaN in output 'y' for sample 20" in made.error


def test_constants_that_float16_cannot_hold_are_refused() -> None:
    """A weight of a million is clamped to 65,504 by the converter: refused, with modes that work."""
    made = zoo.convert("huge", "float16")
    zootable.add(made)
    assert made.code == 65
    assert "65504" in made.error
    assert "none or dynamic" in made.error
    assert json.loads(zoo.convert("huge", "none").out)["chosen"] == "none"

"""What can be given to be converted, on real models: SavedModels of every age, Keras files, and what is refused."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import require, savedmodels
from support.tinymodel import require_runtime

from converters.options import Options
from edged.engines import tflite_file

pytestmark = pytest.mark.tf

KERAS2 = {"slots", "k2.h5", "k2_lstm.keras", "k2_lstm.keras absent", "old_lambda.h5"}
GIVEN: dict[str, dict[str, Any]] = {"keras2": False, "modes": ["none"], "x": "", "flags": {}}
# case → what differs from GIVEN; `model` where it is not the case's name, `options` beside model and output.
CASES: dict[str, dict[str, Any]] = {
    "slots": {"x": "slots"},
    "k2.h5": {"x": "k2.h5"},
    "k3.keras": {"x": "k3.keras"},
    "k3.keras again": {"model": "k3.keras", "modes": ["none", "int8"]},
    "k3.h5": {"x": "k3.h5", "modes": ["none", "int8"]},
    "k3_gru.keras": {"x": "k3_gru.keras"},
    "k3_gru.keras open": {"model": "k3_gru.keras", "options": {"dynamic_batch": True}},
    "k3_gru.keras of 2": {"model": "k3_gru.keras", "options": {"shapes": {"x": [2, 5, 3]}}},
    "lambda.keras": {},
    "custom.keras": {},
    "unbuilt.keras": {},
    "k3.weights.h5": {},
    "weights.h5": {},
    "damaged.keras": {},
    "first": {},
    "first train": {"model": "first", "options": {"tags": "train"}},
    "first predict": {"model": "first", "options": {"tags": "train", "signature": "predict"}},
    "first gpu": {"model": "first", "options": {"tags": "serve,gpu"}},
    "oldest": {"options": {"tags": ",", "signature": "predict"}, "modes": ["none", "int8"]},
    "oldest words": {"model": "oldest", "options": {"tags": ",", "signature": "words"}},
    "versions": {},
    "no variables": {},
    "no graph": {},
    "sick": {},
    "masked": {},
    "words": {"model": "texts", "options": {"signature": "words"}},
    "classes": {"model": "texts", "options": {"signature": "classes"}},
    "dense": {"modes": ["none", "dynamic", "int8", "mixed"]},
    "dense per tensor": {"model": "wide", "modes": ["dynamic"], "flags": {"per_tensor_dense": True}},
    "dense per channel": {"model": "wide", "modes": ["dynamic"]},
    "float ops": {"model": "dense", "modes": ["int8"], "flags": {"float_ops": ["SOFTMAX"]}},
    "dense open": {"model": "dense", "options": {"dynamic_batch": True}},
    "ids": {"modes": ["none", "int8"]},
    "open": {"model": "many", "options": {"signature": "open", "shapes": {"v": [1, 5, 3]}}},
    "flex": {"model": "many", "options": {"signature": "inverse", "allow_flex": True}},
    "flex int8": {"model": "many", "options": {"signature": "inverse", "allow_flex": True}, "modes": ["int8"]},
    "custom": {"model": "many", "options": {"signature": "inverse", "allow_custom": ["MatrixInverse"]}},
    "no flex": {"model": "many", "options": {"signature": "inverse"}},
    "k2_lstm.keras absent": {"model": "k2_lstm.keras"},
    # From here on tf_keras may be imported.
    "k2_lstm.keras": {"keras2": True, "x": "k2_lstm.keras"},
    "old_lambda.h5": {"keras2": True},
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What became of every case, all in one TensorFlow child."""
    models, folder = savedmodels.made(), tmp_path_factory.mktemp("front")
    _make_odd_ones(models, folder)
    cases = {case: given for case, given in CASES.items() if case not in KERAS2 or (models / "slots").exists()}
    jobs = []
    for case, given in cases.items():
        name = given.get("model", case)
        model = folder / name if (folder / name).exists() else models / name
        options = asdict(Options(model, folder, "m", 1)) | given.get("options", {})
        options |= {"model": str(model), "output": str(folder)}
        x = str(models / f"{given['x']}_answers.npz") if "x" in given else ""
        jobs.append({**GIVEN, **{k: v for k, v in given.items() if k in GIVEN}, "x": x, "options": options})
    return dict(zip(cases, savedmodels.loads(jobs, folder), strict=True))


def _make_odd_ones(models: Path, folder: Path) -> None:
    (folder / "versions").mkdir()
    for version in ("2", "10"):
        (folder / "versions" / version).symlink_to(models / "dense")
    (folder / "weights.h5").write_bytes((models / "k3.weights.h5").read_bytes())
    whole = (models / "k3.keras").read_bytes()
    (folder / "damaged.keras").write_bytes(whole.replace(b'"class_name": "Dense"', b'"class_name": "Dxnse"'))
    for name, content in (("no variables", (models / "dense" / "saved_model.pb").read_bytes()), ("no graph", b"\x08")):
        (folder / name).mkdir()
        (folder / name / "saved_model.pb").write_bytes(content)


def outcome(outcomes: dict[str, dict[str, Any]], case: str) -> dict[str, Any]:
    if case in KERAS2:
        require.packages("tf_keras")
    return outcomes[case]


def run(model: Path, **inputs: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Answer by the bare runtime."""
    interpreter = require_runtime("ai-edge-litert").module().Interpreter(model_content=model.read_bytes())
    answers: dict[str, np.ndarray[Any, Any]] = interpreter.get_signature_runner()(**inputs)
    return answers


REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "lambda.keras": ("BadDataError", ("Lambda layer 'same'", "model.export(DIRECTORY)")),
    "old_lambda.h5": ("BadDataError", ("Lambda layer 'twice'", "model.export(DIRECTORY)")),
    "custom.keras": ("BadDataError", ("'Own' is no class of Keras", "model.export(DIRECTORY)")),
    "unbuilt.keras": ("BadDataError", ("cannot be exported", "not yet been built")),
    "k3.weights.h5": ("BadDataError", ("weights alone",)),
    "weights.h5": ("BadDataError", ("weights alone",)),
    "k2_lstm.keras absent": ("UnavailableError", ("saved by Keras 2.", "pip install tf_keras")),
    "k3_gru.keras open": ("BadDataError", ("a recurrent layer needs a batch of 1", "leave out --dynamic-batch")),
    # Converted as if its batch were 1 it would answer wrongly, without a word of the converter's.
    "k3_gru.keras of 2": ("BadDataError", ("a recurrent layer needs a batch of 1", "leave out --dynamic-batch")),
    "first": ("UsageError", ("no tag set 'serve'; it has: gpu,serve; train", "--tags")),
    "first train": ("UsageError", ("several signatures: predict, words", "--signature")),
    "oldest words": ("BadDataError", ("input 'words' is of dtype string", "--signature predict")),
    "no variables": ("BadDataError", ("cannot be loaded", "variables")),
    "no graph": ("BadDataError", ("cannot be read as a SavedModel",)),
    "sick": ("BadDataError", ("has weights with NaN or Inf: bad:0 (2 NaN, 1 Inf of 4)",)),
    "words": (
        "BadDataError",
        ("input 'words' is of dtype string", "only a server with TensorFlow", "--signature good or --signature other"),
    ),
    "classes": ("BadDataError", ("output 'name' is of dtype string", "--signature good or --signature other")),
    "flex int8": ("BadDataError", ("calibration runs the model in TFLite", "float16 or dynamic")),
    "no flex": (
        "BadDataError",
        ("TF Select ops MatrixInverse are not in TFLite", "no device runtime that pip installs"),
    ),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_cannot_be_converted_is_named(case: str, outcomes: dict[str, dict[str, Any]]) -> None:
    """Each ends in one line that says what it is and what to give."""
    name, says = REFUSED[case]
    found, text = outcome(outcomes, case)["error"]
    assert found == name, text
    assert "\n" not in text
    for part in says:
        assert part in text


@pytest.mark.parametrize("case", ["slots", "k2.h5", "k3.keras", "k3.h5", "k3_gru.keras", "k2_lstm.keras"])
def test_a_keras_model_of_any_age_answers_as_before(case: str, outcomes: dict[str, dict[str, Any]]) -> None:
    """The loaded model gives the answers of the Keras that made it, and so does the converted one."""
    found = outcome(outcomes, case)
    assert found["error"] == ["", ""]
    with np.load(savedmodels.made() / f"{case}_answers.npz") as file, np.load(found["folder"] / "answers.npz") as ours:
        x, y = file["x"], file["y"]
        np.testing.assert_allclose(ours[ours.files[0]], y, atol=1e-6)
    (name,) = found["inputs"]
    (converted,) = run(found["folder"] / "none.tflite", **{name: x}).values()
    np.testing.assert_allclose(converted, y, atol=1e-5)


def test_the_report_knows_where_it_came_from(outcomes: dict[str, dict[str, Any]]) -> None:
    """Kind, size, signature and tag set, with all there are."""
    source = outcomes["first gpu"]["source"]
    assert (source["kind"], source["path"]) == ("SavedModel of TensorFlow 1", "first")
    assert (source["tags"], source["tag_sets"]) == (["gpu", "serve"], ["gpu,serve", "train"])
    source = outcomes["first predict"]["source"]
    assert (source["signature"], source["signatures"]) == ("predict", ["predict", "words"])
    source = outcomes["k3.keras"]["source"]
    path = savedmodels.made() / "k3.keras"
    assert (source["kind"], source["path"], source["size"]) == ("Keras file", "k3.keras", path.stat().st_size)


@pytest.mark.parametrize("case", ["first gpu", "first predict", "oldest"])
def test_tensorflow_1(case: str, outcomes: dict[str, dict[str, Any]]) -> None:
    """Variables of both kinds, a table beside the signature, other tag sets: x @ w, as numpy has it."""
    assert outcomes[case]["error"] == ["", ""]
    x = np.float32([[1, -2, 3, 0.5]])
    weights = np.arange(12, dtype=np.float32).reshape(4, 3) / 10
    found = run(outcomes[case]["folder"] / "none.tflite", x=x)
    np.testing.assert_allclose(found["y"], x @ weights, atol=1e-5)


def test_the_highest_version_is_taken(outcomes: dict[str, dict[str, Any]]) -> None:
    """10 before 2, and a note of it."""
    found = outcomes["versions"]
    assert found["source"]["path"] == "versions/10"
    assert any("version 10 is taken" in note and "also there: 2" in note for note in found["notes"])


def test_an_infinite_constant_is_told(outcomes: dict[str, dict[str, Any]]) -> None:
    """A mask of -Inf converts, but a person learns that integers have no such value."""
    assert outcomes["masked"]["error"] == ["", ""]
    assert any("1 Inf of 4" in note for note in outcomes["masked"]["notes"])
    assert not any("Inf" in note for note in outcomes["dense"]["notes"])


def file_of(outcomes: dict[str, dict[str, Any]], case: str, mode: str) -> tflite_file.ModelFile:
    assert outcomes[case]["error"] == ["", ""]
    return tflite_file.read((outcomes[case]["folder"] / f"{mode}.tflite").read_bytes())


def signatures(file: tflite_file.ModelFile) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Input name → dtype and shape with -1 for what is open."""
    tensors = file.graphs[0].tensors
    return {name: (tensors[i].dtype, tensors[i].signature) for name, i in file.signatures[0].inputs.items()}


def test_a_batch_that_stays_open(outcomes: dict[str, dict[str, Any]]) -> None:
    """The file has -1 and answers seven rows at once; samples are still of one; without the flag it is 1."""
    found = outcomes["dense open"]
    assert signatures(file_of(outcomes, "dense open", "none"))["inputs"][1] == (-1, 16)
    assert signatures(file_of(outcomes, "dense", "none"))["inputs"][1] == (1, 16)
    assert found["inputs"]["inputs"][1] == [1, 16]
    assert any("the batch stays open" in note for note in found["notes"])
    assert not found["source"]["pinned"]
    x = np.random.default_rng(2).normal(size=(7, 16)).astype(np.float32)
    (answer,) = run(found["folder"] / "none.tflite", inputs=x).values()
    np.testing.assert_allclose(answer, savedmodels.dense_answers(x), atol=1e-5)


def test_pinned_dimensions_have_a_reason(outcomes: dict[str, dict[str, Any]]) -> None:
    """The batch by default, the rest by --shape."""
    batch, length = outcomes["open"]["source"]["pinned"]
    assert (batch["input"], batch["dimension"], batch["size"]) == ("v", 0, 1)
    assert (length["dimension"], length["size"]) == (1, 5)
    assert length["reason"].startswith("given by --shape")
    (batch,) = outcomes["dense"]["source"]["pinned"]
    assert batch["reason"].startswith("batch of 1: recurrent layers")


def test_a_plain_save_keeps_its_weights(outcomes: dict[str, dict[str, Any]]) -> None:
    """tf.saved_model.save of a Keras 3 model: right in float and within int8's steps, whatever the mode's order."""
    x = np.random.default_rng(3).normal(size=(1, 16)).astype(np.float32)
    for mode, near in (("none", 1e-5), ("dynamic", 0.02), ("mixed", 0.05)):
        (answer,) = run(outcomes["dense"]["folder"] / f"{mode}.tflite", inputs=x).values()
        np.testing.assert_allclose(answer, savedmodels.dense_answers(x), atol=near)


def test_mixed_is_int8_inside_and_float_outside(outcomes: dict[str, dict[str, Any]]) -> None:
    """Before any layer is kept float: inputs float32, weights int8; int8 mode has int8 inputs."""
    mixed, whole = (file_of(outcomes, "dense", mode) for mode in ("mixed", "int8"))
    assert signatures(mixed)["inputs"][0] == "float32"
    assert signatures(whole)["inputs"][0] == "int8"
    weights = [t for t in mixed.graphs[0].tensors if t.data and t.shape == (8, 16)]
    assert [t.dtype for t in weights] == ["int8"]


def test_an_id_input_stays_an_integer(outcomes: dict[str, dict[str, Any]]) -> None:
    """int8 changes the float input alone."""
    found = signatures(file_of(outcomes, "ids", "int8"))
    assert (found["ids"][0], found["v"][0]) == ("int32", "int8")


@pytest.mark.parametrize(("case", "version", "scales"), [("dense per tensor", 9, 1), ("dense per channel", 12, 64)])
def test_dense_weights_are_per_channel_unless_asked(
    case: str, version: int, scales: int, outcomes: dict[str, dict[str, Any]]
) -> None:
    """The best quality first: one scale for each output, which needs version 12; the flag gives an older one."""
    graph = file_of(outcomes, case, "dynamic").graphs[0]
    assert {op.version for op in graph.ops if op.name == "FULLY_CONNECTED"} >= {version}
    assert max(len(t.scales) for t in graph.tensors if t.data) == scales


def test_ops_that_stay_float(outcomes: dict[str, dict[str, Any]]) -> None:
    """float_ops: the softmax computes in float between int8 inputs and outputs."""
    file = file_of(outcomes, "float ops", "int8")
    graph = file.graphs[0]
    (softmax,) = (op for op in graph.ops if op.name == "SOFTMAX")
    assert graph.tensors[softmax.inputs[0]].dtype == "float32"
    assert {graph.tensors[i].dtype for i in (*graph.inputs, *graph.outputs)} == {"int8"}
    assert set(file.signatures[0].inputs) == {"inputs"}


def test_foreign_ops_by_flag(outcomes: dict[str, dict[str, Any]]) -> None:
    """--allow-flex keeps an op of TensorFlow, --allow-custom makes it a custom op."""
    for case, name in (("flex", "FlexMatrixInverse"), ("custom", "MatrixInverse")):
        assert name in [op.name for op in file_of(outcomes, case, "none").graphs[0].ops]


def test_the_same_file_gives_the_same_bytes(outcomes: dict[str, dict[str, Any]]) -> None:
    """A Keras file exported and converted twice, in two folders."""
    first, second = (outcomes[case]["folder"] / "none.tflite" for case in ("k3.keras", "k3.keras again"))
    assert first.read_bytes() == second.read_bytes()

"""The stages after TensorFlow, on real runtimes; TensorFlow's part is played by a model made by hand."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import tinymodel

from converters import child, loadtest, pipeline, show, truth
from converters.child import DiedError, OnStage
from converters.found import Found
from converters.loadtest import LoadTest, Outcome
from converters.options import Options
from edged import bundle, postprocess
from edged.bundle import Calibration, InputRange, Postprocess
from edged.errors import BadDataError, InternalError, UsageError

X = np.random.default_rng(3).normal(size=(20, 1, 3)).astype(np.float32)


class FakeTensorFlow:
    """Stands for the child `converters.work`: leaves the dense model, the samples and the floats given."""

    calibration = Calibration("train.npz", 20, (InputRange("x", -1.5, 2.0),))

    def __init__(self, floats: np.ndarray[Any, Any], labels: np.ndarray[Any, Any] | None = None) -> None:
        self.floats, self.labels, self.real = floats, labels, child.run

    def __call__(self, module: str, job: Mapping[str, Any], folder: Path, on_stage: OnStage) -> dict[str, Any]:
        if module != "converters.work":
            return self.real(module, job, folder, on_stage)
        folder.mkdir()
        model = tinymodel.dense_model()
        (folder / "model.tflite").write_bytes(model)
        loadtest.save(folder / "inputs.npz", {"x": X})
        loadtest.save(folder / "floats.npz", {"y": self.floats})
        if self.labels is not None:
            loadtest.save(folder / "labels.npz", {"labels": self.labels})
        found = Found(
            signature="serving_default",
            tags=("serve",),
            versions={"tensorflow": "0"},
            facts=truth.read(model),
            image=None,
            calibration=self.calibration,
            evaluation="test.npz",
            notes=("a note",),
        )
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(found)))
        return plain


@pytest.fixture
def options(tmp_path: Path) -> Options:
    """Options for a SavedModel that only looks like one."""
    tinymodel.require_runtime("ai-edge-litert")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "saved_model.pb").write_bytes(b"x" * 5000)
    return Options(tmp_path / "model", tmp_path / "out", "dense", 4)


def run(
    options: Options, monkeypatch: pytest.MonkeyPatch, floats: np.ndarray[Any, Any], labels: Any = None
) -> pipeline.Result:
    monkeypatch.setattr(child, "run", FakeTensorFlow(floats, labels))
    return pipeline.convert(options, [].append, [].append)


def test_a_sound_model_becomes_a_bundle(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundle reads back, its golden answers are numpy's, and text and JSON tell the same facts."""
    expected = tinymodel.dense_expected(X)
    result = run(options, monkeypatch, expected, labels=expected.argmax(-1))
    made = bundle.read(options.output)
    golden = made.golden()
    assert golden is not None
    np.testing.assert_allclose(golden.reference["y"], tinymodel.dense_expected(golden.inputs["x"]), rtol=1e-5)
    assert (made.manifest.name, made.manifest.version) == ("dense", 4)
    assert made.manifest.quality[0].details["accuracy"] == 1.0
    assert made.manifest.calibration == FakeTensorFlow.calibration
    facts = json.loads(show.as_json(result))
    assert facts["requirements"]["loaded_on"] == list(made.manifest.requirements.loaded_on)
    assert facts["bytes"]["savedmodel"] == 5000
    assert facts["warnings"] == ["a note"]
    text = show.as_text(result)
    for part in (str(options.output), "SavedModel 5,000 bytes", "test.npz", "cosine", "ai-edge-litert"):
        assert part in text


def test_labels_come_back_with_the_answers(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --labels alone the bundle lists classes, the person is told, and an answer of the codec names them."""
    labels = options.output.with_name("classes.txt")
    labels.write_text("sit\nwalk\n")
    result = run(dataclasses.replace(options, labels=str(labels)), monkeypatch, tinymodel.dense_expected(X))
    made = bundle.read(options.output)
    assert made.manifest.postprocess == Postprocess(output="y", top_k=2)
    assert "classes: JSON and CBOR answers list the best 2 of 'y'" in show.as_text(result)
    assert json.loads(show.as_json(result))["postprocess"]["top_k"] == 2
    (row,) = postprocess.classes([np.array([[0.2, 0.8]], np.float32)], made.signature)
    assert [found["label"] for found in row] == ["walk", "sit"]


def test_one_hot_labels_end_with_the_line_to_type(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """--eval with Keras' to_categorical: bad data and a way out, no bundle."""
    expected = tinymodel.dense_expected(X)
    with pytest.raises(BadDataError, match=r"y\.argmax\(1\)"):
        run(options, monkeypatch, expected, labels=np.eye(2)[expected[:, 0].argmax(-1)])
    assert not options.output.exists()


def test_missing_directories_are_made_at_the_last_moment(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-o bundles/m` in an empty directory: a refused model leaves no directory, a sound one its bundle."""
    deep = dataclasses.replace(options, output=options.output.parent / "bundles" / "m")
    with pytest.raises(BadDataError):
        run(deep, monkeypatch, -tinymodel.dense_expected(X))
    assert not deep.output.parent.exists()
    run(deep, monkeypatch, tinymodel.dense_expected(X))
    assert bundle.read(deep.output).manifest.name == "dense"


def test_another_savedmodel_fails_its_gate_and_leaves_nothing(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers that are not the SavedModel's: BadDataError with the figure, the output untouched."""
    with pytest.raises(BadDataError, match="output 'y': cosine is"):
        run(options, monkeypatch, -tinymodel.dense_expected(X))
    assert [p.name for p in options.output.parent.iterdir()] == ["model"]


def test_a_runtime_that_answers_rubbish_is_dropped_and_named(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime that is far off is not in loaded_on; the warning has the figure, the tolerance does not."""
    real = LoadTest.run_all

    def with_rubbish(self: LoadTest, folder: Path, on_stage: OnStage) -> list[Outcome]:
        good = real(self, folder, on_stage)[0]
        assert good.reference is not None
        off = {"y": good.reference["y"] + 5}
        return [good, Outcome("rubbish 1", "", off, off), Outcome("gone 2", "does not load: op X")]

    monkeypatch.setattr(LoadTest, "run_all", with_rubbish)
    result = run(options, monkeypatch, tinymodel.dense_expected(X))
    made = bundle.read(options.output)
    assert [name.split()[0] for name in made.manifest.requirements.loaded_on] == ["ai-edge-litert"]
    assert any("rubbish 1 answers wrongly: output 'y' is off by 5" in w for w in result.warnings)
    assert "gone 2 cannot serve this model: does not load: op X" in result.warnings
    golden = made.golden()
    assert golden is not None
    assert golden.tolerance["y"] < 0.01


def test_a_dead_converter_names_stage_signal_and_a_way_out(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """One InternalError, with the modes that may work; nothing is left."""

    def dies(*args: object) -> dict[str, Any]:
        raise DiedError("converting to int8", -11, "")

    monkeypatch.setattr(child, "run", dies)
    given = dataclasses.replace(options, quantize="int8", calibration="x.npz")
    with pytest.raises(
        InternalError, match=r"SIGSEGV while converting to int8 \(--quantize float16 or dynamic may work"
    ):
        pipeline.convert(given, [].append, [].append)
    assert not options.output.exists()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"quantize": "int8"}, "int8 needs calibration data"),
        ({"quantize": "int16x8"}, "int16x8 needs calibration data"),
        ({"io": "quantized"}, "quantized needs integer inputs"),
        ({"io": "quantized", "quantize": "float16"}, "quantized needs integer inputs"),
    ],
)
def test_flags_that_cannot_go_together(options: Options, changes: dict[str, str], says: str) -> None:
    """Refused before any child starts."""
    with pytest.raises(UsageError, match=says):
        pipeline.convert(dataclasses.replace(options, **changes), [].append, [].append)


def test_progress_is_for_terminals() -> None:
    """A pipe gets nothing, a terminal one line that is overwritten, --verbose a line per stage."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def told(stream: io.StringIO, *, plain: bool) -> str:
        progress = show.Progress(stream, plain=plain)
        progress.stage("one")
        progress.done()
        return stream.getvalue()

    assert told(io.StringIO(), plain=False) == ""
    assert told(Terminal(), plain=False) == "\r\033[Kone …\r\033[K"
    assert told(Terminal(), plain=True) == "one …\n"

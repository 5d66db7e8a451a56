"""The stages after TensorFlow, on real runtimes; TensorFlow's part is played by a model made by hand."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import tinymodel

from converters import child, conversions, loadtest, pages, pipeline, place, show, truth
from converters.child import DiedError, OnStage
from converters.found import Converted, Found
from converters.loadtest import LoadTest, Outcome
from converters.options import Options
from converters.pipeline import CrashedError, RefusedError
from converters.report import Source
from edged import bundle, postprocess
from edged.bundle import Calibration, InputRange, Postprocess
from edged.errors import BadDataError, InternalError, UnavailableError, UsageError
from edged.limits import Limits

X = np.random.default_rng(3).normal(size=(20, 1, 3)).astype(np.float32)


class FakeTensorFlow:
    """Stands for the child `converters.work`: leaves the dense model, the samples and the floats given.

    dies: modes that kill it; it leaves what the real one has written by then.
    """

    calibration = Calibration("train.npz", 20, (InputRange("x", -1.5, 2.0),))

    def __init__(
        self,
        floats: np.ndarray[Any, Any],
        labels: np.ndarray[Any, Any] | None = None,
        dies: tuple[str, ...] = (),
        model: bytes = b"",
    ) -> None:
        self.floats, self.labels, self.real, self.dies = floats, labels, child.run, dies
        self.model = model or tinymodel.dense_model()
        self.starts: list[list[str]] = []

    def __call__(
        self, module: str, job: Mapping[str, Any], folder: Path, on_stage: OnStage, limits: Limits | None = None
    ) -> dict[str, Any]:
        if module != "converters.work":
            return self.real(module, job, folder, on_stage, limits)
        folder.mkdir(exist_ok=True)
        self.starts.append(job["modes"])
        for mode in job["modes"]:
            self._convert(mode, folder / mode)
        loadtest.save(folder / "inputs.npz", {"x": X})
        loadtest.save(folder / "floats.npz", {"y": self.floats})
        if self.labels is not None:
            loadtest.save(folder / "labels.npz", {"labels": self.labels})
        return _plain(
            Found(
                source=Source("model", "SavedModel", 5000, "serving_default", ("serving_default",), ("serve",)),
                versions={"tensorflow": "0"},
                image=None,
                calibration=self.calibration,
                evaluation="test.npz",
                notes=("a note",),
            )
        )

    def _convert(self, mode: str, folder: Path) -> None:
        folder.mkdir()
        (folder / conversions.BEGUN).touch()
        if mode in self.dies:
            raise DiedError(f"converting to {mode}", -11, "")
        (folder / conversions.MODEL).write_bytes(self.model)
        (folder / conversions.RESULT).write_text(json.dumps(_plain(Converted(mode, truth.read(self.model)))))


def _plain(value: Any) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(value)))
    return plain


@pytest.fixture
def options(tmp_path: Path) -> Options:
    """Options for a SavedModel that only looks like one."""
    tinymodel.require_runtime("ai-edge-litert")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "saved_model.pb").write_bytes(b"x" * 5000)
    return Options(tmp_path / "model", tmp_path / "out", "dense", 4)


def run(
    options: Options, monkeypatch: pytest.MonkeyPatch, floats: np.ndarray[Any, Any], labels: Any = None, **more: Any
) -> pipeline.Result:
    monkeypatch.setattr(child, "run", FakeTensorFlow(floats, labels, **more))
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
    assert made.manifest.calibration == Calibration()  # a mode that needs no data was not calibrated
    facts = json.loads(show.as_json(result.report, result))
    assert facts["manifest"]["requirements"]["loaded_on"] == list(made.manifest.requirements.loaded_on)
    assert facts["source"]["size"] == 5000
    assert facts["warnings"] == ["a note"]
    assert facts["chosen"] == "none"
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
    assert json.loads(show.as_json(result.report, result))["manifest"]["postprocess"]["top_k"] == 2
    (row,) = postprocess.classes([np.array([[0.2, 0.8]], np.float32)], made.signature)
    assert [found["label"] for found in row] == ["walk", "sit"]


def test_one_hot_labels_end_with_the_line_to_type(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """--eval with Keras' to_categorical: bad data and a way out, no bundle."""
    expected = tinymodel.dense_expected(X)
    with pytest.raises(BadDataError, match=r"y\.argmax\(1\)"):
        run(options, monkeypatch, expected, labels=np.eye(2)[expected[:, 0].argmax(-1)])
    assert not options.output.exists()


def test_another_savedmodel_fails_its_gate_and_leaves_only_the_report(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers that are not the SavedModel's: the figure in one line, no bundle, and a report that says all."""
    with pytest.raises(RefusedError, match="output 'y': cosine is") as caught:
        run(options, monkeypatch, -tinymodel.dense_expected(X))
    beside = sorted(p.name for p in options.output.parent.iterdir())
    assert beside == ["model", "out-refused.html", "out-refused.json"]
    assert f"report: {options.output}-refused.html" in str(caught.value)
    assert caught.value.report.chosen == ""
    facts = json.loads((options.output.parent / "out-refused.json").read_text())
    assert facts["chosen"] == ""
    assert "output 'y': cosine is" in facts["attempts"][0]["reasons"][0]


def test_a_report_of_a_refusal_goes_when_the_model_is_mended(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-o bundles/m` in an empty directory, refused, then sound: a bundle, and nothing beside it that is not true."""
    deep = dataclasses.replace(options, output=options.output.parent / "bundles" / "m")
    with pytest.raises(BadDataError):
        run(deep, monkeypatch, -tinymodel.dense_expected(X))
    assert not deep.output.exists()
    run(deep, monkeypatch, tinymodel.dense_expected(X))
    assert [p.name for p in deep.output.parent.iterdir()] == ["m"]
    assert bundle.read(deep.output).manifest.name == "dense"


def test_the_report_is_kept_where_it_is_asked_for(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """--report gets page and JSON, with times; the bundle's own copies have none and are verified files of it."""
    page = options.output.parent / "r.html"
    run(dataclasses.replace(options, report=str(page)), monkeypatch, tinymodel.dense_expected(X))
    made = bundle.read(options.output)
    assert {"report.html", "report.json"} <= set(made.manifest.files)
    assert "p50_us" in page.with_suffix(".json").read_text()
    assert "p50_us" not in (options.output / "report.json").read_text()
    assert page.read_text().lower().startswith("<!doctype html>")
    again = dataclasses.replace(options, force=True, report=str(options.output.parent / "out-refused.html"))
    run(again, monkeypatch, tinymodel.dense_expected(X))
    assert (options.output.parent / "out-refused.html").exists()  # asked for by its name
    for name in ("r.txt", "nowhere/r.html"):
        with pytest.raises(UsageError, match="--report"):
            run(dataclasses.replace(options, force=True, report=str(page.parent / name)), monkeypatch, X)


def test_a_runtime_that_answers_rubbish_is_dropped_and_named(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime that is far off is not in loaded_on; the warning has the figure, the tolerance does not."""
    real = LoadTest.run_all

    def with_rubbish(self: LoadTest, folder: Path, on_stage: OnStage, names: Any = ()) -> list[Outcome]:
        good = real(self, folder, on_stage)[0]
        assert good.reference is not None
        off = {"y": good.reference["y"] + 5}
        return [
            good,
            Outcome("rubbish 1", "", off, off, good.evaluation),
            Outcome("gone 2", "does not load: op X"),
        ]

    monkeypatch.setattr(LoadTest, "run_all", with_rubbish)
    result = run(options, monkeypatch, tinymodel.dense_expected(X))
    made = bundle.read(options.output)
    assert [name.split()[0] for name in made.manifest.requirements.loaded_on] == ["ai-edge-litert"]
    notes = result.report.shown.notes
    assert any("rubbish 1 cannot serve this model: answers wrongly: output 'y' is off by 5" in n for n in notes)
    assert "gone 2 cannot serve this model: does not load: op X" in notes
    golden = made.golden()
    assert golden is not None
    assert golden.tolerance["y"] < 0.01


def test_a_dead_converter_names_stage_signal_and_the_modes_that_work(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One error with the modes that were tried and pass; TensorFlow is started again for them; nothing is left."""
    given = dataclasses.replace(options, quantize="int16x8", calibration="x.npz")
    fake = FakeTensorFlow(tinymodel.dense_expected(X), dies=("int16x8",))
    monkeypatch.setattr(child, "run", fake)
    with pytest.raises(CrashedError) as caught:
        pipeline.convert(given, [].append, [].append)
    assert "SIGSEGV while converting to int16x8 (--quantize none keeps every limit" in str(caught.value)
    assert "--quantize float16 keeps every limit" in str(caught.value)
    assert fake.starts[:2] == [["int16x8"], []]
    assert not options.output.exists()


def test_a_death_that_is_no_mode_s_fault_ends_the_conversion(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow cannot even load the model: it is not started again and again."""

    def dies(*args: object) -> dict[str, Any]:
        raise DiedError("loading the SavedModel", -11, "")

    monkeypatch.setattr(child, "run", dies)
    with pytest.raises(InternalError, match="SIGSEGV while loading the SavedModel"):
        pipeline.convert(options, [].append, [].append)


def test_auto_goes_on_after_a_death_and_chooses(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without data auto tries the modes that need none; the one that kills the converter is a row, not the end."""
    given = dataclasses.replace(options, quantize="auto")
    result = run(given, monkeypatch, tinymodel.dense_expected(X), dies=("float16",))
    assert [(a.quantize, a.state) for a in result.report.attempts] == [
        ("none", "passed"),
        ("float16", "died"),
        ("dynamic", "passed"),
    ]
    assert result.report.chosen == bundle.read(options.output).manifest.quantize
    assert "chosen" in show.attempts(result.report)


def test_a_runtime_of_the_fleet_must_pass(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --target a refusal of that runtime is no warning but the end; a release that is too old is told by table."""
    expected = tinymodel.dense_expected(X)
    only = run(dataclasses.replace(options, targets=("ai-edge-litert",)), monkeypatch, expected)
    assert [name.split()[0] for name in only.manifest.requirements.loaded_on] == ["ai-edge-litert"]
    old = dataclasses.replace(options, targets=("tflite-runtime==2.11.0",), force=True)
    model = tinymodel.dense_model()
    facts = truth.read(model)
    newer = dataclasses.replace(facts, ops={**facts.ops, "FULLY_CONNECTED": 12})
    monkeypatch.setattr(truth, "read", lambda *_: newer)
    with pytest.raises(RefusedError, match=r"tflite-runtime 2\.11\.0 lacks .*FULLY_CONNECTED"):
        run(old, monkeypatch, expected)


def test_a_delegate_of_the_fleet_must_take_something(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """A float model for an Edge TPU would run on the CPU in silence: refused, as Coral's table of ops says."""
    given = dataclasses.replace(options, targets=("edgetpu",))
    with pytest.raises(RefusedError, match="edgetpu: takes no op; FULLY_CONNECTED"):
        run(given, monkeypatch, tinymodel.dense_expected(X))
    run(dataclasses.replace(options, targets=("gpu",)), monkeypatch, tinymodel.dense_expected(X))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"quantize": "int8"}, "int8 needs calibration data"),
        ({"quantize": "int16x8"}, "int16x8 needs calibration data"),
        ({"io": "quantized"}, "quantized needs integer inputs"),
        ({"io": "quantized", "quantize": "float16"}, "quantized needs integer inputs"),
        ({"io": "quantized", "quantize": "auto"}, "--quantize auto needs --calibration"),
    ],
)
def test_flags_that_cannot_go_together(options: Options, changes: dict[str, str], says: str) -> None:
    """Refused before any child starts."""
    with pytest.raises(UsageError, match=says):
        pipeline.convert(dataclasses.replace(options, **changes), [].append, [].append)


def test_a_report_that_cannot_be_kept_is_no_failure(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundle is there and sound: the conversion says what it could not keep, and is a success."""
    theirs = options.output.with_name("r.html")
    given = dataclasses.replace(options, report=str(theirs))
    real = place.write

    def write(*args: Any, **more: Any) -> None:
        real(*args, **more)
        theirs.mkdir()

    monkeypatch.setattr(place, "write", write)
    result = run(given, monkeypatch, tinymodel.dense_expected(X))
    assert bundle.read(options.output).manifest.name == "dense"
    assert "r.html: has appeared meanwhile" in result.unkept
    assert sorted(p.name for p in options.output.parent.iterdir()) == ["model", "out", "r.html"]


def test_the_reason_of_a_refusal_outlives_its_report(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no room for the report: the refusal is told all the same."""

    def full(*_: object) -> None:
        raise UnavailableError("out-refused.html", "No space left on device")

    monkeypatch.setattr(pages, "keep_refused", full)
    with pytest.raises(RefusedError, match=r"cosine.*no report, out-refused\.html: No space left"):
        run(options, monkeypatch, tinymodel.dense_expected(X) @ np.array([[0, 1], [-1, 0]], np.float32))


def test_tensorflow_killed_from_outside_is_started_again(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL is no verdict on a mode: it is converted again, once, and the bundle is what it would have been."""
    fake = FakeTensorFlow(tinymodel.dense_expected(X))
    kills = [1, 1]

    def killed(module: str, *args: Any) -> dict[str, Any]:
        if module == "converters.work" and kills:
            kills.pop()
            raise DiedError("converting", -9, "")
        return fake(module, *args)

    monkeypatch.setattr(child, "run", killed)
    with pytest.raises(InternalError, match="SIGKILL"):
        pipeline.convert(options, [].append, [].append)
    kills.append(1)
    assert pipeline.convert(options, [].append, [].append).report.chosen == "none"

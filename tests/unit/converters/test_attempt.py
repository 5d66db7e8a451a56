"""The verdict on one file: which runtimes must pass, what is told by table, what a death costs. Real runtimes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import tinymodel

from converters import attempt, compat, loadtest, truth
from converters.attempt import Bench, Made
from converters.found import Converted
from converters.judge import Evaluation
from converters.loadtest import LoadTest, Outcome
from converters.options import Options
from converters.report import Attempt
from converters.texts import Texts
from edged.bundle import Postprocess

X = np.random.default_rng(3).normal(size=(20, 1, 3)).astype(np.float32)
EXPECTED = tinymodel.dense_expected(X)


def tried(
    folder: Path, targets: Sequence[str] = (), floats: np.ndarray[Any, Any] = EXPECTED, **options: Any
) -> tuple[Attempt, Made | None]:
    """Try the dense model, whose answers numpy knows, for a fleet."""
    tinymodel.require_runtime("ai-edge-litert")
    model = folder / "none" / "model.tflite"
    model.parent.mkdir(parents=True)
    model.write_bytes(tinymodel.dense_model())
    evaluation = Evaluation({"x": X}, {"y": floats})
    given = Options(folder / "m", folder / "out", "m", 1, targets=tuple(targets), **options)
    bench = Bench(given, Texts((), None, Postprocess()), evaluation, compat.targets(targets))
    converted = Converted("none", truth.read(tinymodel.dense_model()))
    return attempt.try_out(bench, converted, model, [].append)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """tflite-runtime, the second to run, does not survive the model."""
    tinymodel.require_runtime("tflite-runtime")
    real = LoadTest._run

    def run(self: LoadTest, runtime: Any, folder: Path, on_stage: Any, *, first: bool) -> Outcome:
        if runtime.name == "tflite-runtime":
            return Outcome("tflite-runtime 2.14.0", "was killed by SIGSEGV while loading the model")
        return real(self, runtime, folder, on_stage, first=first)

    monkeypatch.setattr(loadtest.LoadTest, "_run", run)


def test_a_sound_model_passes_everywhere(tmp_path: Path) -> None:
    """Each runtime as a device runs it, the first with its own kernels too; the golden references are numpy's."""
    found, made = tried(tmp_path)
    assert (found.state, found.reasons) == ("passed", ())
    assert {(run.runtime.split()[0], run.delegate) for run in found.targets} >= {
        ("ai-edge-litert", "default"),
        ("ai-edge-litert", "reference"),
    }
    assert made is not None
    np.testing.assert_allclose(made.known.reference["y"], tinymodel.dense_expected(made.known.inputs["x"]), rtol=1e-5)
    assert found.model_bytes == len(tinymodel.dense_model())
    assert sum(found.histograms[0].counts) == EXPECTED.size


@pytest.mark.usefixtures("broken")
def test_of_runtimes_that_nobody_named_one_is_enough(tmp_path: Path) -> None:
    """The death of the other is a note, and one row; the bundle does not claim that runtime."""
    found, made = tried(tmp_path)
    assert found.state == "passed"
    assert any("tflite-runtime 2.14.0 cannot serve this model: was killed by SIGSEGV" in note for note in found.notes)
    rows = [run for run in found.targets if run.runtime.startswith("tflite-runtime")]
    assert [(run.state, run.delegate) for run in rows] == [("refused", "default")]
    assert made is not None
    assert [name.split()[0] for name in made.loaded_on] == ["ai-edge-litert"]


@pytest.mark.usefixtures("broken")
def test_a_runtime_that_was_named_must_survive(tmp_path: Path) -> None:
    """Named, the same death is the end, alone or beside another."""
    for number, targets in enumerate((("tflite-runtime",), ("ai-edge-litert", "tflite-runtime"))):
        found, made = tried(tmp_path / str(number), targets)
        assert (found.state, made) == ("refused", None)
        assert any("SIGSEGV" in reason for reason in found.reasons)


def test_a_release_that_is_not_here_is_told_by_table(tmp_path: Path) -> None:
    """The installed one proves what it can; the fleet's own release is a row that says it did not run."""
    found, made = tried(tmp_path, ["ai-edge-litert==1.0.0"])
    assert found.state == "passed"
    assert made is not None
    (row,) = [run for run in found.targets if run.runtime == "ai-edge-litert 1.0.0"]
    assert row.state == "not run"
    assert "by table" in row.reason


def test_wrong_answers_are_named_once(tmp_path: Path) -> None:
    """Every runtime says the same: one reason, not one for each."""
    found, made = tried(tmp_path, floats=-EXPECTED)
    assert (found.state, made) == ("refused", None)
    (reason,) = found.reasons
    assert reason.startswith("output 'y': ")
    assert "runtime" not in reason


def test_an_output_of_another_shape_is_refused(tmp_path: Path) -> None:
    """The file answers [1, 2] where the SavedModel answers [1, 2, 1]."""
    found, made = tried(tmp_path, floats=EXPECTED[..., np.newaxis])
    assert (found.state, made) == ("refused", None)
    assert "output 'y' has shape [1, 2], the SavedModel's has [1, 2, 1]" in found.reasons[0]


def test_a_release_that_nobody_measured_is_a_note(tmp_path: Path) -> None:
    """A slip of the finger looks like a release of tomorrow: it is judged as the newest known one, and that is said."""
    found, _ = tried(tmp_path / "new", ["ai-edge-litert==99.0"])
    assert any(
        "--target ai-edge-litert 99.0 was not measured: judged as ai-edge-litert" in note for note in found.notes
    )
    known, _ = tried(tmp_path / "known", ["ai-edge-litert", "gpu"])
    assert not any("--target" in note for note in known.notes)

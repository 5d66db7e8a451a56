"""The converted model on the runtimes that are really installed, each in a child."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import tinymodel

from converters import child
from converters.child import DiedError
from converters.loadtest import LoadTest, load, save
from edged.engines import tflite_runtime

X = np.random.default_rng(0).normal(size=(5, 1, 3)).astype(np.float32)


def load_test(folder: Path, model: bytes) -> LoadTest:
    (folder / "m.tflite").write_bytes(model)
    return LoadTest(folder / "m.tflite", "serving_default", {"x": X[:2]}, {"x": X})


def test_every_runtime_answers_as_numpy_does(tmp_path: Path) -> None:
    """Every runtime, with its delegate and without, on the golden samples; all evaluation samples as a device runs."""
    tinymodel.require_runtime("ai-edge-litert")
    outcomes = load_test(tmp_path, tinymodel.dense_model()).run_all(tmp_path, [].append)
    assert [o.runtime.split()[0] for o in outcomes] == [runtime.name for runtime in tflite_runtime.installed()]
    for found in outcomes:
        assert found.reason == ""
        for answers in (found.reference, found.default):
            assert answers is not None
            np.testing.assert_allclose(answers["y"], tinymodel.dense_expected(X[:2]), rtol=1e-5)
        assert found.evaluation is not None
        np.testing.assert_allclose(found.evaluation["y"], tinymodel.dense_expected(X), rtol=1e-5)
        assert found.p50_us > 0
    assert outcomes[0].own_kernels is not None
    np.testing.assert_allclose(outcomes[0].own_kernels["y"], tinymodel.dense_expected(X), rtol=1e-5)
    assert all(found.own_kernels is None for found in outcomes[1:])


def test_only_the_runtimes_that_were_asked_for(tmp_path: Path) -> None:
    """A fleet of one runtime is not judged by another."""
    tinymodel.require_runtime("ai-edge-litert")
    outcomes = load_test(tmp_path, tinymodel.dense_model()).run_all(tmp_path, [].append, ["ai-edge-litert"])
    assert [o.runtime.split()[0] for o in outcomes] == ["ai-edge-litert"]


def test_a_model_that_no_runtime_loads_names_each_reason(tmp_path: Path) -> None:
    """A truncated file kills one runtime and is refused by the other: a reason for each, no crash here."""
    tinymodel.require_runtime("ai-edge-litert")
    outcomes = load_test(tmp_path, tinymodel.dense_model()[:300]).run_all(tmp_path, [].append)
    assert [o.runtime.split()[0] for o in outcomes] == [runtime.name for runtime in tflite_runtime.installed()]
    assert all(o.reason and o.reference is None for o in outcomes)


def test_arrays_of_any_name_survive_the_file(tmp_path: Path) -> None:
    """Names with slashes and colons, and the one that numpy's savez keeps for itself."""
    arrays = {"file": X, "a/b:0": X[:1], "x": np.zeros((2, 0), np.int8)}
    save(tmp_path / "f.npz", arrays)
    found = load(tmp_path / "f.npz")
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


@pytest.mark.parametrize(("code", "broken"), [(-9, ""), (-15, ""), (-9, "was not done after 2 s")])
def test_a_death_by_chance_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, broken: str
) -> None:
    """A child that was killed from outside, or reached a limit, is started once more, and the second answer counts."""
    tinymodel.require_runtime("ai-edge-litert")
    real, starts = child.run, []

    def run(*args: Any) -> dict[str, Any]:
        starts.append(args)
        if len(starts) <= deaths:
            raise DiedError("running", code, "", broken)
        return real(*args)

    monkeypatch.setattr(child, "run", run)
    for deaths, reason in ((1, ""), (2, "running, twice")):
        starts.clear()
        folder = tmp_path / str(deaths)
        folder.mkdir()
        (found,) = load_test(folder, tinymodel.dense_model()).run_all(folder, [].append, ["ai-edge-litert"])
        assert found.reason.endswith(reason)
        assert bool(found.reference) == (not reason)
        assert len(starts) == 2


def test_a_crash_is_a_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGSEGV is the model's or the runtime's doing: it is not tried again."""
    tinymodel.require_runtime("ai-edge-litert")
    starts: list[object] = []

    def run(*args: Any) -> dict[str, Any]:
        starts.append(args)
        raise DiedError("running", -11, "")

    monkeypatch.setattr(child, "run", run)
    (found,) = load_test(tmp_path, b"x").run_all(tmp_path, [].append, ["ai-edge-litert"])
    assert (found.reason, len(starts)) == ("was killed by SIGSEGV while running", 1)

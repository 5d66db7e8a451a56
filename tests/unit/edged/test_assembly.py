"""From a configuration to parts: everything that can be told before anything runs is told, and nothing is started."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from support import require, tinymodel

from edged import assembly, config, fitting
from edged.admission import Sweeper
from edged.affinity import ThreadPolicy
from edged.bundle import Bundle
from edged.config import Config, ModelConfig
from edged.engines import tflite_runtime
from edged.errors import BadDataError, ConfigError, UnavailableError
from edged.fitting import Fit
from edged.router import Router
from edged.worker import ModelState


def configured(folder: Path, models: list[dict[str, Any]], **more: Any) -> Config:
    body = {"device": "box", "broker": {"url": "mqtt://x"}, "state_dir": "state", "models": models, **more}
    return config.loads(json.dumps(body), "edged.yaml", folder)  # JSON is YAML


def assembled(folder: Path, models: list[dict[str, Any]], **more: Any) -> assembly.Parts:
    router = Router()
    sweeper = Sweeper(router.fail)
    return assembly.assemble(configured(folder, models, **more), router, sweeper, lambda *_: True, lambda _: None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    require.any_runtime()
    tinymodel.write_dense_bundle(tmp_path / "dense")
    tinymodel.write_int8_bundle(tmp_path / "int8")
    return tmp_path


STREAM = {
    "name": "imu", "topic": "sensors/+/x", "key_level": 1, "fields": ["a"], "model": "d",
    "window": {"length": 3, "hop": 3},
}  # fmt: skip


def test_each_model_gets_a_worker_and_nothing_runs(folder: Path) -> None:
    """A worker a model, by its name in the configuration; no thread, no child, no file."""
    threads = threading.active_count()
    parts = assembled(folder, [{"name": "d", "bundle": "dense"}, {"name": "q", "bundle": "int8"}], streams=[STREAM])
    assert set(parts.workers) == {"d", "q"}
    assert {worker.state for worker in parts.workers.values()} == {ModelState.STARTING}
    assert len(parts.streams) == 1
    assert threading.active_count() == threads
    assert not (folder / "state").exists()


def test_how_a_bundle_fits_is_found_out_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take a look into the model's file."""
    looked = []

    def fit(model: ModelConfig, loaded: Bundle) -> Fit:
        looked.append(model.name)
        return fitting.fit(model, loaded)

    monkeypatch.setattr(assembly, "fit", fit)
    assembled(folder, [{"name": "d", "bundle": "dense"}, {"name": "q", "bundle": "int8"}])
    assert looked == ["d", "q"]


def test_every_bad_bundle_is_named_at_once(folder: Path) -> None:
    """Two of three are wrong: both stand in the one error."""
    (folder / "int8" / "model.tflite").write_bytes(b"x")
    models = [{"name": "d", "bundle": "dense"}, {"name": "q", "bundle": "int8"}, {"name": "n", "bundle": "nowhere"}]
    with pytest.raises(BadDataError, match="2 of 3 bundles") as caught:
        assembly.read_bundles(configured(folder, models))
    assert str(folder / "int8") in str(caught.value)
    assert "nowhere: no such bundle" in str(caught.value)


def test_a_stream_that_does_not_fit_its_model_is_a_mistake_of_the_configuration(folder: Path) -> None:
    """Four samples of one field for an input of three values."""
    stream = {**STREAM, "window": {"length": 4, "hop": 4}}
    with pytest.raises(ConfigError, match=r"streams\.imu: "):
        assembled(folder, [{"name": "d", "bundle": "dense"}], streams=[stream])


def test_a_runtime_may_be_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` may be any installed one; a name is that one, or an error that says what to install."""
    for runtime in tflite_runtime.installed():
        model = configured(folder, [{"name": "d", "bundle": "dense", "runtime": runtime.name}]).models[0]
        assert assembly.runtimes(model) == (runtime,)
    model = configured(folder, [{"name": "d", "bundle": "dense"}]).models[0]
    assert assembly.runtimes(model) == tflite_runtime.installed()
    other = tflite_runtime.Runtime("other", "edged")
    monkeypatch.setattr(tflite_runtime, "RUNTIMES", (other,))
    model = configured(folder, [{"name": "d", "bundle": "dense", "runtime": "tflite-runtime"}]).models[0]
    with pytest.raises(UnavailableError, match="tflite-runtime is not installed"):
        assembly.runtimes(model)


@pytest.mark.parametrize(
    ("priorities", "behind"),
    [(("normal",), (0,)), (("low", "low"), (0, 0)), (("low", "high"), (1, 0)), (("low", "normal", "high"), (2, 1, 0))],
)
def test_priorities_order_the_models_among_each_other(
    folder: Path, priorities: tuple[str, ...], behind: tuple[int, ...]
) -> None:
    """The most urgent level in use stands first, whatever its name: a device with one level loses nothing by it."""
    models = [
        {"name": f"m{n}", "bundle": "dense", "priority": priority, "cpus": [0], "realtime": "nice"}
        for n, priority in enumerate(priorities)
    ]
    parts = assembled(folder, models)
    found = [worker.plan.policy for worker in parts.workers.values()]
    assert [policy.behind for policy in found] == list(behind)
    assert {(policy.cpus, policy.realtime) for policy in found} == {((0,), "nice")}


@pytest.mark.parametrize(
    ("models", "network", "expected"),
    [
        (["auto"], {}, "auto"), (["off"], {}, "off"), (["off", "nice"], {}, "auto"), (["auto", "fifo"], {}, "fifo"),
        (["off"], {"realtime": "nice"}, "nice"), (["nice"], {"realtime": "fifo"}, "fifo"),
    ],
)  # fmt: skip
def test_the_network_thread_is_behind_no_model(
    folder: Path, models: list[str], network: dict[str, Any], expected: str
) -> None:
    """It is as urgent as the most urgent of them, unless all are ordinary; pinned where it is told to be."""
    rows = [{"name": f"m{n}", "bundle": "dense", "realtime": mode} for n, mode in enumerate(models)]
    config = configured(folder, rows, network={"cpus": [0], **network})
    policy = assembly.network_policy(config)
    assert (policy.realtime, policy.behind, policy.cpus) == (expected, -1, (0,))
    assert assembly.main_policy(config) == ThreadPolicy(realtime="off" if expected == "off" else "nice")

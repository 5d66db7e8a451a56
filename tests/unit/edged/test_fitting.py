"""How a model is served follows from its configuration and its bundle, and what does not go together is said."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from support import tinymodel

from edged import bundle, config
from edged.bundle import Bundle, Postprocess
from edged.config import ModelConfig
from edged.config_models import BatchConfig
from edged.errors import ConfigError
from edged.fitting import CPU, fit
from edged.worker import OneByOne


def model(**more: Any) -> ModelConfig:
    batch = BatchConfig(**{name: more.pop(name) for name in ("max_batch_size",) if name in more})
    return ModelConfig(name="m", bundle=Path("b"), batch=batch, **more)


def rows(folder: Path, count: int, **more: Any) -> Bundle:
    return bundle.read(tinymodel.write_rows_bundle(folder / "rows", count, **more))


def changed(loaded: Bundle, **more: Any) -> Bundle:
    return dataclasses.replace(loaded, manifest=dataclasses.replace(loaded.manifest, **more))


def test_nothing_is_gathered_unless_asked_for(tmp_path: Path) -> None:
    """A bundle with a batch of eight takes requests of eight rows, as it says."""
    loaded = rows(tmp_path, 8)
    found = fit(model(), loaded)
    assert (found.server, found.opened, found.signature, found.wanted) == (OneByOne, loaded, loaded.signature, None)


def test_a_request_is_one_row_of_a_batch(tmp_path: Path) -> None:
    """The engine opens the bundle as it is; the wire has a leading dimension of one. Any delegate may serve."""
    loaded = rows(tmp_path, 8)
    found = fit(model(max_batch_size=4, delegates=("edgetpu", "cpu")), loaded)
    assert found.opened is loaded
    assert [spec.shape for spec in (*found.signature.inputs, *found.signature.outputs)] == [(1, 3), (1, 2)]
    assert found.wanted == (("edgetpu", {}), ("cpu", {}))


def test_an_open_batch_is_opened_as_wide_as_asked_for(tmp_path: Path) -> None:
    """By the CPU alone."""
    found = fit(model(max_batch_size=4), rows(tmp_path, 1, is_open=True))
    assert [spec.shape for spec in (*found.opened.manifest.inputs, *found.opened.manifest.outputs)] == [(4, 3), (4, 2)]
    assert [spec.shape for spec in (*found.signature.inputs, *found.signature.outputs)] == [(1, 3), (1, 2)]
    assert found.wanted == CPU


def test_a_model_with_state_is_the_cpus(tmp_path: Path) -> None:
    """`auto` looks for no accelerator; the CPU with options is what it was."""
    loaded = bundle.read(tinymodel.write_memory_bundle(tmp_path / "memory"))
    assert fit(model(), loaded).wanted == CPU
    assert fit(model(delegates={"cpu": {"xnnpack": False}}), loaded).wanted == (("cpu", {"xnnpack": False}),)


@pytest.mark.parametrize("delegates", [("gpu", "cpu"), ("edgetpu",), {"external": {"library": "/x.so"}}])
def test_an_accelerator_named_for_a_model_with_state_is_a_mistake(tmp_path: Path, delegates: Any) -> None:
    """It is named, with the reason and what to write."""
    loaded = bundle.read(tinymodel.write_memory_bundle(tmp_path / "memory"))
    with pytest.raises(ConfigError, match=r"models\.m\.delegates: .*cannot serve a model that keeps state.*\[cpu\]"):
        fit(model(delegates=delegates), loaded)


def test_an_accelerator_named_for_an_open_batch_is_a_mistake(tmp_path: Path) -> None:
    """Delegates need sizes that stay."""
    with pytest.raises(ConfigError, match=r"models\.m\.delegates: gpu .*leaves its batch open"):
        fit(model(max_batch_size=2, delegates=("gpu", "cpu")), rows(tmp_path, 1, is_open=True))


def test_a_state_has_no_rows(tmp_path: Path) -> None:
    """Requests of several keys cannot be rows of one inference."""
    loaded = bundle.read(tinymodel.write_memory_bundle(tmp_path / "memory"))
    with pytest.raises(ConfigError, match=r"models\.m\.batch: a model that keeps state takes one request at a time"):
        fit(model(max_batch_size=2), loaded)


@pytest.mark.parametrize("count", [1, 4])
def test_a_batch_that_is_too_small(tmp_path: Path, count: int) -> None:
    """Both numbers, and how to convert it."""
    what = rf"models\.m\.batch: max_batch_size is 8, the bundle's batch is {count}.*--batch 8"
    with pytest.raises(ConfigError, match=what):
        fit(model(max_batch_size=8), rows(tmp_path, count))


def test_an_output_without_the_batch(tmp_path: Path) -> None:
    """Named, with both shapes."""
    outs = (tinymodel.spec("y", (4, 2)), tinymodel.spec("count", (2,), "int32"))
    loaded = changed(rows(tmp_path, 4), outputs=outs)
    with pytest.raises(ConfigError, match=r"output 'count' has no batch dimension of the same size: \[2\], beside"):
        fit(model(max_batch_size=2), loaded)


def test_an_input_without_the_batch(tmp_path: Path) -> None:
    """A scalar beside it, which all rows would share."""
    ins = (tinymodel.spec("x", (4, 3)), tinymodel.spec("gain", ()))
    with pytest.raises(ConfigError, match=r"input 'gain' has no batch dimension"):
        fit(model(max_batch_size=2), changed(rows(tmp_path, 4), inputs=ins))


@pytest.mark.parametrize("post", [Postprocess(softmax=True), Postprocess(output="y", top_k=2)])
def test_classes_along_the_batch(tmp_path: Path, post: Postprocess) -> None:
    """An output of nothing but rows has no classes."""
    loaded = changed(rows(tmp_path, 4), outputs=(tinymodel.spec("y", (4,)),), postprocess=post)
    with pytest.raises(ConfigError, match="its postprocessing ranks the batch itself"):
        fit(model(max_batch_size=2), loaded)


def test_a_batch_that_a_queue_can_never_fill_is_a_mistake(tmp_path: Path) -> None:
    """Said when the configuration is read, with both keys."""
    text = (
        "device: box\nbroker: {url: mqtt://x}\n"
        "models: [{name: m, bundle: b, queue: {max_requests: 4}, batch: {max_batch_size: 8}}]\n"
    )
    with pytest.raises(ConfigError, match=r"batch\.max_batch_size: 8 rows.* at most 4 \(queue\.max_requests\)"):
        config.loads(text, "edged.yaml", tmp_path)

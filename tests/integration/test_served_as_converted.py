"""What `edged convert` made of a batch, or of state, served by a worker: with its golden samples checked first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import savedmodels
from support.commands import edged
from support.requests import Inbox

from edged import bundle
from edged.admission import Admission, Bounds, Sweeper
from edged.config import ModelConfig
from edged.config_models import BatchConfig
from edged.engines import opening
from edged.engines.candidate import Candidate
from edged.engines.tflite_runtime import Runtime
from edged.figures import ModelFigures
from edged.fitting import fit
from edged.router import Router
from edged.worker import Worker, WorkerPlan


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("converted")


def converted(folder: Path, model: str, *flags: str) -> Path:
    """The bundle, converted once."""
    out = folder / "".join((model, *flags)).replace("-", "")
    if not out.exists():
        done = edged("convert", savedmodels.made() / model, "-o", out, "--name", "m", "--version", "1", *flags)
        assert done.returncode == 0, done.stderr
    return out


def served(path: Path, runtime: Runtime, requests: Any, size: int = 1) -> tuple[list[bytes], dict[str, Any]]:
    """The answers to requests that wait when the worker starts, and what its server tells afterwards."""
    loaded, router, inbox = bundle.read(path), Router(), Inbox()
    assert loaded.golden() is not None
    way = fit(ModelConfig(name="m", bundle=path, batch=BatchConfig(max_batch_size=size)), loaded)
    sweeper = Sweeper(router.fail)
    plan = WorkerPlan(
        "m", loaded,
        lambda nudge, _note: way.arrange(lambda: opening.open_here(way.opened, Candidate(runtime.name)), nudge),
        warmup=3, server=way.server, signature=way.signature,
    )  # fmt: skip
    worker = Worker(
        plan, Admission(Bounds(500, 1 << 30, "reject"), sweeper, router.fail), ModelFigures(), lambda _: None
    )
    router.serve({"m": worker})
    for one in requests:
        router.submit(inbox.request(one.tobytes(), key="c/ann", deadline_ms=60_000))
    worker.start()
    replies = [inbox.get(60) for _ in requests]
    facts = dict(worker.facts())
    assert worker.stop(10)
    assert [reply.error for reply in replies if reply.error is not None] == []
    return [reply.payload for reply in replies], facts


@pytest.mark.parametrize("batch", [("--batch", "8"), ("--dynamic-batch",)], ids=["fixed", "open"])
@pytest.mark.parametrize(("model", "flags"), [("dense", ()), ("wide", ("--quantize", "dynamic"))])
def test_rows_are_the_answers_of_a_batch_of_one(
    model: str, flags: tuple[str, ...], batch: tuple[str, ...], runtime: Runtime, folder: Path
) -> None:
    """Fifty requests in seven inferences of eight rows: the bits of the bundle that was converted with a batch of 1."""
    one = converted(folder, model, *flags)
    spec = bundle.read(one).manifest.inputs[0]
    requests = np.random.default_rng(2).normal(size=(50, *spec.shape)).astype(np.float32)
    alone, _ = served(one, runtime, requests)
    together, facts = served(converted(folder, model, *flags, *batch), runtime, requests, 8)
    assert together == alone
    assert facts == {"batched": {"max": 8, "inferences": 7, "requests": 50}}


def test_a_converted_state_goes_on_from_its_first_value(runtime: Runtime, folder: Path) -> None:
    """A running sum of TensorFlow's: numpy's cumulative sum, though golden samples and warm-up ran before."""
    steps = np.random.default_rng(4).integers(-9, 9, size=(20, 1, 3)).astype(np.float32)
    answers, facts = served(converted(folder, "counter"), runtime, steps)
    expected = np.cumsum(steps, axis=0)
    assert answers == [step.tobytes() for step in expected]
    assert (facts["keyed"]["keys"], facts["keyed"]["steps"], facts["keyed"]["gaps"]) == (1, 20, 0)

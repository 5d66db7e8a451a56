"""Several requests in one inference, served: answers under load are those of the bare Interpreter with one row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import tinymodel
from support.commands import edged
from support.daemons import DEVICE, DaemonProcess
from support.requests import Inbox
from support.watcher import StatusBoard, Watcher

from edged import bundle
from edged.admission import Admission, Bounds, Sweeper
from edged.broker import EmbeddedBroker
from edged.client import Client
from edged.config import ModelConfig
from edged.config_models import BatchConfig
from edged.engines import opening
from edged.engines.candidate import Candidate
from edged.engines.isolated import IsolatedEngine
from edged.engines.tflite_runtime import Runtime
from edged.errors import BadDataError, Code, RequestError
from edged.figures import ModelFigures
from edged.fitting import fit
from edged.router import Router
from edged.worker import Worker, WorkerPlan

STREAM = {
    "name": "imu", "topic": "sensors/+/imu", "key_level": 1, "fields": ["a", "b", "c"], "model": "rows",
    "window": {"length": 1, "hop": 1}, "qos": 1,
}  # fmt: skip


def configured(runtime: Runtime, size: int, timeout_us: int = 2000, **more: Any) -> dict[str, Any]:
    batch = {"max_batch_size": size, "batch_timeout_micros": timeout_us}
    model = {"name": "rows", "bundle": "rows", "runtime": runtime.name, "batch": batch, "queue": {"max_requests": 500}}
    return {"models": [{**model, **more}]}


def bare(runtime: Runtime, rows: Any) -> list[bytes]:
    """What the runtime answers to one row at a time, of the same model with a batch of one."""
    made = runtime.module().Interpreter(model_content=tinymodel.dense_model(1), num_threads=1)
    made.allocate_tensors()
    answers = []
    for row in rows:
        made.set_tensor(made.get_input_details()[0]["index"], row[None])
        made.invoke()
        answers.append(made.get_tensor(made.get_output_details()[0]["index"]).tobytes())
    return answers


def drawn(count: int) -> Any:
    return np.random.default_rng(11).normal(size=(count, 3)).astype(np.float32)


@pytest.mark.parametrize("is_open", [False, True], ids=["fixed", "open"])
def test_many_futures_are_answered_as_if_alone(
    alone: EmbeddedBroker, runtime: Runtime, tmp_path: Path, is_open: bool
) -> None:
    """Three hundred requests of two clients in flight at once, bad ones among them: bit for bit, in fewer inferences.

    Fixed: a bundle with a batch of eight. Open: one that leaves its batch open, opened with eight rows.
    """
    tinymodel.write_rows_bundle(tmp_path / "rows", 1 if is_open else 8, is_open=is_open)
    rows = drawn(300)
    with DaemonProcess(tmp_path, alone.port, configured(runtime, 8)) as daemon:
        assert daemon.ready()["models"]["rows"]["state"] == "ready"
        url = f"mqtt://127.0.0.1:{alone.port}"
        with Client(url, user="ann") as ann, Client(url, user="bob") as bob:
            futures = [
                (ann, bob)[at % 2].infer_async(DEVICE, "rows", row[None], deadline_ms=20_000)
                for at, row in enumerate(rows)
            ]
            bad = [ann.infer_async(DEVICE, "rows", b"short", codec="raw", deadline_ms=20_000) for _ in range(5)]
            results = [future.result(30) for future in futures]
            for future in bad:
                with pytest.raises(RequestError) as caught:
                    future.result(30)
                assert caught.value.code is Code.INVALID_ARGUMENT
        assert [result.outputs["y"].tobytes() for result in results] == bare(runtime, rows)
        assert {result.outputs["y"].shape for result in results} == {(1, 2)}
        with StatusBoard(alone.port, DEVICE) as board:
            board.wait(lambda said: said["models"]["rows"]["batched"]["requests"] == 300)
            told = board.model("rows")["batched"]
            assert told["max"] == 8
            assert 38 <= told["inferences"] < 300
        assert daemon.stop() == 0


def test_a_stream_feeds_one_row(alone: EmbeddedBroker, runtime: Runtime, tmp_path: Path) -> None:
    """Windows of five sensors, batched with one another, each answered on its own topic in JSON with one row."""
    tinymodel.write_rows_bundle(tmp_path / "rows", 4)
    rows = drawn(40)
    with DaemonProcess(tmp_path, alone.port, configured(runtime, 4) | {"streams": [STREAM]}) as daemon:
        daemon.ready()
        with Watcher(alone.port, f"edged/v1/dev/{DEVICE}/out/#") as out:
            for at, row in enumerate(rows):
                sample = dict(zip("abc", map(float, row), strict=True))
                out.publish(f"sensors/s{at % 5}/imu", json.dumps(sample).encode())
            found: dict[tuple[str, int], bytes] = {}
            for _ in rows:
                body = json.loads(out.get().payload)
                found[(body["key"], body["n"])] = np.array(body["predictions"], np.float32).tobytes()
    assert found == {(f"s{at % 5}", at // 5): answer for at, answer in enumerate(bare(runtime, rows))}


def test_json_of_one_row(alone: EmbeddedBroker, runtime: Runtime, tmp_path: Path) -> None:
    """A request of one row is answered with one; two rows are refused."""
    tinymodel.write_rows_bundle(tmp_path / "rows", 4)
    x = np.array([[1.0, 2.0, 3.0]], np.float32)
    with DaemonProcess(tmp_path, alone.port, configured(runtime, 4)) as daemon:
        daemon.ready()
        with Client(f"mqtt://127.0.0.1:{alone.port}") as client:
            done = client.infer(DEVICE, "rows", x, codec="json", deadline_ms=10_000)
            assert np.array(done.document["outputs"], np.float32).tobytes() == bare(runtime, x)[0]
            with pytest.raises(RequestError, match="INVALID_ARGUMENT"):
                client.infer(DEVICE, "rows", np.concatenate([x, x]), codec="json", deadline_ms=10_000)


def test_what_does_not_go_with_a_batch_is_said_before_anything_runs(tmp_path: Path, runtime: Runtime) -> None:
    """`edged check` and `edged run` name the model, both sizes and what to do."""
    tinymodel.write_rows_bundle(tmp_path / "rows", 4)
    config = tmp_path / "edged.yaml"
    body = {"device": DEVICE, "broker": {"url": "mqtt://127.0.0.1:1"}, "state_dir": "state", **configured(runtime, 8)}
    config.write_text(json.dumps(body))
    for command in ("check", "run"):
        done = edged(command, "-c", config)
        assert done.returncode == 78
        assert "models.rows.batch: max_batch_size is 8, the bundle's batch is 4" in done.stderr


def test_a_model_that_mixes_its_rows_is_not_served(alone: EmbeddedBroker, runtime: Runtime, tmp_path: Path) -> None:
    """Each row less the mean of all: the model fails at the start, and says why."""
    tinymodel.write_rows_bundle(tmp_path / "rows", 4, model=tinymodel.mean_model(4), width=3)
    with DaemonProcess(tmp_path, alone.port, configured(runtime, 4)), StatusBoard(alone.port, DEVICE) as board:
        board.wait(lambda said: said["models"]["rows"]["state"] == "failed")
        assert "output 'y' of one request depends on the others of its batch" in board.model("rows")["reason"]


def test_an_engine_in_a_process_of_its_own_takes_rows_too(runtime: Runtime, tmp_path: Path) -> None:
    """Payloads are decoded into the memory that both processes see; the answers are the same bits."""
    loaded = bundle.read(tinymodel.write_rows_bundle(tmp_path / "rows", 4))
    way = fit(ModelConfig(name="m", bundle=loaded.path, batch=BatchConfig(max_batch_size=4)), loaded)
    router, inbox, rows = Router(), Inbox(), drawn(10)
    plan = WorkerPlan(
        "m", loaded, lambda _nudge, _note: IsolatedEngine(loaded, Candidate(runtime.name)), warmup=2,
        server=way.server, signature=way.signature,
    )  # fmt: skip
    sweeper = Sweeper(router.fail)
    admission = Admission(Bounds(100, 1 << 20, "reject"), sweeper, router.fail)
    worker = Worker(plan, admission, ModelFigures(), lambda _: None)
    router.serve({"m": worker})
    for row in rows:
        router.submit(inbox.request(row[None].tobytes(), deadline_ms=60_000))
    worker.start()
    try:
        assert [inbox.get(60).payload for _ in rows] == bare(runtime, rows)
        assert worker.facts() == {"batched": {"max": 4, "inferences": 3, "requests": 10}}
    finally:
        worker.stop(10)
        sweeper.stop()


def test_an_output_that_does_not_follow_its_rows_is_found(runtime: Runtime, tmp_path: Path) -> None:
    """The file says any number of rows, the model gives one: told when it is opened, and nothing is made up."""
    path = tinymodel.write_rows_bundle(tmp_path / "rows", 1, model=tinymodel.mean_model(1, is_open=True), width=3)
    way = fit(ModelConfig(name="m", bundle=path, batch=BatchConfig(max_batch_size=4)), bundle.read(path))
    with pytest.raises(BadDataError, match=r"with 4 rows in, output 'y' is \[1, 3\], not \[4, 3\]"):
        opening.open_here(way.opened, Candidate(runtime.name))

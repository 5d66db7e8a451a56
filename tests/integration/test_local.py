"""Local producers at the real command, beside the broker: the same models, the same answers, the same figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import require, tinymodel
from support.commands import edged
from support.daemons import DEVICE, DaemonProcess
from support.places import short_directory
from support.watcher import Watcher

from edged import Client, LocalProducer
from edged.broker import EmbeddedBroker
from edged.errors import Code, RequestError

X = np.array([[0.5, -1.25, 3.0]], np.float32)
LARGE = 150_528  # float32: 602,112 bytes


@pytest.fixture(scope="module")
def socket() -> Iterator[Path]:
    with short_directory() as directory:
        yield directory / "edged.sock"


@pytest.fixture(scope="module")
def daemon(
    mosquitto: EmbeddedBroker, socket: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DaemonProcess]:
    require.any_runtime()
    directory = tmp_path_factory.mktemp("local")
    tinymodel.write_dense_bundle(directory / "dense")
    tinymodel.write_add_bundle(directory / "add", LARGE)
    models = [{"name": name, "bundle": name, "delegates": ["cpu"]} for name in ("dense", "add")]
    config = {"models": models, "local": {"socket": str(socket), "slots": 2, "slot_bytes": "1MiB"}}
    with DaemonProcess(directory, mosquitto.port, config) as daemon:
        daemon.ready()
        yield daemon


@pytest.fixture
def producer(daemon: DaemonProcess, socket: Path) -> Iterator[LocalProducer]:
    with LocalProducer(socket, model="dense") as producer:
        producer.connect()
        yield producer


@pytest.mark.parametrize("codec", [None, "npy", "json", "cbor", "raw"])
def test_answers_are_those_of_the_broker(producer: LocalProducer, mosquitto: EmbeddedBroker, codec: str | None) -> None:
    """Byte for byte what `Client` gets, and what numpy computes."""
    given = {"x": X}
    local = producer.infer(given, codec=codec, deadline_ms=20_000)
    with Client(mosquitto.url_v5, user="ann") as client:
        remote = client.infer(DEVICE, "dense", given, codec=codec, deadline_ms=20_000)
    assert (local.payload, local.codec) == (remote.payload, remote.codec)
    assert (local.meta.version, local.meta.delegate, local.meta.outputs) == (1, "cpu", remote.meta.outputs)
    np.testing.assert_allclose(local.outputs["y"], tinymodel.dense_expected(X), rtol=1e-6)


def test_a_frame_there_and_back(producer: LocalProducer) -> None:
    """602,112 bytes each way, from an array and from a slot: the reply comes through the slot."""
    frame = np.random.default_rng(1).random((1, LARGE), np.float32)
    np.testing.assert_array_equal(producer.infer(frame, model="add", deadline_ms=20_000).outputs["y"], frame * 2)
    with producer.slot() as slot:
        slot.view(frame.shape, frame.dtype)[:] = frame
        result = slot.infer(frame.nbytes, model="add", deadline_ms=20_000)
    np.testing.assert_array_equal(result.outputs["y"], frame * 2)


def test_errors_are_those_of_the_broker(producer: LocalProducer) -> None:
    """Of the router, of the codec, and of the numbers: none costs a slot."""
    nan = np.array([[np.nan, 0, 0]], np.float32)
    for inputs, model, code, what in (
        (X, "nosuch", Code.NOT_FOUND, "no model 'nosuch' here"),
        (X.T, "dense", Code.INVALID_ARGUMENT, "expected shape"),
        (nan, "dense", Code.INVALID_ARGUMENT, "NaN"),
    ):
        for _ in range(3):
            with pytest.raises(RequestError, match=what) as caught:
                producer.infer(inputs, model=model, deadline_ms=20_000)
            assert caught.value.code is code
    assert producer.infer(X, deadline_ms=20_000).outputs


def test_metrics_count_them_like_others(daemon: DaemonProcess, producer: LocalProducer) -> None:
    """Every stage has each request; the way in has counters of its own, and its thread's priority."""
    with Watcher(daemon.port, f"edged/v1/dev/{DEVICE}/metrics") as metrics:
        before = json.loads(metrics.get().payload)
        for _ in range(40):
            producer.infer(X, deadline_ms=20_000)
        told = {}

        def enough(message: object) -> bool:
            told.update(json.loads(message.payload))  # type: ignore[attr-defined]
            return bool(count(told) >= count(before) + 40)

        metrics.get(enough)
    for stage in ("receive", "queue", "decode", "infer", "encode", "publish"):
        latency = [said["models"]["dense"]["since_start"]["latency"][stage]["n"] for said in (before, told)]
        assert latency[1] - latency[0] == 40
    local, earlier = told["transport"]["local"], before["transport"]["local"]
    assert local["received"] - earlier["received"] == local["sent"] - earlier["sent"] == 40
    assert local["intake"]["requests"] - earlier["intake"].get("requests", 0) == 40
    assert (local["producers"], local["slots_busy"]) == (1, 0)
    assert any(word in local["scheduling"] for word in ("nice", "fifo", "off"))


def count(metrics: dict[str, object]) -> int:
    found: int = metrics["models"]["dense"]["since_start"]["latency"]["total"]["n"]  # type: ignore[index]
    return found


def written(directory: Path, **local: object) -> Path:
    tinymodel.write_dense_bundle(directory / "dense")
    body = {
        "device": "d", "broker": {"url": "mqtt://h"}, "models": [{"name": "dense", "bundle": "dense"}], "local": local,
    }  # fmt: skip
    path = directory / "edged.yaml"
    path.write_text(json.dumps(body))
    return path


def test_check_tells_what_would_be(tmp_path: Path) -> None:
    """The socket and the memory, for a person and as JSON."""
    path = written(tmp_path, socket="s", slots=3)
    done = edged("check", "-c", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert str(path.with_name("s")) in done.stdout
    assert "3 slots of 4" in done.stdout
    facts = json.loads(edged("check", "-c", path, "--json").stdout)
    assert facts["local"]["slots"] == 3


@pytest.mark.parametrize(
    ("local", "what"),
    [
        ({"socket": "x" * 120}, "a Unix socket's path may have 107"),
        ({"socket": "edged.yaml"}, "is there and is no socket"),
        ({"socket": "s", "group": "nosuchgroup"}, "no group is called 'nosuchgroup'"),
        ({"socket": "/dev/null/s"}, "cannot listen at /dev/null/s: Not a directory"),
    ],
)
def test_check_refuses_what_cannot_be(tmp_path: Path, local: dict[str, object], what: str) -> None:
    """In the words in which the daemon would refuse to start."""
    done = edged("check", "-c", written(tmp_path, **local))
    assert done.returncode == 78
    assert what in done.stderr

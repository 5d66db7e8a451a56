"""The SDK and its two commands against a real daemon with a real model; numpy says what the answers must be."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import tinymodel
from support.brokers import eventually
from support.daemons import DEVICE, DaemonProcess

from edged import Client
from edged.broker import EmbeddedBroker
from edged.errors import Code, RequestError

X = np.array([[0.5, -1.25, 3.0]], np.float32)


@pytest.fixture(scope="module")
def daemon(mosquitto: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    directory = tmp_path_factory.mktemp("client-daemon")
    tinymodel.write_dense_bundle(directory / "dense")
    config = {"models": [{"name": "dense", "bundle": "dense"}]}
    with DaemonProcess(directory, mosquitto.port, config) as daemon:
        daemon.ready()
        yield daemon


@pytest.fixture(params=["5", "3.1.1"])
def client(request: pytest.FixtureRequest, mosquitto: EmbeddedBroker, daemon: DaemonProcess) -> Iterator[Client]:
    with Client(mosquitto.url_v5, user="ann", protocol=request.param) as client:
        client.connect()
        yield client


@pytest.mark.parametrize("codec", [None, "npy", "json", "cbor", "raw"])
def test_answers_are_the_models(client: Client, codec: str | None) -> None:
    """In each codec and protocol the SDK gives the values that numpy computes."""
    result = client.infer(DEVICE, "dense", {"x": X}, deadline_ms=20_000, codec=codec)
    (array,) = result.outputs.values()
    if codec == "raw" and result.meta.outputs == ():  # over MQTT 3.1.1 nothing tells the dtype
        array = array.view("<f4").reshape(1, 2)
    np.testing.assert_allclose(array, tinymodel.dense_expected(X), rtol=1e-6)


@pytest.mark.parametrize("codec", [None, "npy", "json", "cbor"])
def test_what_does_not_fit_is_refused_and_a_missing_batch_added(client: Client, codec: str | None) -> None:
    """A transposed array has the right bytes for a wrong answer: each codec refuses it, and another dtype."""
    for wrong in (X.T, X[None], X.astype(np.float64)):
        if codec != "json" or wrong.dtype == np.float32:  # digits have no dtype
            with pytest.raises(RequestError, match="expected") as caught:
                client.infer(DEVICE, "dense", {"x": wrong}, deadline_ms=20_000, codec=codec)
            assert caught.value.code is Code.INVALID_ARGUMENT
    (array,) = client.infer(DEVICE, "dense", {"x": X[0]}, deadline_ms=20_000, codec=codec).outputs.values()
    np.testing.assert_allclose(array, tinymodel.dense_expected(X), rtol=1e-6)


def test_meta_tells_names_and_times(mosquitto: EmbeddedBroker, daemon: DaemonProcess) -> None:
    """Over MQTT 5 the answer carries the output's name, dtype and shape, who answered, and how long it took."""
    with Client(mosquitto.url_v5, protocol="5") as client:
        client.connect()
        result = client.infer(DEVICE, "dense", X, deadline_ms=20_000)
    assert result.codec == "npy"
    assert [(name, array.dtype, array.shape) for name, array in result.outputs.items()] == [("y", np.float32, (1, 2))]
    assert (result.meta.path, result.meta.delegate) == ("local", "cpu")
    assert result.meta.queue_us is not None
    assert result.meta.infer_us is not None


def test_refusals_are_raised(client: Client) -> None:
    """A wrong size and an unknown model come back as the daemon's errors, in both protocols."""
    with pytest.raises(RequestError) as caught:
        client.infer(DEVICE, "dense", b"short", codec="raw", deadline_ms=20_000)
    assert caught.value.code is Code.INVALID_ARGUMENT
    with pytest.raises(RequestError) as caught:
        client.infer(DEVICE, "no-such", X, deadline_ms=20_000)
    assert caught.value.code is Code.NOT_FOUND


def _edged(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "edged", *words], capture_output=True, text=True, check=False, timeout=60
    )


def _infer(broker: EmbeddedBroker, path: Path, *words: str, **asked: Any) -> subprocess.CompletedProcess[str]:
    target = {"device": DEVICE, "model": "dense", **asked}
    options = [word for name, value in target.items() for word in (f"--{name}", str(value))]
    return _edged("infer", "--broker", broker.url_v5, *options, *words, str(path))


def test_infer_command(mosquitto: EmbeddedBroker, daemon: DaemonProcess, tmp_path: Path) -> None:
    """A .npy goes in, the model's answer comes out as JSON; each kind of failure has its exit code and one line."""
    np.save(tmp_path / "x.npy", X)
    done = _infer(mosquitto, tmp_path / "x.npy", "--json", "--deadline-ms", "20000", "--count", "3")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    np.testing.assert_allclose(found["outputs"]["y"]["values"], tinymodel.dense_expected(X), rtol=1e-6)
    assert found["latency"]["n"] == 3
    (tmp_path / "bad.bin").write_bytes(b"short")
    for path, asked, code in (
        ("bad.bin", {}, 65),
        ("missing.npy", {}, 65),
        ("x.npy", {"model": "no-such"}, 69),
        ("x.npy", {"device": "nobody", "deadline-ms": 200}, 69),
    ):
        done = _infer(mosquitto, tmp_path / path, **asked)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.stderr


def test_top_command(mosquitto: EmbeddedBroker, daemon: DaemonProcess) -> None:
    """The real daemon's status and metrics are read to the last field: as many requests as were made, none ignored."""
    with Client(mosquitto.url_v5) as client:
        client.connect()
        for _ in range(5):
            client.infer(DEVICE, "dense", X, deadline_ms=20_000)
    done = _edged("top", "--broker", mosquitto.url_v5, "--once", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    (device,) = found["devices"]
    model = device["models"]["dense"]
    assert (device["device"], device["state"], device["stale"]) == (DEVICE, "ready", False)
    assert (model["delegate"], model["version"]) == (model["status"]["delegate"], model["status"]["version"])
    assert model["since_start"]["requests"] >= 5
    assert model["since_start"]["latency"]["infer"]["p50_us"] > 0
    assert found["fleet"]["since_start"]["latency"]["n"] == model["since_start"]["latency"]["total"]["n"]
    assert device["rss_bytes"] > 1_000_000
    assert found["ignored"] == {}
    done = _edged("top", "--broker", mosquitto.url_v5, "--once", "--stages")
    assert done.stdout.splitlines()[1].split()[:3] == [DEVICE, "ready", "dense"]


def test_top_on_a_terminal(mosquitto: EmbeddedBroker, daemon: DaemonProcess) -> None:
    """It redraws in place, ends with 0 at Ctrl-C, and gives the cursor back."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    command = [sys.executable, "-m", "edged", "top", "--broker", mosquitto.url_v5, "--interval", "0.1"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        shown = bytearray()
        eventually(lambda: _drawn(ours, shown).count(b"dense") > 2, "three frames with the model")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    assert shown.startswith(b"\x1b[?25l")
    assert shown.count(b"\x1b[2J") == 1
    assert _drawn(ours, shown).endswith(b"\x1b[?25h")
    os.close(ours)
    os.close(theirs)


def _drawn(terminal: int, shown: bytearray) -> bytearray:
    """What was written to the terminal so far."""
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(terminal, 65536):
            shown += chunk
    return shown

"""Over MQTT every one of the 40 test windows gives, bit for bit, what the runtime's own Interpreter gives.

The bundle is the real int8 one; its clients send floats, so the reference quantizes by hand, runs the bare Interpreter,
and dequantizes by hand. Requests come from a bare paho client. A second bundle of the same model takes int8 itself.
"""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.daemons import DEVICE, DaemonProcess
from support.har import make_bundle
from support.watcher import Watcher

from edged import bundle
from edged.broker import EmbeddedBroker
from edged.engines.tflite_runtime import Runtime

pytestmark = [pytest.mark.tf, pytest.mark.broker]
CODECS = ("raw", "json", "npy")
CONTENT_TYPES = {"raw": "application/octet-stream", "json": "application/json", "npy": "application/x-npy"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`bundle` (clients send floats) and `bundle-q` (clients send int8) of one model, and eval.npz."""
    directory = tmp_path_factory.mktemp("har")
    made = bundle.read(make_bundle(directory).bundle)
    specs = {
        side: tuple(dataclasses.replace(spec, io="quantized") for spec in getattr(made.manifest, side))
        for side in ("inputs", "outputs")
    }
    quantized = dataclasses.replace(made.manifest, **specs)
    bundle.write(directory / "bundle-q", quantized, {bundle.MODEL: made.model})
    return directory


@pytest.fixture(scope="module")
def windows(directory: Path) -> np.ndarray[Any, Any]:
    name = bundle.read(directory / "bundle").manifest.inputs[0].name
    with np.load(directory / "eval.npz") as file:
        found: np.ndarray[Any, Any] = file[name]
    assert found.shape == (40, 100, 6)
    return found


def reference(runtime: Runtime, model: bytes, windows: np.ndarray[Any, Any], *, floats: bool) -> list[bytes]:
    """The bare Interpreter: quantize, set_tensor, invoke, get_tensor, dequantize; nothing of ours."""
    interpreter = runtime.module().Interpreter(model_content=model)
    interpreter.allocate_tensors()
    given, taken = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    answers = []
    for window in quantized(windows, *given["quantization"]):
        interpreter.set_tensor(given["index"], window[None])
        interpreter.invoke()
        q = interpreter.get_tensor(taken["index"])
        scale, zero = taken["quantization"]
        real = (q.astype(np.float32) - np.float32(zero)) * np.float32(scale)
        answers.append(real.tobytes() if floats else q.tobytes())
    return answers


def quantized(windows: np.ndarray[Any, Any], scale: float, zero: int) -> np.ndarray[Any, Any]:
    return np.clip(np.round(windows / np.float32(scale)) + zero, -128, 127).astype(np.int8)


def encode(codec: str, window: np.ndarray[Any, Any]) -> bytes:
    if codec == "json":
        return json.dumps({"instances": [window.tolist()]}).encode()
    if codec == "raw":
        return window.tobytes()
    file = io.BytesIO()
    np.save(file, window[None])
    return file.getvalue()


def decode(codec: str, payload: bytes, dtype: type) -> bytes:
    if codec == "json":
        return np.array(json.loads(payload)["predictions"], dtype).tobytes()
    return payload if codec == "raw" else np.load(io.BytesIO(payload)).tobytes()


@pytest.fixture(params=["5", "3.1.1"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def daemon(mosquitto: EmbeddedBroker, runtime: Runtime, directory: Path, tmp_path: Path) -> Iterator[DaemonProcess]:
    models = [
        {"name": "har", "bundle": str(directory / "bundle"), "runtime": runtime.name},
        {"name": "har-q", "bundle": str(directory / "bundle-q"), "runtime": runtime.name},
    ]
    with DaemonProcess(tmp_path, mosquitto.port, {"models": models}) as daemon:
        daemon.ready(60)
        yield daemon


def ask(ann: Watcher, model: str, codec: str, number: int, payload: bytes, protocol: str) -> bytes:
    topic = f"edged/v1/dev/{DEVICE}/req/{model}/c/ann"
    if protocol == "5":
        reply = {"ResponseTopic": "edged/v1/resp/ann/x", "CorrelationData": f"{model}{codec}{number}".encode()}
        ann.publish(topic, payload, qos=0, ContentType=CONTENT_TYPES[codec], **reply)
    else:
        ann.publish(f"{topic}/{number}/{codec}", payload, qos=0)
    return bytes(ann.get().payload)


def test_every_window_is_bit_identical(
    daemon: DaemonProcess, runtime: Runtime, directory: Path, windows: np.ndarray[Any, Any], protocol: str
) -> None:
    """40 windows x raw, JSON, npy, for float clients and for int8 clients."""
    model = (directory / "bundle" / bundle.MODEL).read_bytes()
    spec = bundle.read(directory / "bundle").manifest.inputs[0]
    whole = {"har": windows, "har-q": quantized(windows, spec.scale, spec.zero_point)}
    version = 5 if protocol == "5" else 4
    checked = 0
    with Watcher(daemon.port, "edged/v1/resp/ann/#", protocol=version) as ann:
        for name, dtype in (("har", np.float32), ("har-q", np.int8)):
            expected = reference(runtime, model, windows, floats=name == "har")
            for codec in CODECS:
                for number, window in enumerate(whole[name]):
                    payload = encode(codec, window)
                    assert decode(codec, ask(ann, name, codec, number, payload, protocol), dtype) == expected[number]
                    checked += 1
    assert checked == 2 * len(CODECS) * 40
    print(f"{runtime.name}, MQTT {protocol}: {checked} of {checked} answers bit-identical", file=sys.stderr)

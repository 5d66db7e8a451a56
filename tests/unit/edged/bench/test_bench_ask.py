"""What is asked: payloads from files, shapes, sizes and from what a device declares; and whether it takes them."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import benchdevice
from support.benchdevice import KnownDevice, connected, echo
from support.brokers import eventually
from support.fakedevice import failure

from edged.bench import ask, probe
from edged.bench.ask import Wish
from edged.bench.device import DeviceTarget
from edged.bench.ledger import numbers
from edged.bench.target import Question
from edged.errors import BadDataError, Code, EdgedError, RequestError, UnavailableError, UsageError

INPUTS = [{"name": "a", "dtype": "float32", "shape": [1, 4]}, {"name": "b", "dtype": "int8", "shape": [2]}]


def asked(target: DeviceTarget, **wish: Any) -> list[Question]:
    return ask.questions(Wish(**{"models": ["m"], "qos": [0], "deadline_ms": 1000, **wish}), target)


def say(device: KnownDevice, target: DeviceTarget, models: dict[str, Any]) -> None:
    """Publish a status and wait until the target has it."""
    device.publish("status", json.dumps({"state": "ready", "boot": "b", "models": models}).encode(), retain=True)
    eventually(lambda: "state" in target.facts() and target.facts()["models"] == models, "the status")


def test_a_device_says_what_its_model_takes() -> None:
    """Raw bytes of all its inputs in order, the same for the same seed; whole numbers use their whole range."""
    with KnownDevice(echo) as device, connected(device) as target:
        say(device, target, {"m": {"inputs": INPUTS}})
        (first,), (again,), (other,) = (asked(target, seed=seed) for seed in (1, 1, 2))
        say(device, target, {"m": {"inputs": [{"name": "b", "dtype": "int8", "shape": [4000]}]}})
        (wide,) = asked(target)
    assert (first.encoded.codec, len(first.encoded.payload)) == ("raw", 4 * 4 + 2)
    assert first == again != other
    values = np.frombuffer(wide.encoded.payload, np.int8)
    assert (values.min(), values.max()) == (-128, 127)


def test_every_model_payload_and_qos_is_one_question() -> None:
    """Sizes, models and levels are all combined."""
    with KnownDevice(echo) as device, connected(device, qos=(0, 1)) as target:
        found = asked(target, models=["m", "n"], sizes=[64, 1024], qos=[0, 1])
    assert [(q.model, len(q.encoded.payload), q.qos) for q in found] == [
        ("m", 64, 0), ("m", 64, 1), ("m", 1024, 0), ("m", 1024, 1),
        ("n", 64, 0), ("n", 64, 1), ("n", 1024, 0), ("n", 1024, 1),
    ]  # fmt: skip


def test_shapes_and_files_are_sent_as_they_are(tmp_path: Path) -> None:
    """A .npy goes raw, a .json as it stands; a shape makes values of the dtype that is asked for."""
    np.save(tmp_path / "x.npy", np.arange(3, dtype=np.float32))
    (tmp_path / "x.json").write_text('{"inputs": [1]}')
    with KnownDevice(echo) as device, connected(device) as target:
        array, text = (asked(target, file=str(tmp_path / name))[0].encoded for name in ("x.npy", "x.json"))
        shaped = asked(target, shapes={"": (2, 3)}, dtype="uint16")[0].encoded
        npy = asked(target, shapes={"": (2, 3)}, dtype="bool", codec="npy")[0].encoded
    assert (array.codec, array.payload) == ("raw", np.arange(3, dtype="<f4").tobytes())
    assert (text.codec, text.payload) == ("json", b'{"inputs": [1]}')
    assert (shaped.codec, len(shaped.payload)) == ("raw", 12)
    assert npy.payload.startswith(b"\x93NUMPY")


@pytest.mark.parametrize(
    ("models", "error", "said"),
    [
        ({}, UnavailableError, "has no model 'm'"),
        ({"m": {}}, UnavailableError, "does not say what the model m takes"),
        ({"m": {"inputs": [{"name": "a"}]}}, BadDataError, "makes no sense"),
        ({"m": {"inputs": [{"name": "a", "dtype": "object", "shape": [1]}]}}, BadDataError, "makes no sense"),
        ({"m": {"inputs": [{"name": "a", "dtype": "int8", "shape": [1 << 40]}]}}, BadDataError, "cannot be sent"),
        ({"m": {"inputs": [{"name": "a", "dtype": "int8", "shape": [-1]}]}}, BadDataError, "makes no sense"),
        ({"m": {"inputs": [{"name": "a", "dtype": "int8", "shape": "12"}]}}, BadDataError, "makes no sense"),
    ],
)
def test_what_a_device_says_is_not_trusted(models: dict[str, Any], error: type[EdgedError], said: str) -> None:
    """Each is one error that names the device."""
    with KnownDevice(echo) as device, connected(device) as target:
        say(device, target, models)
        with pytest.raises(error, match=said):
            asked(target)


def test_who_has_told_no_state_cannot_say_what_it_takes() -> None:
    """A wrong name is told as such, before anything is sent."""
    with KnownDevice(echo) as device, connected(device) as target, pytest.raises(UnavailableError, match="no state"):
        asked(target)


def test_a_dtype_must_be_one_of_numbers() -> None:
    with KnownDevice(echo) as device, connected(device) as target, pytest.raises(UsageError, match="not a dtype"):
        asked(target, shapes={"": (1,)}, dtype="object")


def ready(device: KnownDevice, target: DeviceTarget, timeout_s: float = 0.3, deadline_ms: int = 50) -> None:
    question = benchdevice.question(deadline_ms=deadline_ms)
    probe.ready(target, question, numbers(), timeout_s, threading.Event())


def answering(*codes: Code | None) -> KnownDevice:
    """A device that answers so, one after the other, the last one for ever."""
    return KnownDevice(
        lambda number, request: (
            echo(number, request)
            if (code := codes[min(number, len(codes) - 1)]) is None
            else [failure(request, RequestError(code, "so it is"))]
        )
    )


@pytest.mark.parametrize("codes", [(None,), (Code.UNAVAILABLE, None), (Code.RESOURCE_EXHAUSTED,)])
def test_a_device_that_answers_is_ready(codes: tuple[Code | None, ...]) -> None:
    """Also one that is busy, and one that was starting when it was first asked."""
    with answering(*codes) as device, connected(device) as target:
        ready(device, target)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (Code.INVALID_ARGUMENT, BadDataError),
        (Code.UNIMPLEMENTED, BadDataError),
        (Code.NOT_FOUND, UnavailableError),
        (Code.INTERNAL, UnavailableError),
        (Code.UNAVAILABLE, UnavailableError),
    ],
)
def test_a_device_that_refuses_is_not_measured(code: Code, error: type[EdgedError]) -> None:
    """Ten seconds of the same error would tell nobody anything: the code is told at once."""
    with answering(code) as device, connected(device) as target, pytest.raises(error, match=code.value):
        ready(device, target)


def test_a_model_that_failed_is_not_waited_for() -> None:
    """It answers UNAVAILABLE like one that is starting; its status tells the difference, and the reason."""
    with answering(Code.UNAVAILABLE) as device, connected(device) as target:
        say(device, target, {"m": {"state": "failed", "reason": "no such delegate"}})
        with pytest.raises(UnavailableError, match="its model m failed: no such delegate"):
            ready(device, target, timeout_s=60)


def test_silence_is_told_with_the_state() -> None:
    """No answer: what the device said last helps."""
    with KnownDevice(lambda _number, _request: []) as device, connected(device) as target:
        with pytest.raises(UnavailableError, match=r"no answer from m at QoS 0 within 0\.3 s \(it has told no state\)"):
            ready(device, target)
        device.publish("status", b'{"state": "stopped", "boot": "b"}', retain=True)
        eventually(lambda: "state" in target.facts(), "the status")
        with pytest.raises(UnavailableError, match="its state is 'stopped'"):
            ready(device, target)


def test_a_broker_that_ends_the_connection_is_told() -> None:
    """As one that takes no QoS 2 does: how it ended, how often, and what to try."""
    with KnownDevice(lambda _number, _request: []) as device, connected(device, qos=(2,)) as target:
        for _ in range(2):
            target._on_connection(False, "closed by the broker: QoS not supported")
        question = benchdevice.question(deadline_ms=20, qos=2)
        with pytest.raises(UnavailableError, match=r"at QoS 2 .* ended 2 times, last: closed .*try --qos 1"):
            probe.ready(target, question, numbers(), 0.05, threading.Event())

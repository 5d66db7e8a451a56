"""Garbage of every kind on the request topic: an error reply with the right code, or a counted refusal.

After each piece the same process answers the next good request bit for bit as before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
from support import tinymodel
from support.daemons import DEVICE, DaemonProcess
from support.watcher import Watcher

from edged.broker import EmbeddedBroker

REQUEST = f"edged/v1/dev/{DEVICE}/req/dense/c/ann"
REPLY = "edged/v1/resp/ann"
X = np.array([[0.5, -1.25, 3.0]], np.float32)
NAN = np.array([[0.5, np.nan, 3.0]], np.float32)
JSON, NPY, RAW = "application/json", "application/x-npy", "application/octet-stream"


@pytest.fixture(scope="module")
def daemon(mosquitto: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    directory = tmp_path_factory.mktemp("garbage")
    tinymodel.write_dense_bundle(directory / "dense")
    models = [{"name": "dense", "bundle": "dense", "queue": {"max_bytes": "1MiB"}}]
    with DaemonProcess(directory, mosquitto.port, {"models": models}) as daemon:
        daemon.ready()
        yield daemon


@pytest.fixture(scope="module")
def ann(daemon: DaemonProcess) -> Iterator[Watcher]:
    with Watcher(daemon.port, f"{REPLY}/#", "edged/v1/resp/bob/#") as watcher:
        yield watcher


def counters(daemon: DaemonProcess) -> dict[str, int]:
    with Watcher(daemon.port, f"edged/v1/dev/{DEVICE}/metrics") as watcher:
        watcher.get()
        found: dict[str, int] = json.loads(watcher.get().payload)["transport"]["intake"]
        return found


def assert_still_right(daemon: DaemonProcess, ann: Watcher) -> None:
    """The next good request, answered by the same process, bit for bit."""
    ann.publish(REQUEST, X.tobytes(), ResponseTopic=f"{REPLY}/good", CorrelationData=b"good", qos=0)
    assert ann.get().payload == tinymodel.dense_expected(X).tobytes()
    assert daemon.process.poll() is None


PAYLOADS = [
    ("empty", b"", RAW, "INVALID_ARGUMENT"),
    ("one byte short", X.tobytes()[:-1], RAW, "INVALID_ARGUMENT"),
    ("one byte long", X.tobytes() + b"x", RAW, "INVALID_ARGUMENT"),
    ("float64 instead of float32", X.astype(np.float64).tobytes(), RAW, "INVALID_ARGUMENT"),
    ("NaN", NAN.tobytes(), RAW, "INVALID_ARGUMENT"),
    ("infinity", np.full((1, 3), np.inf, np.float32).tobytes(), RAW, "INVALID_ARGUMENT"),
    ("truncated JSON", b'{"instances": [[0.5, -1.2', JSON, "INVALID_ARGUMENT"),
    ("no JSON", b"\xff\xfe\x00", JSON, "INVALID_ARGUMENT"),
    ("empty JSON", b"", JSON, "INVALID_ARGUMENT"),
    ("NaN in JSON", b'{"instances": [[0.5, NaN, 3.0]]}', JSON, "INVALID_ARGUMENT"),
    ("text in JSON", b'{"instances": [["a", "b", "c"]]}', JSON, "INVALID_ARGUMENT"),
    ("booleans in JSON", b'{"instances": [[true, false, true]]}', JSON, "INVALID_ARGUMENT"),
    ("wrong shape in JSON", b'{"instances": [[1, 2]]}', JSON, "INVALID_ARGUMENT"),
    ("ragged JSON", b'{"instances": [[1, 2, 3], [1]]}', JSON, "INVALID_ARGUMENT"),
    ("a key too many", b'{"instances": [[1, 2, 3]], "x": 1}', JSON, "INVALID_ARGUMENT"),
    ("deep JSON", b"[" * 100_000, JSON, "INVALID_ARGUMENT"),
    ("a huge number", b'{"instances": [[1e999, 2, 3]]}', JSON, "INVALID_ARGUMENT"),
    ("a number of 10,000 digits", b'{"instances": [[' + b"9" * 10_000 + b", 2, 3]]}", JSON, "INVALID_ARGUMENT"),
    ("no npy", b"\x93NUMPY\x09\x09", NPY, "INVALID_ARGUMENT"),
    ("10 MB", b"\0" * 10_000_000, RAW, "INVALID_ARGUMENT"),
    ("unknown content type", X.tobytes(), "text/html", "UNIMPLEMENTED"),
    ("an image for a model without preprocessing", b"\xff\xd8\xff\xe0", "image/jpeg", "FAILED_PRECONDITION"),
]


@pytest.mark.parametrize(
    ("payload", "content_type", "code"), [row[1:] for row in PAYLOADS], ids=[r[0] for r in PAYLOADS]
)
def test_a_bad_payload_gets_an_error_reply(
    daemon: DaemonProcess, ann: Watcher, payload: bytes, content_type: str, code: str
) -> None:
    """The right code, marked as an error in the properties too."""
    ann.publish(
        REQUEST, payload, ResponseTopic=f"{REPLY}/bad", CorrelationData=b"bad", ContentType=content_type, qos=0
    )  # fmt: skip
    reply = ann.get()
    assert json.loads(reply.payload)["error"]["code"] == code
    assert ("status", "error") in reply.properties.UserProperty
    assert_still_right(daemon, ann)


def test_the_same_garbage_in_the_older_form(daemon: DaemonProcess, ann: Watcher) -> None:
    """MQTT 3.1.1: error replies on the reply topic, recognisable by their first bytes."""
    from edged.errors import ERROR_PREFIX

    for tail, payload, code in (
        ("1/raw", b"", "INVALID_ARGUMENT"),
        ("2/json", b"{", "INVALID_ARGUMENT"),
        ("3/xml", X.tobytes(), "UNIMPLEMENTED"),
        ("4/raw", NAN.tobytes(), "INVALID_ARGUMENT"),
        ("5/raw/soon", X.tobytes(), "INVALID_ARGUMENT"),
        ("6/raw/0", X.tobytes(), "INVALID_ARGUMENT"),
    ):
        ann.publish(f"{REQUEST}/{tail}", payload, qos=0)
        reply = ann.get()
        assert reply.topic == f"{REPLY}/{tail[0]}"
        assert reply.payload.startswith(ERROR_PREFIX)
        assert json.loads(reply.payload)["error"]["code"] == code
        assert_still_right(daemon, ann)


def test_an_unknown_model_is_not_found(daemon: DaemonProcess, ann: Watcher) -> None:
    """NOT_FOUND names the models that are there."""
    topic = f"edged/v1/dev/{DEVICE}/req/nope/c/ann"
    ann.publish(topic, b"x", ResponseTopic=f"{REPLY}/1", CorrelationData=b"n", qos=0)
    error = json.loads(ann.get().payload)["error"]
    assert (error["code"], "dense" in error["message"]) == ("NOT_FOUND", True)
    assert_still_right(daemon, ann)


@pytest.mark.parametrize("topic", ["edged/v1/resp/bob/1", "edged/v1/resp/ann", "edged/v1/resp/ann/+", "$SYS/x", "#"])
def test_a_response_topic_that_is_not_the_requesters_is_refused(
    daemon: DaemonProcess, ann: Watcher, topic: str
) -> None:
    """Nothing is published there, the refusal is counted."""
    before = counters(daemon).get("refused_response_topic", 0)
    ann.publish(REQUEST, X.tobytes(), ResponseTopic=topic, CorrelationData=b"deputy", qos=0)
    assert_still_right(daemon, ann)
    assert counters(daemon)["refused_response_topic"] == before + 1
    assert ann.messages.empty()


@pytest.mark.parametrize(
    ("tail", "counter"),
    [
        ("", "no_response_topic"),
        ("/x", "topic"),
        ("/x/raw/1/2", "topic"),
    ],
)
def test_a_request_without_an_address_is_counted(daemon: DaemonProcess, ann: Watcher, tail: str, counter: str) -> None:
    """Nobody to answer: one more in the counter of its reason."""
    before = counters(daemon).get(f"refused_{counter}", 0)
    ann.publish(REQUEST + tail, X.tobytes(), qos=0)
    assert_still_right(daemon, ann)
    assert counters(daemon)[f"refused_{counter}"] == before + 1


def test_a_retained_request_is_not_executed(daemon: DaemonProcess, ann: Watcher) -> None:
    """Live it is an ordinary request; to the daemon that starts later the broker hands it as retained: refused."""
    retained = {"ResponseTopic": f"{REPLY}/r", "CorrelationData": b"r"}
    ann.publish(REQUEST, X.tobytes(), retain=True, **retained)
    assert ann.get().payload == tinymodel.dense_expected(X).tobytes()
    assert daemon.stop() == 0
    daemon.restart()
    daemon.ready()
    try:
        assert counters(daemon)["refused_retained"] == 1
        assert_still_right(daemon, ann)
        assert ann.messages.empty()
    finally:
        ann.publish(REQUEST, b"", retain=True)

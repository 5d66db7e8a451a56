"""Messages to samples: windows as the daemon's stream cuts them, payloads as its codecs read them."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from support.sensorstream import FIELDS, bench, config, signature

from edged.bundle import Signature, TensorSpec
from edged.config import RepliesConfig
from edged.recording.keep import Kept, Rule, Sample
from edged.recording.recorder import Recorder
from edged.recording.source import MAX_REASONS, Arrays, Payloads, Requests, Source, Windows
from edged.transports.base import Message

SPEC = TensorSpec("imu", "float32", (1, 4, 3))
REQUEST = "edged/v1/dev/box/req/har/c/tom"


def taken(source: Source, *messages: Message) -> list[tuple[str, Sample]]:
    found: list[tuple[str, Sample]] = []
    for message in messages:
        source.take(message, lambda key, sample: found.append((key, sample)))
    return found


def npy(array: np.ndarray[Any, Any]) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def sample_messages() -> list[Message]:
    """Two sensors, a gap, a duplicate, a bad sample, a retained value and a topic of another stream's form."""
    generator = np.random.default_rng(0)
    plan = [(n, key) for n in range(20) for key in "ab"] + [
        (30, "a"),
        (31, "a"),
        (31, "a"),
        *((n, "a") for n in range(32, 40)),
    ]
    messages = []
    for n, key in plan:
        body = dict(zip(FIELDS, generator.normal(size=3).tolist(), strict=True)) | {"n": n}
        messages.append(Message(f"sensors/{key}/imu", json.dumps(body).encode(), received_ns=1))
    rubbish = Message("sensors/b/imu", b'{"ax": 1}', received_ns=1)
    stale = Message("sensors/b/imu", messages[0].payload, retain=True, received_ns=1)
    return [*messages[:30], rubbish, stale, *messages[30:]]


@pytest.mark.parametrize("hop", [1, 2, 4])
def test_windows_are_those_the_daemon_feeds_its_model(hop: int) -> None:
    """The same messages through the daemon's own stream: the same bytes, for every window, in the same order."""
    settings = config(length=4, hop=hop, seq="n")
    daemon = bench(settings, signature((1, 4, 3)))
    for message in sample_messages():
        daemon.stream.on_message(message)
    source = Windows(settings, SPEC, "press-07")
    found = taken(source, *sample_messages())
    assert [(key, sample["imu"].tobytes()) for key, sample in found] == [
        (request.origin, bytes(request.payload)) for request in daemon.requests
    ]
    assert {sample["imu"].shape for _, sample in found} == {(1, 4, 3)}
    counters = source.counters()
    assert (counters["bad"], counters["retained"], counters["gaps"], counters["duplicates"]) == (1, 1, 1, 1)
    assert source.reasons == ["sensors/b/imu: ay is missing"]


def test_a_window_stays_what_it_was() -> None:
    """Samples are kept for an hour: later messages must not write into them."""
    source = Windows(config(length=2, hop=1), TensorSpec("x", "float32", (1, 2, 3)), "box")
    found = taken(source, *(Message("sensors/a/imu", json.dumps([n] * 3).encode(), received_ns=1) for n in range(6)))
    assert [sample["x"][0, :, 0].tolist() for _, sample in found] == [[n, n + 1] for n in range(5)]


def test_a_topic_without_its_key_is_a_reason() -> None:
    """The stream only counts it; the recording says why."""
    source = Windows(config(topic="#", key_level=3), SPEC, "box")
    assert taken(source, Message("short", b"[1, 2, 3]", received_ns=1)) == []
    assert source.reasons == ["short: the topic has no usable level 3"]


TWO = Signature((TensorSpec("a", "float32", (1, 2)), TensorSpec("n", "int32", (1,))), ())
A, N = np.array([[0.1, -2.5]], np.float32), np.array([7], np.int32)


@pytest.mark.parametrize(
    ("topic", "content_type", "codec", "payload"),
    [
        (f"{REQUEST}/1/json", None, None, b'{"inputs": {"n": [7], "a": [[0.1, -2.5]]}}'),
        (f"{REQUEST}/1/raw/500", None, None, A.tobytes() + N.tobytes()),
        (REQUEST, "application/json", None, b'{"instances": [{"n": 7, "a": [0.1, -2.5]}]}'),
        (REQUEST, None, None, A.tobytes() + N.tobytes()),
        (REQUEST, "application/x-npy", None, npy(A) + npy(N)),
        ("cam/1", None, "npy", npy(A) + npy(N)),
    ],
)
def test_a_request_is_read_as_the_daemon_reads_it(
    topic: str, content_type: str | None, codec: str | None, payload: bytes
) -> None:
    """By the topic's codec, the content type, or the one that was named: every input by its name, bit for bit."""
    ((key, sample),) = taken(Payloads(TWO, codec), Message(topic, payload, content_type=content_type))
    assert key == ("tom" if topic.startswith("edged") else topic)
    assert {name: (array.dtype.name, array.tobytes()) for name, array in sample.items()} == {
        "a": ("float32", A.tobytes()),
        "n": ("int32", N.tobytes()),
    }


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (Message("t", b"123"), "expected 12 bytes"),
        (Message(f"{REQUEST}/1/xml", b""), "no codec 'xml'"),
        (Message("t", b"{}", content_type="text/plain"), "no codec for content type 'text/plain'"),
        (Message("t", np.array([np.nan, 1, 0], np.float32).tobytes()), "NaN or infinite"),
    ],
)
def test_what_cannot_be_read_is_counted_and_said(message: Message, says: str) -> None:
    """No sample, one `bad`, and the reason with its topic."""
    source = Payloads(TWO, None)
    assert taken(source, message) == []
    assert source.counters()["bad"] == 1
    assert source.reasons[0].startswith(message.topic)
    assert says in source.reasons[0]


def test_reasons_are_few_and_plain() -> None:
    """A flood of rubbish is counted to the last, five different reasons are told, and no terminal escape comes out."""
    source = Payloads(TWO, "raw")
    taken(source, *[Message("t", b"1")] * 3)
    assert (source.counters()["bad"], len(source.reasons)) == (3, 1)
    taken(source, *(Message("evil\x1b[2J", bytes(n)) for n in range(1, 10)), Message("t", b"x", retain=True))
    assert source.counters() == {"bad": 12, "retained": 1}
    assert len(source.reasons) == MAX_REASONS
    assert "\x1b" not in "".join(source.reasons)


def test_quantized_payloads_become_real_values() -> None:
    """A client that sends int8 is recorded as scale * (q - zero_point): what a SavedModel can be calibrated with."""
    spec = TensorSpec("x", "int8", (1, 3), scale=0.5, zero_point=-1, io="quantized")
    ((_, sample),) = taken(Payloads(Signature((spec,), ()), "raw"), Message("t", np.int8([-128, 0, 127]).tobytes()))
    assert sample["x"].dtype == np.float32
    assert sample["x"].tolist() == [[-63.5, 0.5, 64.0]]


def test_npy_payloads_say_themselves_what_they_are() -> None:
    """Without a model the first array decides; others are refused with both shapes; byte order is the machine's."""
    source = Arrays("x")
    good = np.arange(6, dtype=">f4").reshape(2, 3)
    messages = [Message("t", npy(a)) for a in (good, good.T, good.astype("<f4"), np.full((2, 3), np.inf, "<f4"))]
    found = taken(source, *messages, Message("t", npy(good) + b"1"))
    assert [(sample["x"].dtype, sample["x"].tolist()) for _, sample in found] == [(np.float32, good.tolist())] * 2
    assert [reason.partition(": ")[2] for reason in source.reasons] == [
        "float32 [3, 2], the first was float32 [2, 3]", "holds NaN or Inf", "1 bytes too many after the array",
    ]  # fmt: skip


def test_no_message_is_taken_once_it_is_full() -> None:
    """One message may hold many windows: exactly --count are kept, and later messages are not even counted."""
    settings = config(length=1, hop=1, decode="csv")
    source = Windows(settings, TensorSpec("x", "float32", (1, 3)), "box")
    recorder = Recorder(source, Kept(Rule(count=2)), settings.topic, {})
    recorder.on_message(Message("elsewhere", b"1,2,3"))
    for _ in range(2):
        recorder.on_message(Message("sensors/a/imu", b"1,2,3\n4,5,6\n7,8,9\n"))
    assert recorder.full.is_set()
    assert (recorder.kept.count, recorder.messages, recorder.other) == (2, 2, 1)


def test_samples_that_do_not_fit_the_file_end_the_recording_at_once() -> None:
    """Not after an hour: the first sample is compared with what the file holds."""
    source = Arrays("x")
    expected = {"x": (np.dtype(np.float32), (1, 4))}
    recorder = Recorder(source, Kept(Rule()), "t", expected)  # type: ignore[arg-type]  # a tuple is enough
    recorder.on_message(Message("t", npy(np.zeros((1, 3), np.float32))))
    assert recorder.full.is_set()
    assert recorder.misfit == "holds 'x' float32 [1, 4], the recording 'x' float32 [1, 3]"


@pytest.mark.parametrize("hop", [2, 4])
def test_no_window_hides_a_lost_connection(hop: int) -> None:
    """Without seq nothing shows what is missing: windows that have begun are thrown away, one for each sensor."""
    source = Windows(config(length=4, hop=hop), SPEC, "box")

    def send(key: str, *numbers: int) -> list[list[float]]:
        messages = [Message(f"sensors/{key}/imu", json.dumps([n] * 3).encode(), received_ns=1) for n in numbers]
        return [sample["imu"][0, :, 0].tolist() for _, sample in taken(source, *messages)]

    assert send("a", 0, 1, 2, 3, 4) == [[0, 1, 2, 3]]
    assert send("b", 0, 1, 2) == []
    assert send("c", 0, 1, 2, 3) == [[0, 1, 2, 3]]
    source.interrupted()
    assert source.counters()["interrupted"] == (3 if hop == 2 else 2)
    assert [send(key, 10, 11, 12) for key in "abc"] == [[], [], []]
    assert [send(key, 13) for key in "abc"] == [[[10, 11, 12, 13]]] * 3


def test_numbered_samples_tell_themselves_what_is_missing() -> None:
    """With seq a window goes on over a reconnect that lost nothing, and is cut where something is missing."""
    source = Windows(config(length=4, seq="n"), SPEC, "box")

    def send(*numbers: int) -> list[list[float]]:
        bodies = [dict.fromkeys(FIELDS, n) | {"n": n} for n in numbers]
        messages = [Message("sensors/a/imu", json.dumps(body).encode(), received_ns=1) for body in bodies]
        return [sample["imu"][0, :, 0].tolist() for _, sample in taken(source, *messages)]

    assert send(5, 6) == []
    source.interrupted()
    assert send(7, 8, 9) == [[5, 6, 7, 8]]
    source.interrupted()
    assert send(11, 12, 13, 14) == [[11, 12, 13, 14]]
    assert (source.counters()["gaps"], source.counters()["interrupted"]) == (1, 0)


MINE = "edged/v1/resp/tom/1"


def asked(payload: bytes = A.tobytes() + N.tobytes(), **facts: Any) -> Message:
    settings: dict[str, Any] = {"topic": REQUEST, "response_topic": MINE, "correlation": b"1"}
    return Message(payload=payload, received_ns=1, **settings | facts)


def test_requests_are_those_that_the_daemon_would_run() -> None:
    """Its own rules: a repeat once, no answer to nobody or elsewhere, topics of the contract; counted by reason."""
    source = Requests(Payloads(TWO, None), RepliesConfig(), 20)
    messages = [
        asked(),
        asked(),
        asked(),
        asked(A.tobytes() + b"\1\0\0\0"),
        asked(correlation=b"2"),
        asked(topic=f"{REQUEST}/9/raw", response_topic=None, correlation=None),
        asked(topic=f"{REQUEST}/9/raw", response_topic=None, correlation=None),
        asked(response_topic=None),
        asked(response_topic="edged/v1/resp/eve/1"),
        asked(topic=f"{REQUEST}/9"),
        asked(retain=True),
        asked(content_type="text/plain", correlation=b"3"),
        asked(user=(("deadline-ms", "soon"),), correlation=b"4"),
        asked(bytes(21), correlation=b"5"),
        asked(b"123", correlation=b"6"),
    ]
    found = taken(source, *messages)
    assert [(key, sample["n"].tolist()) for key, sample in found] == [("tom", [n]) for n in (7, 1, 7, 7)]
    assert source.counters() == {
        "bad": 4, "retained": 1, "repeats": 3, "refused_topic": 1, "refused_no_response_topic": 1,
        "refused_response_topic": 1,
    }  # fmt: skip
    assert [reason.removeprefix(REQUEST) for reason in source.reasons] == [
        ": it has no Response Topic", ": its Response Topic is not below edged/v1/resp/<user>/",
        "/9: the topic is not of the contract", ": no codec for content type 'text/plain'",
        ": deadline-ms must be 1 to 86400000, got 'soon'",
    ]  # fmt: skip

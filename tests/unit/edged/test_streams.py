"""Streams, driven by real messages: windows against numpy's slicing, answers as published."""

from __future__ import annotations

import json
import logging
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from support.sensorstream import DEFAULT_DEADLINE_MS, FIELDS, bench, config, signature

from edged import bundle
from edged.clock import NS_PER_MS
from edged.errors import Code, RequestError
from edged.request import Reply
from edged.streams.continuity import BEHIND_LIMIT

DATA = np.random.default_rng(5).normal(size=(23, 3)).astype(np.float32)


def expected_windows(data: np.ndarray[Any, Any], length: int, hop: int) -> np.ndarray[Any, Any]:
    return sliding_window_view(data, length, axis=0)[::hop].transpose(0, 2, 1)


@pytest.mark.parametrize("hop", [1, 2, 4], ids=["hop 1", "overlapping", "tumbling"])
def test_windows_are_numpys_slices(hop: int) -> None:
    """Each request holds, bit for bit, the slice of the samples that length and hop ask for."""
    made = bench(config(hop=hop))
    for row in DATA:
        made.send_sample(row)
    assert np.array_equal(made.windows(), expected_windows(DATA, 4, hop))
    assert made.counted("samples", "windows", "bad") == (23, len(made.requests), 0)


@pytest.mark.parametrize("decode", ["raw", "csv"])
@pytest.mark.parametrize("hop", [3, 4])
@pytest.mark.parametrize("batch", [1, 2, 5, 23])
def test_messages_of_several_samples_make_the_same_windows(decode: str, hop: int, batch: int) -> None:
    """How the samples are spread over messages changes nothing."""
    made = bench(config(hop=hop, decode=decode))
    for begin in range(0, len(DATA), batch):
        rows = DATA[begin : begin + batch]
        text = "\n".join(",".join(repr(float(value)) for value in row) for row in rows)
        made.send(memoryview(rows.astype("<f4").tobytes()) if decode == "raw" else text.encode())
    assert np.array_equal(made.windows(), expected_windows(DATA, 4, hop))


def test_a_request_carries_what_the_rooms_need() -> None:
    """Model, codecs, the time of the sample that filled the window, a deadline from it, and facts for JSON."""
    made = bench(config(hop=2, seq="n", time="t", reply="cbor", deadline_ms=40))
    for index in range(6):
        sample = dict.fromkeys(FIELDS, 0.5) | {"n": 10 + index, "t": index / 4}
        made.send(json.dumps(sample).encode(), ns=1_000 + index)
    first, second = made.requests
    assert (first.model, first.codec, first.reply_codec) == ("har", "raw", "cbor")
    assert (first.received_ns, second.received_ns) == (1_003, 1_005)
    assert first.deadline_ns == 1_003 + 40 * NS_PER_MS
    assert first.annotations == {"stream": "imu", "key": "a", "n": 0, "first_seq": 10, "seq": 13, "time": 0.75}
    assert second.annotations == {"stream": "imu", "key": "a", "n": 1, "first_seq": 12, "seq": 15, "time": 1.25}


def test_without_a_deadline_of_its_own_the_models_counts() -> None:
    """The default deadline is used, and facts that are not configured are left out."""
    made = bench()
    for row in DATA[:4]:
        made.send_sample(row)
    assert made.requests[0].deadline_ns == 1 + DEFAULT_DEADLINE_MS * NS_PER_MS
    assert made.requests[0].annotations == {"stream": "imu", "key": "a", "n": 0}


def test_a_quantized_input_gets_quantized_values() -> None:
    """Where clients send the model's own integers, so does a stream: rounded, saturated, of the right dtype."""
    spec = {"dtype": "int8", "scale": 0.05, "zero_point": 3, "io": "quantized"}
    made = bench(model=signature((1, 4, 3), **spec))
    rows = np.array([[0, 1, -1], [0.05, 100, -100], [0.024, 0.026, 2], [3, 4, 5]], np.float32)
    for row in rows:
        made.send_sample(row)
    exact = np.clip(np.rint(rows.astype(np.float64) / 0.05) + 3, -128, 127).astype(np.int8)
    assert bytes(made.requests[0].payload) == exact.tobytes()


def test_a_quantized_model_with_float_io_gets_floats() -> None:
    """Where the daemon converts for its clients, the stream sends float32 as they do."""
    made = bench(model=signature((1, 4, 3), dtype="int8", scale=0.05))
    for row in DATA[:4]:
        made.send_sample(row)
    assert np.array_equal(made.windows()[0], DATA[:4])


def test_each_key_has_its_own_window() -> None:
    """Interleaved sensors do not mix, and every answer goes to its own topic."""
    made = bench()
    for row in DATA[:8]:
        made.send_sample(row, "a")
        made.send_sample(-row, "b")
    windows = {(r.annotations or {})["key"]: w for r, w in zip(made.requests[-2:], made.windows()[-2:], strict=True)}
    assert np.array_equal(windows["a"], DATA[4:8])
    assert np.array_equal(windows["b"], -DATA[4:8])
    assert [(r.annotations or {})["n"] for r in made.requests] == [0, 0, 1, 1]


def test_without_a_key_level_all_topics_share_one_window() -> None:
    """No key level: one window, and an output topic without a key."""
    made = bench(config(key_level=None))
    for index, row in enumerate(DATA[:4]):
        made.send_sample(row, "ab"[index % 2])
    made.requests[0].respond(made.requests[0], Reply(b"{}", "application/json"), None)
    assert made.published[0][0].topic == "edged/v1/dev/press-07/out/imu"


def test_the_key_silent_longest_makes_room() -> None:
    """No more than `max_keys` are held; the one heard of least recently begins again when it comes back."""
    made = bench(config(max_keys=2))
    for key in ("a", "b", "a", "c", "a", "a"):  # c drives b out, not a
        made.send_sample(DATA[0], key)
    assert made.counted("keys", "evicted", "windows") == (2, 1, 1)
    for _ in range(3):
        made.send_sample(DATA[0], "b")  # its first sample is forgotten
    assert made.counted("windows") == (1,)


def test_a_gap_in_seq_restarts_the_window() -> None:
    """No window straddles missing samples; the gap and the number missing are counted."""
    made = bench(config(seq="n"))
    for n in [0, 1, 2, 5, 6, 7, 8]:
        made.send_sample(DATA[n], n=n)
    assert np.array_equal(made.windows(), DATA[None, 5:9])
    assert made.counted("gaps", "missed", "restarts", "duplicates") == (1, 2, 0, 0)


def test_a_sample_delivered_twice_is_used_once() -> None:
    """A seq that does not rise is a duplicate, whatever its values: dropped and counted."""
    made = bench(config(seq="n"))
    for n in [5, 6, 6, 5, 7, 8]:
        made.send_sample(DATA[n], n=n)
    assert np.array_equal(made.windows(), DATA[None, 5:9])
    assert made.counted("duplicates", "gaps", "samples") == (2, 0, 4)


@pytest.mark.parametrize("first", [0, 1])
def test_a_new_recording_restarts_the_window(first: int) -> None:
    """A seq back at 0 or 1 is a sender that began again: no gap, no duplicate, no mixed window."""
    made = bench(config(seq="n"))
    for n in [7, 8, 9, first, first + 1, first + 2, first + 3]:
        made.send_sample(DATA[n], n=n)
    assert np.array_equal(made.windows(), DATA[None, first : first + 4])
    assert made.counted("restarts", "gaps", "duplicates") == (1, 0, 0)


def test_a_sender_that_restarted_unseen_is_not_ignored_for_ever() -> None:
    """When the first samples of a new recording were lost, the rest counts as a restart after a while."""
    made = bench(config(seq="n"))
    for n in [100_000, *range(10, 10 + BEHIND_LIMIT + 3)]:
        made.send_sample(DATA[0], n=n)
    assert made.counted("duplicates", "restarts", "windows") == (BEHIND_LIMIT - 1, 1, 1)
    assert (made.requests[0].annotations or {})["seq"] == 10 + BEHIND_LIMIT + 2


def test_old_samples_out_of_order_are_no_restart() -> None:
    """However many old samples come, they are duplicates unless they count up as a recording does."""
    made = bench(config(seq="n"))
    for n in [1_000, *[10] * (2 * BEHIND_LIMIT), *range(500, 100, -2)]:
        made.send_sample(DATA[0], n=n)
    assert made.counted("duplicates", "restarts") == (2 * BEHIND_LIMIT + 200, 0)


@pytest.mark.parametrize(
    ("times", "gaps"), [((0, 1, 2, 3), 0), ((0, 1, 2.6, 3), 1), ((0, 1, 0.5, 1), 1), ((0, 0, 0, 0), 0)]
)
def test_a_jump_in_time_restarts_the_window(times: tuple[float, ...], gaps: int) -> None:
    """A step of more than `max_gap_s`, or back, is a gap; a step of just so much, or none, is not."""
    made = bench(config(time="t", max_gap_s=1.0))
    for t in times:
        made.send_sample(DATA[0], t=t)
    assert made.counted("gaps", "windows") == (gaps, 1 - gaps)


def test_a_bad_sample_is_a_hole_where_no_seq_tells() -> None:
    """Without seq the samples around a bad one must not stand side by side; with it, seq decides."""
    blind, counting = bench(), bench(config(seq="n"))
    for made in (blind, counting):
        for n in (0, 1):
            made.send_sample(DATA[n], n=n)
        made.send(b"rubbish")
        for n in (2, 3, 4, 5):
            made.send_sample(DATA[n], n=n)
    assert np.array_equal(blind.windows(), DATA[None, 2:6])
    assert np.array_equal(counting.windows(), DATA[None, 0:4])
    assert blind.counted("bad", "gaps") == (1, 1)
    assert counting.counted("bad", "gaps") == (1, 0)


def test_a_retained_sample_is_ignored() -> None:
    """The broker's stored value is stale: counted, not used."""
    made = bench()
    made.send(json.dumps(dict.fromkeys(FIELDS, 1.0)).encode(), retain=True)
    assert made.counted("retained", "samples", "keys") == (1, 0, 0)


@pytest.mark.parametrize("topic", ["sensors", "sensors//imu", "sensors/" + "x" * 256 + "/imu"])
def test_a_topic_without_a_usable_key_is_a_bad_sample(topic: str) -> None:
    """A key that could not stand in an output topic makes no window."""
    made = bench(config(topic="sensors/#"))
    made.send(json.dumps(dict.fromkeys(FIELDS, 1.0)).encode(), topic=topic)
    assert made.counted("bad", "keys") == (1, 0)


def test_bad_samples_are_reported_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """The first one is logged with its topic and reason; a flood does not flood the log."""
    made = bench()
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            made.send(b'{"ax": 1, "ay": 2}')
    assert [record.getMessage() for record in caplog.records] == [
        "stream imu: bad sample on sensors/a/imu: az is missing (1 bad so far)"
    ]


def test_answers_go_to_the_streams_topic() -> None:
    """Payload, type, QoS and `on_sent` reach the transport; errors go to the same topic and are told apart."""
    made = bench(config(qos=1))
    for row in DATA[:8]:
        made.send_sample(row)
    sent: list[int] = []
    good, bad = made.requests
    good.respond(good, Reply(b"\x01\x02", "application/octet-stream", "v=1"), sent.append)
    bad.respond(bad, Reply.failure(RequestError(Code.DEADLINE_EXCEEDED, "late")), None)
    (answer, on_sent), (failure, _) = made.published
    assert answer.topic == failure.topic == "edged/v1/dev/press-07/out/imu/a"
    assert (answer.payload, answer.content_type, answer.qos) == (b"\x01\x02", "application/octet-stream", 1)
    assert answer.user == (("status", "ok"), ("meta", "v=1"))
    assert on_sent == sent.append
    assert (failure.user, failure.content_type) == ((), None)  # JSON, which any subscriber can be sent
    assert json.loads(bytes(failure.payload))["error"]["code"] == "DEADLINE_EXCEEDED"
    assert made.counted("answered", "failed", "unsent") == (1, 1, 0)
    made.taken = False
    good.respond(good, Reply(b"{}", "application/json"), None)
    assert made.counted("answered", "unsent") == (2, 1)


@pytest.mark.parametrize(
    ("settings", "model", "words"),
    [
        ({}, signature((1, 5, 3)), "3 fields x a window of 4 samples are 12 values, but input x .* 15 .1 x 5 x 3."),
        ({}, bundle.Signature(signature((1, 12)).inputs * 2, ()), "model har has 2 inputs"),
        ({}, signature((1, 12), dtype="int32"), "takes int32; a stream gives float32"),
        ({"decode": "raw", "seq": "n"}, signature((1, 12)), "raw samples carry no seq"),
        ({"fields": ("n",), "seq": "n"}, signature((1, 4)), "nothing beside seq and time"),
        ({"fields": ("a", "a", "b")}, signature((1, 12)), "used twice"),
        ({"seq": "n", "time": "n"}, signature((1, 12)), "used twice"),
    ],
)
def test_a_stream_that_cannot_feed_the_model_is_refused(settings: Any, model: bundle.Signature, words: str) -> None:
    """What does not fit is said in words, before the first sample."""
    with pytest.raises(ValueError, match=words):
        bench(config(**settings), model)

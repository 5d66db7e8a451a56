"""Stream answers are held against the recording the sensor was replaying."""

from __future__ import annotations

import json

import pytest

from converters.demo.answers import Answers, Watch
from edged.errors import Code, RequestError
from edged.transports.base import Message

METRICS = json.dumps({
    "format": 1, "boot": "b", "seq": 2, "interval_s": 1, "process": {"rss_bytes": 4096},
    "models": {"har": {"since_start": {"latency": {"total": {"n": 3, "p99_us": 7.5}}}}},
}).encode()  # fmt: skip
TRUTH = {"s0": [2, 0], "s1": [1, 1]}


def answer(n: int, choice: int) -> bytes:
    scores = [[0.1, 0.1, 0.1, 0.1]]
    scores[0][choice] = 0.7
    return json.dumps({"predictions": scores, "n": n, "stream": "imu", "seq": 99}).encode()


def test_window_n_of_a_sensor_is_its_nth_recording() -> None:
    """The order of arrival does not matter; the sensor and the window number do."""
    answers = Answers(TRUTH)
    answers.take("s1", answer(1, 1))
    answers.take("s0", answer(1, 0))
    answers.take("s0", answer(0, 2))
    answers.take("s1", answer(0, 3))
    assert (answers.expected, answers.answered, answers.right, answers.missing) == (4, 4, 3, 0)


def test_a_second_or_foreign_answer_counts_as_unexpected_only() -> None:
    """Duplicates cannot stand in for missing answers."""
    answers = Answers(TRUTH)
    for key, n in (("s0", 0), ("s0", 0), ("s0", 2), ("s9", 0)):
        answers.take(key, answer(n, 2))
    assert (answers.answered, answers.right, answers.unexpected, answers.missing) == (1, 1, 3, 3)


def test_an_error_answer_is_counted_by_its_code_and_leaves_the_window_open() -> None:
    """An error is an answer of the daemon, but none to the question."""
    answers = Answers(TRUTH)
    answers.take("s0", RequestError(Code.RESOURCE_EXHAUSTED, "full").to_json())
    assert answers.errors == {"RESOURCE_EXHAUSTED": 1}
    assert answers.missing == 4


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"[]", b'{"n": 0}', b'{"n": 0, "predictions": []}', b'{"error": {"code": 7}}', b"\xff"]
)
def test_rubbish_is_counted_never_raised(payload: bytes) -> None:
    """Whatever comes, the transport's thread lives and the rubbish shows."""
    answers = Answers(TRUTH)
    answers.take("s0", payload)
    assert answers.errors == {"UNREADABLE": 1}


def test_messages_are_sorted_by_topic() -> None:
    """Status, metrics and answers of this device arrive where they belong; the key is the last level."""
    watch = Watch("d", "imu", Answers(TRUTH))
    for topic, payload in (
        ("edged/v1/dev/d/status", b'{"state": "ready", "boot": "b"}'),
        ("edged/v1/dev/d/metrics", METRICS),
        ("edged/v1/dev/d/out/imu/s0", answer(0, 2)),
        ("edged/v1/dev/other/status", b'{"state": "lost"}'),
    ):
        watch.on_message(Message(topic, payload))
    assert watch.device is not None
    assert watch.device.state == "ready"
    total = watch.latency("har")["total"]
    assert (total["n"], total["p99_us"], total["max_us"]) == (3, 7.5, None)
    assert watch.latency("other") == {}
    assert watch.metrics is not None
    assert watch.metrics.rss_bytes == 4096
    assert watch.answers.right == 1
    assert {s.filter for s in watch.subscriptions} == {
        "edged/v1/dev/d/status",
        "edged/v1/dev/d/metrics",
        "edged/v1/dev/d/out/imu/+",
    }


def test_before_the_first_word_there_is_nothing() -> None:
    """Neither state nor latency is made up."""
    watch = Watch("d", "imu", Answers(TRUTH))
    assert watch.device is None
    assert watch.latency("har") == {}
    watch.on_message(Message("edged/v1/dev/d/status", b"rubbish"))
    assert watch.device is None

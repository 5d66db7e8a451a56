"""Streams over a lost connection, and answers that are kept: what tells one from its repeat."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.sensorstream import Bench, bench, config

from edged.clock import wall_s
from edged.errors import Code, RequestError
from edged.request import Reply

DATA = np.arange(60, dtype=np.float32).reshape(20, 3)


def feed(made: Bench, *numbers: int, key: str = "a", qos: int = 0, seq: bool = False, dup: bool = False) -> None:
    for number in numbers:
        sample = dict(zip(("ax", "ay", "az"), DATA[number].tolist(), strict=True)) | ({"n": number} if seq else {})
        made.send(json.dumps(sample).encode(), topic=f"sensors/{key}/imu", qos=qos, dup=dup)


def firsts(made: Bench) -> list[int]:
    """The number of the first sample of each window."""
    return [int(window[0, 0]) // 3 for window in made.windows()]


@pytest.mark.parametrize("hop", [2, 4])
@pytest.mark.parametrize(
    ("qos", "resumed", "whole"), [(0, False, False), (0, True, False), (1, False, False), (1, True, True)]
)
def test_no_window_is_patched_over_lost_samples(hop: int, qos: int, *, resumed: bool, whole: bool) -> None:
    """Without seq a begun window is given up, unless the broker kept the session and the sensor sends at QoS 1."""
    made = bench(config(hop=hop))
    feed(made, 0, 1, 2, qos=qos)
    made.stream.reconnected(resumed=resumed)
    feed(made, 3, 4, 5, 6, qos=qos)
    assert firsts(made)[0] == (0 if whole else 3)
    assert made.counted("interrupted", "gaps") == ((0, 0) if whole else (1, 0))


def test_a_subscription_at_qos_1_does_not_make_its_sensor_send_so() -> None:
    """What counts is how the samples came: a broker queues nothing that was sent at QoS 0."""
    made = bench(config(qos=1))
    feed(made, 0, 1, qos=0)
    made.stream.reconnected(resumed=True)
    assert made.counted("interrupted") == (1,)


@pytest.mark.parametrize("hop", [2, 4])
@pytest.mark.parametrize("again", [(3, 4, 5), (4, 5), (6, 7)], ids=["had all", "had some", "had none"])
def test_what_a_broker_sends_again_begins_a_window(hop: int, again: tuple[int, ...]) -> None:
    """Without seq nobody knows whether it came before; from the first of them on everything follows."""
    made = bench(config(hop=hop, qos=1))
    feed(made, *range(6), qos=1)
    before = len(made.requests)
    made.stream.reconnected(resumed=True)
    feed(made, *again, qos=1, dup=True)
    feed(made, *range(again[-1] + 1, 20), qos=1)
    windows = made.windows()[:, :, 0] / 3
    assert (np.diff(windows) == 1).all()
    assert windows[before, 0] == again[0]
    assert made.counted("interrupted", "duplicates") == (1, 0)


def test_what_is_sent_again_amid_others_is_in_no_window() -> None:
    """A broker that repeats on a connection that lasts: where it belongs nobody knows, and the window begins anew."""
    made = bench(config(qos=1))
    feed(made, 0, 1, qos=1)
    feed(made, 0, 1, qos=1, dup=True)
    feed(made, 2, 3, 4, 5, qos=1)
    assert firsts(made) == [2]
    assert made.counted("interrupted", "duplicates", "samples") == (1, 2, 6)


def test_each_connection_repeats_by_itself() -> None:
    """Two connections that only repeat: the second one's begin anew."""
    made = bench(config(qos=1))
    feed(made, 0, 1, qos=1)
    for _ in range(2):
        made.stream.reconnected(resumed=True)
        feed(made, 0, 1, qos=1, dup=True)
    feed(made, 2, 3, qos=1)
    assert firsts(made) == [0]
    assert made.counted("interrupted") == (2,)


def test_numbered_samples_that_come_again_are_dropped_by_their_number() -> None:
    """With seq a repeat is a duplicate or the next one: nothing is lost."""
    made = bench(config(seq="n", qos=1))
    feed(made, 0, 1, qos=1, seq=True)
    made.stream.reconnected(resumed=True)
    feed(made, 1, 2, 3, qos=1, seq=True, dup=True)
    assert firsts(made) == [0]
    assert made.counted("interrupted", "duplicates") == (0, 1)


def test_each_key_is_judged_by_itself() -> None:
    """Only windows that have begun, only of sensors whose samples may be missing."""
    made = bench(config(qos=1))
    feed(made, 0, 1, 2, 3, key="full", qos=0)
    feed(made, 0, key="sure", qos=1)
    feed(made, 0, key="lossy", qos=0)
    made.stream.reconnected(resumed=True)
    assert made.counted("interrupted") == (1,)


def test_numbered_samples_tell_themselves() -> None:
    """With seq nothing is given up where nothing is missing, and nothing patched where something is."""
    made = bench(config(seq="n"))
    feed(made, 0, 1, 2, seq=True)
    made.stream.reconnected(resumed=False)
    feed(made, 3, 4, 5, seq=True)
    made.stream.reconnected(resumed=False)
    feed(made, 9, 10, 11, 12, seq=True)
    assert firsts(made) == [0, 9]
    assert made.counted("interrupted", "gaps", "missed") == (0, 1, 3)


def test_kept_answers_say_of_which_start_they_are() -> None:
    """`n` begins at 0 again after a restart: boot tells the two, ts when it was."""
    made = bench(config(store=True))
    before = wall_s()
    feed(made, 0, 1, 2, 3)
    facts = made.requests[0].annotations or {}
    assert (facts["key"], facts["n"], facts["boot"]) == ("a", 0, "b007")
    assert before <= float(str(facts["ts"])) <= wall_s()


def test_no_number_comes_twice_for_a_key_that_was_forgotten() -> None:
    """A sensor that comes back after its window was evicted goes on counting: it is no repeat."""
    made = bench(config(store=True, max_keys=1))
    for key in ("a", "a", "b", "a"):
        feed(made, 0, 1, 2, 3, key=key)
    found = [((request.annotations or {})["key"], (request.annotations or {})["n"]) for request in made.requests]
    assert found == [("a", 0), ("a", 1), ("b", 2), ("a", 3)]


def test_kept_answers_go_out_at_qos_1() -> None:
    """Whatever the subscription: without an acknowledgement nobody knows what to keep."""
    for store, qos in ((True, 1), (False, 0)):
        made = bench(config(store=store, qos=0))
        feed(made, 0, 1, 2, 3)
        made.requests[0].respond(made.requests[0], Reply(b"{}", "application/json"), None)
        assert made.published[0][0].qos == qos


def test_an_answer_without_json_says_it_in_a_property() -> None:
    """raw and npy have no room for facts: one property, only where answers are kept."""
    made = bench(config(store=True, reply="raw"))
    feed(made, 0, 1, 2, 3)
    made.requests[0].respond(made.requests[0], Reply(b"\0\0\0\0", "application/octet-stream", "v=1"), None)
    user = dict(made.published[0][0].user)
    ts = (made.requests[0].annotations or {})["ts"]
    assert user == {"status": "ok", "meta": "v=1", "window": f"boot=b007;n=0;ts={ts}"}


def test_an_error_says_whose_window_it_stands_for() -> None:
    """The facts stand beside the error, which still reads as one."""
    made = bench(config(seq="n"))
    feed(made, 0, 1, 2, 3, seq=True)
    made.requests[0].respond(made.requests[0], Reply.failure(RequestError(Code.UNAVAILABLE, "gone")), None)
    payload = bytes(made.published[0][0].payload)
    assert RequestError.from_json(payload).message == "gone"
    assert json.loads(payload) == {
        "error": {"code": "UNAVAILABLE", "message": "gone", "retryable": True, "retry_after_ms": None},
        "stream": "imu", "key": "a", "n": 0, "seq": 3, "first_seq": 0,
    }  # fmt: skip

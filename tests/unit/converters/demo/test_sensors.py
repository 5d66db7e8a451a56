"""The sensors send every sample once, in order, and wait for answers instead of flooding."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import numpy as np

from converters.demo import sensors
from edged.clock import NS_PER_S
from edged.transports.base import Message

X = np.arange(3 * 4 * 6, dtype=np.float32).reshape(3, 4, 6) / 3


class Wire:
    """Takes messages; answers each finished recording when asked to."""

    def __init__(self) -> None:
        self.sent: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.replay: Any = None

    def publish(self, message: Message) -> bool:
        key = message.topic.split("/")[1]
        self.sent[key].append(json.loads(message.payload))
        if self.replay is not None and self.sent[key][-1]["n"] == 3:
            self.replay.on_message(Message(f"edged/v1/dev/d/out/imu/{key}", b"{}"))
        return True


def replay(wire: Wire, *orders: list[int]) -> Any:
    made = sensors.Replay(
        wire, [sensors.Sensor(sensors.key(i), list(o)) for i, o in enumerate(orders)], sensors.messages(X)
    )
    wire.replay = made
    return made


def test_every_sample_of_every_recording_is_sent_once_in_order_with_its_exact_values() -> None:
    """`n` restarts with each recording, the time goes on at 10 Hz, and float32 values survive the text."""
    wire = Wire()
    made = replay(wire, [2, 0], [1])
    made.run(rate_hz=1e5)
    assert [m["n"] for m in wire.sent["s0"]] == [0, 1, 2, 3] * 2
    assert [m["t"] for m in wire.sent["s0"]] == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    values = [[m[name] for name in ("ax", "ay", "az", "gx", "gy", "gz")] for m in wire.sent["s0"]]
    np.testing.assert_array_equal(np.array(values, np.float32), np.concatenate([X[2], X[0]]))
    assert len(wire.sent["s1"]) == 4
    assert vars(made.counts) == {"samples": 12, "held": 0, "dropped": 0, "windows": 3}


def test_a_sensor_two_recordings_ahead_waits_and_then_goes_on_without_the_answer() -> None:
    """Back-pressure holds a new recording, never the middle of one, and not for ever."""
    sensor = sensors.Sensor("s0", [0, 0, 0], recording=2)
    assert not sensor.may_send(NS_PER_S)
    assert not sensor.may_send(2 * NS_PER_S)
    sensor.sample = 1
    assert sensor.may_send(2 * NS_PER_S)
    sensor.sample = 0
    assert not sensor.may_send(3 * NS_PER_S)
    assert not sensor.may_send(9 * NS_PER_S)
    assert sensor.may_send(10 * NS_PER_S)
    sensor.recording = 3
    assert sensor.may_send(10 * NS_PER_S)


def test_an_answer_frees_its_own_sensor_only() -> None:
    """Answers are counted by the key at the end of the topic."""
    made = replay(Wire(), [0], [0])
    made.on_message(Message("edged/v1/dev/d/out/imu/s1", b""))
    made.on_message(Message("edged/v1/dev/d/out/imu/s7", b""))
    assert [s.answered for s in made._sensors] == [0, 1]


def test_what_the_transport_refuses_is_counted() -> None:
    """A sample that was never sent shows in the counts."""
    wire = Wire()
    wire.publish = lambda *_: False  # type: ignore[method-assign]
    made = replay(wire, [0])
    made.run(rate_hz=1e5)
    assert vars(made.counts) == {"samples": 0, "held": 0, "dropped": 4, "windows": 1}

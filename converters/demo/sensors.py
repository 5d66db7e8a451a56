"""The demo's sensors: real recordings, replayed sample by sample as JSON over MQTT.

Runs as a child: `python -m converters.demo.sensors --url … --device … --data eval.npz …`. Sensor `s<k>` publishes on
`sensors/s<k>/imu` one message per sample, all sensors at one rate, shifted so that their windows do not all end at the
same moment. `n` restarts at 0 with each recording, which a stream takes as the begin of a new one.

A sensor that has two recordings without an answer waits before it begins the next (counted as `held`): on a slow
machine the demo gets longer instead of flooding the broker. Standard output gets one JSON line a second.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from converters.demo import recordings
from edged import topics
from edged.clock import NS_PER_S, now_ns
from edged.transports.base import Message, Subscription
from edged.transports.mqtt import MqttSettings, MqttTransport

STREAM = "imu"
AHEAD = 2
GIVE_UP_S = 5.0
CONNECT_S = 15.0


def topic(key: str) -> str:
    """Return the topic on which the sensor `key` publishes."""
    return f"sensors/{key}/{STREAM}"


def key(sensor: int) -> str:
    """Return the name of a sensor."""
    return f"s{sensor}"


@dataclass
class Sensor:
    """One sensor on its way through its recordings. `answered` is counted by the transport's thread."""

    key: str
    order: list[int]
    endless: bool = False
    sample: int = 0
    recording: int = 0
    answered: int = 0
    held_since_ns: int = 0

    @property
    def done(self) -> bool:
        """Whether it has nothing more to send."""
        return not self.endless and self.recording == len(self.order)

    def may_send(self, now: int) -> bool:
        """Whether the next sample may go now; a sensor that waits too long for an answer goes on without it."""
        if self.sample or self.recording - self.answered < AHEAD:
            self.held_since_ns = 0
            return True
        self.held_since_ns = self.held_since_ns or now
        if now - self.held_since_ns > GIVE_UP_S * NS_PER_S:
            self.answered = self.recording
        return False


@dataclass
class Counts:
    """What the sensors did. held: ticks on which a sensor waited for answers. dropped: samples never sent."""

    samples: int = 0
    held: int = 0
    dropped: int = 0
    windows: int = 0


def messages(x: npt.NDArray[np.float32]) -> list[list[str]]:
    """Return per recording and sample the JSON text of the six values, without the opening brace."""
    return [[_values(sample) for sample in recording] for recording in x]


def _values(sample: npt.NDArray[np.float32]) -> str:
    pairs = (f'"{name}": {float(value):.9g}' for name, value in zip(recordings.FIELDS, sample, strict=True))
    return ", ".join(pairs) + "}"


class Replay:
    """Sends the samples of all sensors in step with the clock."""

    def __init__(self, transport: MqttTransport, sensors: list[Sensor], texts: list[list[str]]) -> None:
        self._transport, self._sensors, self._texts = transport, sensors, texts
        self._by_key = {sensor.key: sensor for sensor in sensors}
        self.counts = Counts()

    def on_message(self, message: Message) -> None:
        """Count an answer, good or bad, for its sensor."""
        sensor = self._by_key.get(message.topic.rpartition("/")[2])
        if sensor is not None:
            sensor.answered += 1

    def run(self, rate_hz: float) -> None:
        """Send until every sensor is done, one sample of each per 1/rate seconds; never more to catch up."""
        period = int(NS_PER_S / rate_hz)
        shift = len(self._texts[0]) // len(self._sensors)
        due, tick, report = now_ns(), 0, now_ns() + NS_PER_S
        while not all(sensor.done for sensor in self._sensors):
            now = now_ns()
            for index, sensor in enumerate(self._sensors):
                if tick >= index * shift and not sensor.done:
                    self._step(sensor, now)
            if now >= report:
                self.report()
                report = now + NS_PER_S
            tick, due = tick + 1, max(due + period, now)
            time.sleep(max(0, due - now_ns()) / NS_PER_S)

    def _step(self, sensor: Sensor, now: int) -> None:
        if not sensor.may_send(now):
            self.counts.held += 1
            return
        recording = self._texts[sensor.order[sensor.recording % len(sensor.order)]]
        seconds = (sensor.recording * len(recording) + sensor.sample) / recordings.REAL_HZ
        text = f'{{"n": {sensor.sample}, "t": {seconds:.1f}, {recording[sensor.sample]}'
        sent = self._transport.publish(Message(topic(sensor.key), text.encode()))
        self.counts.samples += sent
        self.counts.dropped += not sent
        sensor.sample += 1
        if sensor.sample == len(recording):
            sensor.sample, sensor.recording = 0, sensor.recording + 1
            self.counts.windows += 1

    def wait(self, timeout_s: float) -> None:
        """Wait until every recording has its answer, or the time is up."""
        end = now_ns() + timeout_s * NS_PER_S
        while any(s.answered < s.recording for s in self._sensors) and now_ns() < end:
            time.sleep(0.02)

    def report(self) -> None:
        """Write the counts as one JSON line."""
        sys.stdout.write(json.dumps(vars(self.counts)) + "\n")
        sys.stdout.flush()


def main(argv: list[str] | None = None) -> int:
    """Replay; 0 when all was sent, 69 without a broker."""
    args = _arguments(argv)
    x = np.load(args.data)[args.input]
    orders = recordings.plan(args.sensors, len(x), args.windows or len(x))
    sensors = [Sensor(key(i), order, endless=args.windows == 0) for i, order in enumerate(orders)]
    transport = MqttTransport(MqttSettings.from_url(args.url, client_id="edged-demo-sensors"))
    replay = Replay(transport, sensors, messages(x))
    connected = threading.Event()
    out = topics.device(args.device, "out", STREAM, "+")

    def on_connection(up: bool, _detail: str) -> None:
        if up:
            connected.set()

    transport.start(replay.on_message, [Subscription(out, 0)], on_connection=on_connection)
    try:
        if not connected.wait(CONNECT_S):
            sys.stderr.write(f"no connection to {args.url} in {CONNECT_S:.0f} s\n")
            return 69
        replay.run(args.rate)
        replay.wait(GIVE_UP_S)
        replay.report()
    finally:
        transport.stop()
    return 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m converters.demo.sensors", description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--data", type=Path, required=True, help=".npz with the recordings")
    parser.add_argument("--input", required=True, help="name of the array in it")
    parser.add_argument("--sensors", type=int, required=True)
    parser.add_argument("--windows", type=int, required=True, help="recordings in all; 0: for ever")
    parser.add_argument("--rate", type=float, required=True, help="samples a second of each sensor")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

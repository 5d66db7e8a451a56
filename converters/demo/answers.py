"""What the demo hears from the daemon: stream answers held against the labels, status, metrics.

A sensor replays whole recordings of one window each, so window `n` of a sensor is its n-th recording, whose activity
is known. An answer nobody asked for, or one that comes twice, is as wrong as a missing one.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edged import topics
from edged.errors import ERROR_PREFIX, RequestError
from edged.transports.base import Message, Subscription


class Answers:
    """Stream answers so far, against `truth`: sensor → the label of its window 0, 1, 2, …"""

    def __init__(self, truth: Mapping[str, Sequence[int]]) -> None:
        self._open = {(key, n): label for key, labels in truth.items() for n, label in enumerate(labels)}
        self.expected = len(self._open)
        self.answered = self.right = self.unexpected = 0
        self.errors: Counter[str] = Counter()

    def take(self, key: str, payload: bytes) -> None:
        """Count one answer of the sensor `key`; never raises."""
        if payload.startswith(ERROR_PREFIX):
            self.errors[_code(payload)] += 1
            return
        try:
            value = json.loads(payload)
            window, scores = int(value["n"]), np.asarray(value["predictions"], np.float64)
            choice = int(scores.argmax())
        except (ValueError, KeyError, TypeError):
            self.errors["UNREADABLE"] += 1
            return
        label = self._open.pop((key, window), None)
        if label is None:
            self.unexpected += 1
            return
        self.answered += 1
        self.right += choice == label

    @property
    def missing(self) -> int:
        """How many windows have no answer yet."""
        return len(self._open)


def _code(payload: bytes) -> str:
    try:
        return RequestError.from_json(payload).code.value
    except (ValueError, KeyError, TypeError):
        return "UNREADABLE"


class Watch:
    """Takes every message of one device. `changed` is set at each; status and metrics are the newest, {} before."""

    def __init__(self, device: str, stream: str, answers: Answers) -> None:
        self._status, self._metrics = topics.device(device, "status"), topics.device(device, "metrics")
        self._out = topics.device(device, "out", stream, "")
        self.answers = answers
        self.status: dict[str, Any] = {}
        self.metrics: dict[str, Any] = {}
        self.metrics_seen = 0
        self.changed = threading.Event()

    @property
    def subscriptions(self) -> list[Subscription]:
        """What to subscribe to."""
        return [Subscription(self._status, 1), Subscription(self._metrics, 0), Subscription(self._out + "+", 0)]

    def on_message(self, message: Message) -> None:
        """Sort in one message; called on the transport's thread."""
        payload = bytes(message.payload)
        if message.topic == self._status:
            self.status = json.loads(payload)
        elif message.topic == self._metrics:
            self.metrics = json.loads(payload)
            self.metrics_seen += 1
        elif message.topic.startswith(self._out):
            self.answers.take(message.topic[len(self._out) :], payload)
        self.changed.set()

    def model(self, name: str) -> Mapping[str, Any]:
        """Return the newest metrics of one model, {} before the first."""
        found = self.metrics.get("models", {}).get(name, {})
        return found if isinstance(found, dict) else {}

    def latency(self, name: str) -> Mapping[str, Mapping[str, float]]:
        """Return stage → {n, p50_us, p90_us, p99_us, max_us} of one model since the daemon's start."""
        found = self.model(name).get("since_start", {}).get("latency", {})
        return found if isinstance(found, dict) else {}

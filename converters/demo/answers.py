"""What the demo hears from the daemon: stream answers held against the labels, status, metrics.

A sensor replays whole recordings of one window each, so window `n` of a sensor is its n-th recording, whose activity
is known. An answer nobody asked for, or one that comes twice, is as wrong as a missing one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from edged import topics
from edged.client.fleet import Device, Fleet
from edged.client.metrics import Metrics
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
    """Takes every message of one device."""

    def __init__(self, device: str, stream: str, answers: Answers) -> None:
        self._fleet = Fleet(frozenset({device}))
        self._out = topics.device(device, "out", stream, "")
        self.answers = answers

    @property
    def subscriptions(self) -> list[Subscription]:
        """What to subscribe to."""
        return [*(Subscription(topic, 1) for topic in self._fleet.filters()), Subscription(self._out + "+", 0)]

    def on_message(self, message: Message) -> None:
        """Sort in one message; called on the transport's thread."""
        if message.topic.startswith(self._out):
            self.answers.take(message.topic[len(self._out) :], bytes(message.payload))
        else:
            self._fleet.take(message)

    @property
    def device(self) -> Device | None:
        """What the device said last of itself; None before its first word."""
        return next(iter(self._fleet.snapshot()), None)

    @property
    def metrics(self) -> Metrics | None:
        """Its newest metrics; None before the first."""
        return None if self.device is None else self.device.metrics

    def latency(self, model: str) -> dict[str, dict[str, Any]]:
        """Return stage → {n, p50_us, p90_us, p99_us, p999_us, max_us} of one model since the daemon's start."""
        found = self.metrics.models.get(model) if self.metrics is not None else None
        return {} if found is None else {stage: asdict(row) for stage, row in found.since_start.latency.items()}

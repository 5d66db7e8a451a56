"""A stream with its surroundings written down: what it submitted, what it published."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from edged.bundle import Signature, TensorSpec
from edged.config_streams import StreamConfig, WindowConfig
from edged.request import OnSent, Request
from edged.streams import Stream
from edged.transports.base import Message

FIELDS = ("ax", "ay", "az")
DEFAULT_DEADLINE_MS = 250


def signature(shape: Sequence[int], **spec: Any) -> Signature:
    return Signature((TensorSpec("x", spec.pop("dtype", "float32"), tuple(shape), **spec),), ())


def config(*, length: int = 4, hop: int = 4, **settings: Any) -> StreamConfig:
    wanted: dict[str, Any] = {
        "name": "imu", "topic": "sensors/+/imu", "key_level": 1, "decode": "json", "fields": FIELDS, "model": "har",
        "window": WindowConfig(length=length, hop=hop),
    }  # fmt: skip
    return StreamConfig(**wanted | settings)


@dataclass
class Bench:
    """A stream under test. `taken` is what `publish` answers."""

    stream: Stream = field(init=False)
    requests: list[Request] = field(default_factory=list)
    published: list[tuple[Message, OnSent | None]] = field(default_factory=list)
    taken: bool = True

    def publish(self, message: Message, on_sent: OnSent | None) -> bool:
        self.published.append((message, on_sent))
        return self.taken

    def send(self, payload: bytes | memoryview, *, topic: str = "sensors/a/imu", ns: int = 1, **facts: Any) -> None:
        self.stream.on_message(Message(topic, payload, received_ns=ns, **facts))

    def send_sample(self, values: Sequence[float], key: str = "a", **extra: Any) -> None:
        sample: Mapping[str, Any] = dict(zip(FIELDS, map(float, values), strict=True)) | extra
        self.send(json.dumps(sample).encode(), topic=f"sensors/{key}/imu")

    def windows(self, length: int = 4) -> npt.NDArray[np.float32]:
        """The submitted payloads as float32 (windows, length, fields)."""
        payload = b"".join(bytes(request.payload) for request in self.requests)
        return np.frombuffer(payload, "<f4").reshape(-1, length, len(FIELDS))

    def counted(self, *names: str) -> tuple[int, ...]:
        stats = self.stream.stats()
        return tuple(stats[name] for name in names)


def bench(settings: StreamConfig | None = None, model: Signature | None = None) -> Bench:
    made, settings = Bench(), settings or config()
    model = model or signature((1, settings.window.length, len(FIELDS)))
    submit = made.requests.append
    made.stream = Stream(settings, model, "press-07", submit, made.publish, DEFAULT_DEADLINE_MS, "b007")
    return made

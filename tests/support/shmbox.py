"""A transport for local producers with a list, or a function, where the daemon's rooms would be."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.brokers import eventually

from edged.config import LocalConfig
from edged.transports.base import Message
from edged.transports.shm import ShmTransport


class Box:
    """A started transport that keeps what it receives, or does with it what `hook` says."""

    def __init__(self, path: Path, **config: Any) -> None:
        self.path, self.messages = path, list[Message]()
        self.hook: Callable[[Message], object] | None = None
        self.states: list[tuple[bool, str, int]] = []
        settings = {"slots": 3, "slot_bytes": 100_000, "max_producers": 2, **config}
        self.transport = ShmTransport(LocalConfig(socket=path, **settings), "box")

    def start(self) -> Box:
        self.transport.start(self._take, on_connection=self._connected)
        return self

    def _connected(self, connected: bool, detail: str) -> None:
        self.states.append((connected, detail, threading.get_ident()))

    def _take(self, message: Message) -> None:
        self.messages.append(message)
        if self.hook is not None:
            self.hook(message)

    def wait(self, count: int) -> list[Message]:
        eventually(lambda: len(self.messages) >= count, f"{count} messages, have {len(self.messages)}")
        return self.messages

    def answer(self, number: int = -1, payload: bytes = b"y", **more: Any) -> bool:
        """Answer a message as the intake does."""
        topic = self.messages[number].response_topic
        assert topic is not None
        properties = (("status", "ok"), ("meta", "v=1;q=3"))
        on_sent, on_done = more.pop("on_sent", None), more.pop("on_done", None)
        message = Message(topic, payload, content_type="application/octet-stream", user=properties, **more)
        return self.transport.publish(message, on_sent, on_done)

    def stat(self, name: str) -> int:
        return self.transport.stats()[name]

"""Requests whose replies a test can look at."""

from __future__ import annotations

import queue
from dataclasses import dataclass, field

from edged.clock import NS_PER_MS, now_ns
from edged.request import OnSent, Reply, Request


@dataclass
class Inbox:
    """Collects replies; `get` waits for one. Every reply is kept, so a second one to the same request shows."""

    replies: queue.Queue[tuple[Request, Reply]] = field(default_factory=queue.Queue)

    def respond(self, request: Request, reply: Reply, on_sent: OnSent | None) -> None:
        self.replies.put((request, reply))
        if on_sent is not None:
            on_sent(now_ns())

    def get(self, timeout: float = 10.0) -> Reply:
        return self.replies.get(timeout=timeout)[1]

    def count(self) -> int:
        return self.replies.qsize()

    def request(
        self,
        payload: bytes = b"1234",
        *,
        model: str = "m",
        deadline_ms: float = 10_000,
        codec: str = "raw",
        key: str = "",
    ) -> Request:
        now = now_ns()
        return Request(
            model, payload, codec=codec, reply_codec="raw", received_ns=now,
            deadline_ns=now + int(deadline_ms * NS_PER_MS), respond=self.respond, key=key,
        )  # fmt: skip

"""A transport in memory whose other end is a function: what a device, or a bad network, would do with each message."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import ClassVar

from edged.errors import RequestError
from edged.request import OnSent
from edged.transports.base import Message, OnConnection, OnDone, OnMessage, Subscription

Behaviour = Callable[["FakeTransport", Message], None]


def answer(request: Message, payload: bytes, *, user: tuple[tuple[str, str], ...] = (("status", "ok"),)) -> Message:
    """The reply a device gives to a request, written out by hand from the topic contract."""
    if request.response_topic is not None:
        content_type = request.content_type
        return Message(
            request.response_topic, payload, 1, correlation=request.correlation, content_type=content_type, user=user
        )
    levels = request.topic.split("/")
    return Message(f"edged/v1/resp/{levels[7]}/{levels[8]}", payload, 1)


def failure(request: Message, error: RequestError) -> Message:
    """The error reply to a request."""
    reply = answer(request, error.to_json(), user=(("status", "error"),))
    reply.content_type = None if request.response_topic is None else "application/json"
    return reply


def echo(transport: FakeTransport, request: Message) -> None:
    """A device whose model gives back its input, answered at once."""
    transport.deliver(answer(request, bytes(request.payload)))


class FakeTransport:
    """Connected from the start unless `protocol` is empty. `published` holds all that was published.

    The device's behaviour runs on one thread of its own, as an MQTT client's callbacks do: what waits there for an
    answer waits in vain.
    """

    name: ClassVar[str] = "fake"

    def __init__(self, behaviour: Behaviour = echo, protocol: str = "MQTT 5") -> None:
        self.behaviour, self.protocol = behaviour, protocol
        self.published: list[Message] = []
        self.filters: list[Subscription] = []
        self.accepts = True
        self.refuses = ""
        self.stopped = threading.Event()
        self.starts = 0
        self.fails: Exception | None = None
        self._requests: SimpleQueue[Message | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="fake-network", daemon=True)
        self._on_message: OnMessage | None = None
        self._on_connection: OnConnection | None = None

    def start(
        self,
        on_message: OnMessage,
        subscriptions: Sequence[Subscription],
        *,
        will: Message | None = None,
        on_connection: OnConnection | None = None,
    ) -> None:
        self.starts += 1
        if self.fails is not None:
            raise self.fails
        self._on_message, self._on_connection, self.filters = on_message, on_connection, list(subscriptions)
        self._thread.start()
        if self.protocol:
            self.connect(self.protocol)

    def _serve(self) -> None:
        while (request := self._requests.get()) is not None:
            self.behaviour(self, request)

    def connect(self, protocol: str) -> None:
        """Come up, as the transport's own thread would say."""
        assert self._on_connection is not None
        self._on_connection(True, protocol)

    def disconnect(self, reason: str) -> None:
        assert self._on_connection is not None
        self._on_connection(False, reason)

    def deliver(self, message: Message) -> None:
        """Hand a message to the client."""
        assert self._on_message is not None
        self._on_message(message)

    def publish(self, message: Message, on_sent: OnSent | None = None, on_done: OnDone | None = None) -> bool:
        if not self.accepts or self.refuses:
            return False
        self.published.append(message)
        self._requests.put(message)
        return True

    def refusal(self, message: Message) -> str:
        return self.refuses

    def trouble(self) -> str:
        return ""

    def stop(self, timeout_s: float = 2.0) -> None:
        self._requests.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        self.stopped.set()

    def stats(self) -> dict[str, int]:
        return {}

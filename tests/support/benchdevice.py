"""A device on the loopback bus whose every delay is known: what a load tool must find out about it."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

from support.fakedevice import answer, failure

from edged.bench.device import DeviceTarget
from edged.bench.ledger import numbers
from edged.bench.plan import Case, Load, Span
from edged.bench.target import Question
from edged.bench.trial import Trials
from edged.client.connection import Requester
from edged.client.payloads import Encoded
from edged.errors import Code, RequestError
from edged.transports import open_transport
from edged.transports.base import Message, Subscription

NAME = "dev"
_BUSES = itertools.count(1)


class KnownDevice:
    """Answers one request after the other, each as `script` says: it returns the replies after it has slept."""

    def __init__(self, script: Callable[[int, Message], list[Message]]) -> None:
        self.url = f"loopback://bench-test-{next(_BUSES)}"
        self._script, self._inbox = script, SimpleQueue[Message | None]()
        self._transport = open_transport(self.url)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.requests: list[Message] = []

    def __enter__(self) -> KnownDevice:
        self._transport.start(self._inbox.put, [Subscription(f"edged/v1/dev/{NAME}/req/#", 1)])
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._inbox.put(None)
        self._thread.join()
        self._transport.stop()

    def publish(self, leaf: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish as the device: `status`, `metrics`."""
        self._transport.publish(Message(f"edged/v1/dev/{NAME}/{leaf}", payload, retain=retain))

    def _serve(self) -> None:
        for number in itertools.count():
            request = self._inbox.get()
            if request is None:
                return
            self.requests.append(request)
            for reply in self._script(number, request):
                self._transport.publish(reply)


def echo(_number: int, request: Message) -> list[Message]:
    return [answer(request, bytes(request.payload))]


def refuse(_number: int, request: Message) -> list[Message]:
    return [failure(request, RequestError(Code.RESOURCE_EXHAUSTED, "the queue is full"))]


def takes(seconds: float) -> Callable[[int, Message], list[Message]]:
    """A device that is busy for so long with each request."""

    def script(number: int, request: Message) -> list[Message]:
        time.sleep(seconds)
        return echo(number, request)

    return script


def stalls(at: int, seconds: float) -> Callable[[int, Message], list[Message]]:
    """A device that stops for so long before it answers request number `at`, and is quick otherwise."""

    def script(number: int, request: Message) -> list[Message]:
        if number == at:
            time.sleep(seconds)
        return echo(number, request)

    return script


@contextmanager
def connected(device: KnownDevice, **options: object) -> Iterator[DeviceTarget]:
    """A target that leads to the device."""
    target = DeviceTarget(Requester(device.url, {}, "test", None), NAME, **options)  # type: ignore[arg-type]
    target.start(5.0)
    try:
        yield target
    finally:
        target.stop()


def question(size: int = 64, *, deadline_ms: int = 5000, qos: int = 0) -> Question:
    return Question("m", Encoded("raw", bytes(size)), qos, deadline_ms)


def case(
    load: Load, seconds: float, *, warmup_s: float = 0.0, warmup_requests: int = 0, deadline_ms: int = 5000
) -> Case:
    return Case(question(deadline_ms=deadline_ms), load, Span(seconds, warmup_s, warmup_requests))


def trials(target: DeviceTarget, stop: threading.Event | None = None) -> Trials:
    """What runs cases against the target; nobody watches."""
    return Trials(target, numbers(), stop or threading.Event(), None, lambda _case, _tally: None)

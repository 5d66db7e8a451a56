"""A device behind a transport: over MQTT, or in this process over the loopback bus.

Requests are not sent again and no future waits for an answer: a message a request, and a stamp an answer.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from edged import topics
from edged.bench import metrics
from edged.bench.metrics import Told
from edged.bench.target import OnAnswer, Question
from edged.client import asked
from edged.client.api import DEFAULT_USER
from edged.client.connection import Requester, no_connection
from edged.client.exchange import Target as Address
from edged.client.untrusted import mapping
from edged.client.watch import StatusWatch
from edged.client.wire import Sender, correlation_of
from edged.clock import NS_PER_MS, now_ns
from edged.errors import ERROR_PREFIX, Code, RequestError
from edged.transports.base import Denied, Message, Subscription

_PREFIX = 8
_UNREAD = Code.INTERNAL.value


class DeviceTarget:
    """One device. user: the level of the reply topics, the login when not given. qos: every QoS that will be asked."""

    def __init__(
        self,
        broker: Requester,
        device: str,
        *,
        user: str | None = None,
        protocol: str = "auto",
        qos: Sequence[int] = (0,),
    ) -> None:
        self._device, self._broker = asked.level("device", device), broker
        self.where = f"{device} at {broker.where}"
        self._prefix = secrets.token_bytes(_PREFIX)
        name = asked.level("user", user or broker.username or DEFAULT_USER)
        self._senders = {level: Sender(name, self._prefix.hex(), level) for level in qos}
        self._replies = Subscription(self._senders[max(qos)].reply_filter(protocol), max(qos))
        self._status = StatusWatch([device])
        self._metrics_topic = topics.device(device, "metrics")
        self._metrics: tuple[bytes, int] | None = None
        self._on_answer: OnAnswer = _nobody
        self._protocol, self._trouble = "", "still connecting"
        self._known = threading.Event()
        self.disconnects, self._last_disconnect = 0, ""
        self._transport = broker.open()

    def start(self, timeout_s: float) -> None:
        """Connect; raises UnavailableError when there is no connection within `timeout_s`."""
        subscriptions = [self._replies, Subscription(self._metrics_topic, 0), *self._status.subscriptions()]
        self._transport.start(self._on_message, subscriptions, on_connection=self._on_connection)
        self._known.wait(timeout_s)
        if self._trouble:
            raise no_connection(self._broker.where, timeout_s, self._trouble)

    def listen(self, on_answer: OnAnswer) -> None:
        """Hand every answer from now on to `on_answer`."""
        self._on_answer = on_answer

    def send(self, number: int, question: Question) -> bool:
        """Publish a request; False when the transport did not take it."""
        correlation = self._prefix + number.to_bytes(8, "big")
        address = Address(self._device, question.model)
        left_ns = question.deadline_ms * NS_PER_MS
        message = self._senders[question.qos].compose(address, question.encoded, correlation, left_ns, self._protocol)
        return self._transport.publish(message)

    def model(self, name: str) -> Mapping[str, Any]:
        """What the device's status says of a model."""
        status = self._status.known(self._device)
        return status.models.get(name, {}) if status is not None else {}

    def facts(self) -> Mapping[str, Any]:
        """The device as its status tells of it, the broker without its login, and the connection."""
        status = self._status.known(self._device)
        document = status.document if status is not None else {}
        told = {key: document[key] for key in ("state", "reason", "boot", "version") if key in document}
        connection = {
            "transport": self._transport.name, "protocol": self._protocol, "disconnects": self.disconnects,
            "last_disconnect": self._last_disconnect,
        }  # fmt: skip
        models = {name: dict(body) for name, body in mapping(document.get("models")).items() if isinstance(body, dict)}
        return {"device": self._device, "broker": self._broker.where, **connection, **told, "models": models}

    def told(self) -> Told | None:
        """The device's last metrics message."""
        last = self._metrics
        return metrics.read(*last) if last is not None else None

    def stop(self) -> None:
        """Disconnect."""
        self._transport.stop()

    # --- the network thread -------------------------------------------------------------------------------------------

    def _on_connection(self, connected: bool, detail: str) -> None:
        if connected:
            self._protocol, self._trouble = detail, ""
        else:
            self._trouble = detail
            if self._protocol:
                self.disconnects, self._last_disconnect = self.disconnects + 1, detail
        if connected or isinstance(detail, Denied):
            self._known.set()

    def _on_message(self, message: Message) -> None:
        here_ns = now_ns()
        if message.topic == self._metrics_topic:
            # Read when it is asked for: here it would hold up the answers.
            self._metrics = (bytes(message.payload), here_ns)
        elif not self._status.take(message):
            correlation = correlation_of(message)
            number = int.from_bytes(correlation[_PREFIX:], "big") if correlation.startswith(self._prefix) else 0
            self._on_answer(number, here_ns, _code(message))


def _nobody(_number: int, _here_ns: int, _code: str) -> None:
    """What comes before somebody listens."""


def _code(message: Message) -> str:
    """Return the code of an error reply, "" of any other; MQTT 3.1.1 tells them apart by how they begin."""
    said = next((value for name, value in message.user if name == "status"), None)
    if said != "error" and (said is not None or bytes(message.payload[: len(ERROR_PREFIX)]) != ERROR_PREFIX):
        return ""
    try:
        return RequestError.from_json(bytes(message.payload)).code.value
    except (ValueError, KeyError, TypeError, RecursionError):
        return _UNREAD

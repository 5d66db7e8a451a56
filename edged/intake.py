"""From a transport's message to a request, and from a reply to a message: where the MQTT contract is enforced.

Runs on the network thread: it parses and hands on, nothing more. What cannot be answered (no address to answer to,
or an address that is not the requester's own) is refused and counted by reason; everything else gets a reply.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from edged import codecs, topics
from edged.clock import NS_PER_MS, NS_PER_S
from edged.errors import Code, RequestError
from edged.replies import ReplyKey, ReplyMemory
from edged.request import OnSent, Reply, Request
from edged.transports.base import Message

Publish = Callable[[Message, OnSent | None], bool]

MAX_DEADLINE_MS = 86_400_000


class Refusal(Exception):  # noqa: N818  # not an error of ours: a message nobody can be answered for
    """A message that gets no reply; `reason` is the counter's name."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Address(NamedTuple):
    """Where a reply goes, and how.

    plain: without MQTT 5 properties, for a requester that used the 3.1.1 form (rumqttd drops a 3.1.1 client that is
    sent any).
    """

    topic: str
    correlation: bytes | None
    qos: int
    key: ReplyKey | None
    plain: bool


class Intake:
    """Turns request messages into requests. `default_deadline_ms` is by model name; `submit` never blocks."""

    def __init__(
        self,
        submit: Callable[[Request], None],
        publish: Publish,
        memory: ReplyMemory,
        default_deadline_ms: Callable[[str], int],
    ) -> None:
        self._submit, self._publish, self._memory = submit, publish, memory
        self._default_deadline_ms = default_deadline_ms
        self.counters: Counter[str] = Counter()

    def on_message(self, message: Message) -> None:
        """Admit, answer or refuse one request message."""
        self.counters["requests"] += 1
        try:
            topic, reply_topic, correlation = self._addressed(message)
        except Refusal as refusal:
            self.counters[f"refused_{refusal.reason}"] += 1
            return
        key = self._first_time(message, topic.model, reply_topic, correlation)
        address = Address(reply_topic, correlation, message.qos, key, topic.correlation is not None)
        if key is not None or correlation is None:
            self._submit_or_answer(message, topic, address)

    def _addressed(self, message: Message) -> tuple[topics.RequestTopic, str, bytes | None]:
        if message.retain:
            # A retained request would run again at every reconnect, for a requester that is long gone.
            raise Refusal("retained")
        try:
            topic = topics.parse_request(message.topic)
        except ValueError as exc:
            raise Refusal("topic") from exc
        if topic.correlation is not None:
            return topic, topics.response(topic.user, topic.correlation), topic.correlation.encode()
        if message.response_topic is None:
            raise Refusal("no_response_topic")
        if not topics.reply_allowed(message.response_topic, topic.user):
            raise Refusal("response_topic")
        return topic, message.response_topic, message.correlation

    def _first_time(self, message: Message, model: str, reply_topic: str, correlation: bytes | None) -> ReplyKey | None:
        """Return the key of a request not seen before; a repeat is answered here, or by whoever has the first one."""
        if correlation is None:
            return None
        key = self._memory.key(model, reply_topic, correlation, message.payload)
        new, known = self._memory.begin(key)
        if new:
            return key
        self.counters["repeats"] += 1
        if known is not None:
            self._publish(known, None)
        return None

    def _submit_or_answer(self, message: Message, topic: topics.RequestTopic, address: Address) -> None:
        try:
            codec = self._codec(message, topic)
            deadline_ms = self._deadline_ms(message, topic)
        except RequestError as error:
            self.counters["rejected"] += 1
            self._send(address, Reply.failure(error), None)
            return
        request = Request(
            topic.model,
            message.payload,
            codec=codec,
            received_ns=message.received_ns,
            deadline_ns=message.received_ns + deadline_ms * NS_PER_MS,
            respond=self._respond,
            origin=address,
        )
        self._submit(request)

    def _codec(self, message: Message, topic: topics.RequestTopic) -> str:
        name = topic.codec or codecs.name_for_content_type(message.content_type)
        if name is None:
            raise RequestError(Code.UNIMPLEMENTED, f"no codec for content type {message.content_type!r}")
        if name not in codecs.NAMES:
            raise RequestError(Code.UNIMPLEMENTED, f"no codec {name[:40]!r}; there are {', '.join(codecs.NAMES)}")
        return name

    def _deadline_ms(self, message: Message, topic: topics.RequestTopic) -> int:
        if topic.deadline_ms is not None:
            return topic.deadline_ms
        for name, value in message.user:
            if name == "deadline-ms":
                return _deadline(value)
        if message.expiry_s is not None:
            return max(1, min(message.expiry_s * (NS_PER_S // NS_PER_MS), MAX_DEADLINE_MS))
        return self._default_deadline_ms(topic.model)

    def _respond(self, request: Request, reply: Reply, on_sent: OnSent | None) -> None:
        self._send(request.origin, reply, on_sent)

    def _send(self, address: Address, reply: Reply, on_sent: OnSent | None) -> None:
        message = _message(address, reply)
        if not self._publish(message, on_sent) and reply.error is None:
            # Perhaps the broker takes no packet of this size; the requester must hear of it all the same.
            self.counters["unsent"] += 1
            what = f"the reply of {len(reply.payload)} bytes could not be sent"
            reply = Reply.failure(RequestError(Code.RESOURCE_EXHAUSTED, what), reply.meta)
            message = _message(address, reply)
            self._publish(message, on_sent)
        self._remember(address, reply, message)

    def _remember(self, address: Address, reply: Reply, message: Message) -> None:
        if address.key is None:
            return
        if reply.error is not None and reply.error.retryable:
            self._memory.forget(address.key)
        else:
            self._memory.store(address.key, message)


def _message(address: Address, reply: Reply) -> Message:
    if address.plain:
        return Message(address.topic, reply.payload, address.qos)
    status = "ok" if reply.error is None else "error"
    return Message(
        topic=address.topic,
        payload=reply.payload,
        qos=address.qos,
        correlation=address.correlation,
        content_type=reply.content_type,
        user=(("status", status), ("meta", reply.meta)) if reply.meta else (("status", status),),
    )


def _deadline(text: str) -> int:
    if text.isascii() and text.isdigit() and 0 < int(text) <= MAX_DEADLINE_MS:
        return int(text)
    raise RequestError(Code.INVALID_ARGUMENT, f"deadline-ms must be 1 to {MAX_DEADLINE_MS}, got {text[:32]!r}")

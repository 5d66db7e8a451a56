"""From a transport's message to a request, and from a reply to a message: where the MQTT contract is enforced.

Runs on the network thread: it parses and hands on, nothing more. What cannot be answered (no address to answer to,
or an address that is not the requester's own) is refused and counted by reason; everything else gets a reply.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from edged import codecs, statekey, topics
from edged.clock import NS_PER_MS, NS_PER_S, now_ns
from edged.errors import Code, RequestError
from edged.quota import Quota
from edged.replies import ReplyKey, ReplyMemory
from edged.request import OnSent, Reply, Request
from edged.transports.base import Message

Publish = Callable[[Message, OnSent | None], bool]
_What = TypeVar("_What")


log = logging.getLogger(__name__)

LOG_EVERY_NS = 60 * NS_PER_S
REFUSALS = {
    "retained": "a retained request is not run",
    "topic": "the topic is not of the contract",
    "no_response_topic": "it has no Response Topic",
    "response_topic": "its Response Topic is not below edged/v1/resp/<user>/",
}


class Refusal(Exception):  # noqa: N818  # not an error of ours: a message nobody can be answered for
    """A message that gets no reply; `reason` is a key of `REFUSALS` and part of the counter's name."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Address(NamedTuple):
    """Where a reply goes, and how.

    plain: without MQTT 5 properties, for a requester that used the 3.1.1 form (rumqttd drops a 3.1.1 client that is
    sent any). owner: whose quota the request is counted in. once: see Request.
    """

    topic: str
    correlation: bytes | None
    qos: int
    key: ReplyKey | None
    plain: bool
    owner: str = ""
    once: bool = False


class Intake:
    """Turns request messages into requests. `default_deadline_ms` is by model name; `submit` never blocks.

    quota: what one user may ask for; no limits when left out. whose: the state key of a user's request, from the user
    and its own key; without one it is also who the quota is of.
    """

    def __init__(
        self,
        submit: Callable[[Request], None],
        publish: Publish,
        memory: ReplyMemory,
        default_deadline_ms: Callable[[str], int],
        quota: Quota | None = None,
        whose: Callable[[str, str | None], str] = statekey.of_user,
    ) -> None:
        self._submit, self._publish, self._memory = submit, publish, memory
        self._default_deadline_ms, self._quota = default_deadline_ms, quota or Quota()
        self._whose = whose
        self.counters: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._next_log_ns = 0

    def beside(
        self, publish: Publish, heed: Callable[[Request], None], whose: Callable[[str, str | None], str]
    ) -> Intake:
        """Return another one that answers over `publish`, for users of its own; `whose` tells them from these.

        heed: is shown each request before it is submitted. Counters are its own, everything else is in common.
        """

        def submit(request: Request) -> None:
            heed(request)
            self._submit(request)

        return Intake(submit, publish, self._memory, self._default_deadline_ms, self._quota, whose)

    def on_message(self, message: Message) -> None:
        """Admit, answer or refuse one request message."""
        self._count("requests")
        try:
            topic, reply_topic, correlation = self._addressed(message)
        except Refusal as refusal:
            self._count(f"refused_{refusal.reason}")
            self._log_refusal(message, refusal)
            return
        plain, owner = topic.correlation is not None, self._whose(topic.user, None)
        address = Address(reply_topic, correlation, message.qos, None, plain, owner)
        if self._limited(address, "too_large", self._quota.check_size, len(message.payload)):
            return
        try:
            codec, deadline_ms = self._codec(message, topic), self._deadline_ms(message, topic)
            whose = self._state_key(message, topic)
        except RequestError as error:
            self._count("rejected")
            self._send(address, Reply.failure(error), None)
            return
        if correlation is not None:
            key = self._first_time(message, topic.model, whose, codec, address)
            if key is None:
                return
            address = address._replace(key=key)
        if self._limited(address, "too_many", self._quota.enter, owner):
            return
        self._submit(self._request(message, topic.model, codec, deadline_ms, address, whose))

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

    def _limited(self, address: Address, reason: str, check: Callable[[_What], None], what: _What) -> bool:
        """Whether the user asks for more than it may; then that is the answer, counted by `reason`."""
        try:
            check(what)
        except RequestError as error:
            self._count(reason)
            self._send(address, Reply.failure(error), None)
            return True
        return False

    def _first_time(self, message: Message, model: str, whose: str, codec: str, address: Address) -> ReplyKey | None:
        """Return the key of a request not seen before; a repeat is answered here, or by whoever has the first one."""
        correlation = address.correlation or b""
        key = self._memory.key(model, whose, codec, address.topic, correlation, message.payload)
        new, known = self._memory.begin(key)
        if new:
            return key
        self._count("repeats")
        if known is not None and not self._publish(known, None) and known.on_refused is not None:
            known.on_refused()
        return None

    def _request(
        self, message: Message, model: str, codec: str, deadline_ms: int, address: Address, whose: str
    ) -> Request:
        return Request(
            model,
            message.payload,
            codec=codec,
            received_ns=message.received_ns,
            deadline_ns=message.received_ns + deadline_ms * NS_PER_MS,
            respond=self._respond,
            origin=address,
            key=whose,
        )

    def _codec(self, message: Message, topic: topics.RequestTopic) -> str:
        name = topic.codec or codecs.name_for_content_type(message.content_type)
        if name is None:
            raise RequestError(Code.UNIMPLEMENTED, f"no codec for content type {message.content_type!r}")
        if name not in codecs.NAMES:
            raise RequestError(Code.UNIMPLEMENTED, f"no codec {name[:40]!r}; there are {', '.join(codecs.NAMES)}")
        return name

    def _state_key(self, message: Message, topic: topics.RequestTopic) -> str:
        own = next((value for name, value in message.user if name == statekey.PROPERTY), None)
        try:
            return self._whose(topic.user, own)
        except ValueError as exc:
            raise RequestError(Code.INVALID_ARGUMENT, str(exc)) from exc

    def _deadline_ms(self, message: Message, topic: topics.RequestTopic) -> int:
        given = topic.deadline
        if given is None:
            given = next((value for name, value in message.user if name == "deadline-ms"), None)
        if given is not None:
            try:
                return topics.parse_deadline(given)
            except ValueError as exc:
                raise RequestError(Code.INVALID_ARGUMENT, str(exc)) from exc
        if message.expiry_s is not None:
            return max(1, min(message.expiry_s * (NS_PER_S // NS_PER_MS), topics.MAX_DEADLINE_MS))
        return self._default_deadline_ms(topic.model)

    def _respond(self, request: Request, reply: Reply, on_sent: OnSent | None) -> None:
        self._quota.leave(request.origin.owner)
        address = request.origin._replace(once=True) if request.once else request.origin
        self._send(address, reply, on_sent)

    def _send(self, address: Address, reply: Reply, on_sent: OnSent | None) -> None:
        message = _message(address, reply)
        if reply.error is None:
            message.on_refused = partial(self._send_refused, address, reply.meta, len(reply.payload))
        # Before it is out: a requester may repeat itself the moment it has the answer.
        self._remember(address, reply, message)
        if self._publish(message, on_sent) or reply.error is not None:
            return
        self._send_refused(address, reply.meta, len(reply.payload), on_sent)

    def _send_refused(self, address: Address, meta: str, size: int, on_sent: OnSent | None = None) -> None:
        """Answer with an error in place of a reply that cannot be sent: perhaps the broker takes no packet so large.

        Nothing of it is remembered once that is told: a repeat may run again; unless it must not, and is refused in the
        same way. Where even the error finds no connection, the reply stays for the repeat.
        """
        self._count("unsent")
        error = RequestError(Code.RESOURCE_EXHAUSTED, f"the reply of {size} bytes could not be sent")
        told = self._publish(_message(address, Reply.failure(error, meta)), on_sent)
        if told and address.key is not None and not address.once:
            self._memory.forget(address.key)

    def _remember(self, address: Address, reply: Reply, message: Message) -> None:
        if address.key is None:
            return
        if reply.error is not None and reply.error.retryable and not address.once:
            self._memory.forget(address.key)
        else:
            self._memory.store(address.key, message)

    def _log_refusal(self, message: Message, refusal: Refusal) -> None:
        # Nobody else hears of it; once a minute, so that a stranger cannot fill the log.
        now = now_ns()
        if now >= self._next_log_ns:
            self._next_log_ns = now + LOG_EVERY_NS
            log.warning("no reply to %.200r: %s (counted in metrics)", message.topic, REFUSALS[refusal.reason])

    def _count(self, name: str) -> None:
        with self._lock:
            self.counters[name] += 1


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

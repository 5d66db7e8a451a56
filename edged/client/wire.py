"""Requests and replies as MQTT messages, in the forms of MQTT 5 and of 3.1.1 (see `edged.topics`)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from edged import statekey, topics
from edged.client import payloads
from edged.client.exchange import Pending, Target
from edged.client.result import Result
from edged.clock import NS_PER_MS, NS_PER_S
from edged.errors import ERROR_PREFIX, Code, RequestError
from edged.meta import Meta, parse_meta
from edged.transports.base import Message

# How the detail of a connection (`OnConnection`) names the older protocol: "MQTT 3.1.1".
V3 = "3.1.1"


@dataclass(frozen=True, slots=True)
class Sender:
    """Who asks: the user and instance levels of the reply topic, the QoS."""

    user: str
    instance: str
    qos: int

    @property
    def reply_topic(self) -> str:
        """The MQTT 5 Response Topic: one per client, so that its replies go to no other."""
        return topics.response(self.user, self.instance)

    def reply_filter(self, protocol: str) -> str:
        """The filter for replies. A 3.1.1 reply topic ends in the correlation, so it takes every reply of the user."""
        return self.reply_topic if protocol == "5" else topics.response(self.user, "+")

    def message(self, pending: Pending, protocol: str, now: int) -> Message:
        """One send of a request, with what is left of its time.

        The broker drops it when that is over (Message Expiry, MQTT 5): a device that comes back has no use for it.
        """
        left_ns = pending.deadline_ns - now
        composed = self.compose(pending.target, pending.encoded, pending.correlation, left_ns, protocol)
        if pending.state_key is not None:
            composed.user = (*composed.user, (statekey.PROPERTY, pending.state_key))
        return composed

    def refusal(self, pending: Pending, protocol: str) -> str:
        """Why this protocol cannot carry the request; "" where it can."""
        if pending.state_key is None or V3 not in protocol:
            return ""
        return f"a state key needs MQTT 5, and the connection is {protocol}"

    def compose(
        self, target: Target, encoded: payloads.Encoded, correlation: bytes, left_ns: int, protocol: str
    ) -> Message:
        """A request that has `left_ns` for its answer, as the protocol carries it."""
        left_ms = max(1, left_ns // NS_PER_MS)
        if V3 in protocol:
            topic = topics.request_v3(*target, self.user, correlation.hex(), encoded.codec, left_ms)
            return Message(topic, encoded.payload, qos=self.qos)
        return Message(
            topics.request(*target, self.user),
            encoded.payload,
            qos=self.qos,
            response_topic=self.reply_topic,
            correlation=correlation,
            content_type=encoded.content_type,
            expiry_s=max(1, math.ceil(left_ns / NS_PER_S)),
            user=(("deadline-ms", str(left_ms)),),
        )


def correlation_of(message: Message) -> bytes:
    """The correlation a reply carries: the property, else the last topic level as hex; empty when neither."""
    if message.correlation is not None:
        return message.correlation
    try:
        return bytes.fromhex(message.topic.rpartition("/")[2])
    except ValueError:
        return b""


def read_reply(message: Message, pending: Pending) -> Result | RequestError:
    """The answer or the error that a reply holds; never raises, whatever was sent."""
    properties = dict(message.user)
    payload = bytes(message.payload)
    if properties.get("status", "error" if payload.startswith(ERROR_PREFIX) else "ok") == "error":
        return read_error(payload)
    return Result(
        payload=payload,
        codec=payloads.codec_of(message.content_type, pending.encoded.codec),
        meta=parse_meta(properties["meta"]) if "meta" in properties else Meta(),
        round_trip_ms=(pending.answered_ns - pending.created_ns) / NS_PER_MS,
        resends=pending.sends - 1,
    )


def read_error(payload: bytes) -> RequestError:
    """The error that an error reply holds; one of its own when it cannot be read."""
    try:
        return RequestError.from_json(payload)
    except (ValueError, KeyError, TypeError, RecursionError):
        return RequestError(Code.INTERNAL, f"the error reply cannot be read: {payload[:80]!r}")

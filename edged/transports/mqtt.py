"""MQTT over TCP or TLS: MQTT 5, or 3.1.1 where the broker knows no better.

Threads: one, made by paho's `loop_start()`. It connects, reads, writes and calls back; `publish` only queues.
(`loop_forever` in a thread of one's own would let publishing threads write to the socket too, and mix packets.)
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, ClassVar

from paho.mqtt.client import Client, MQTTMessage, MQTTMessageInfo
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edged.clock import NS_PER_S, now_ns
from edged.errors import InternalError, UsageError
from edged.filters import valid_filter
from edged.request import OnSent
from edged.transports import mqtt_paho, mqtt_properties
from edged.transports.base import Message, OnConnection, OnDone, OnMessage, Subscription
from edged.transports.counters import Counters
from edged.transports.mqtt_ledger import Entry, Ledger
from edged.transports.mqtt_link import Link
from edged.transports.mqtt_settings import MqttSettings

__all__ = ["MqttSettings", "MqttTransport", "open_url"]

_log = logging.getLogger(__name__)
_COUNTERS = (
    "connects", "disconnects", "connect_failures", "received", "sent", "publishes_refused", "subscriptions_refused",
    "callback_errors", "client_errors", "dropped_poison",
    "dropped_disconnected", "dropped_connection_lost", "dropped_outgoing_full", "dropped_too_large",
    "dropped_invalid", "dropped_stopped", "dropped_bad_topic", "dropped_properties",
)  # fmt: skip


def open_url(url: str, **options: Any) -> MqttTransport:
    """Return a transport for `mqtt[s]://[user[:password]@]host[:port]`; options as in `MqttSettings`."""
    return MqttTransport(MqttSettings.from_url(url, **options))


class MqttTransport:
    """One MQTT connection, kept. `on_sent` tells when the last byte was handed to the kernel (TLS: to OpenSSL).

    A message at QoS 0 needs a connection; at QoS 1 it waits for one, within the bounds of the settings.
    """

    name: ClassVar[str] = "mqtt"

    def __init__(self, settings: MqttSettings) -> None:
        self.settings = settings
        self._counters = Counters(*_COUNTERS)
        self._ledger = Ledger(settings.max_outgoing_bytes, settings.max_outgoing_messages, self._counters)
        self._link: Link | None = None

    def start(
        self,
        on_message: OnMessage,
        subscriptions: Sequence[Subscription],
        *,
        will: Message | None = None,
        on_connection: OnConnection | None = None,
    ) -> None:
        """Begin connecting in the background. Raises UsageError (filter, will) and BadDataError (TLS files)."""
        if self._link is not None:
            raise InternalError("transport", "started twice")
        for subscription in subscriptions:
            if not valid_filter(subscription.filter):
                raise UsageError("subscription", f"not a topic filter: {subscription.filter!r}")
        link = Link(self.settings, self._ledger, self._counters, subscriptions, on_connection)
        self._on_message = on_message
        link.client.on_message = self._incoming
        link.client.on_publish = self._published
        link.client.flooded = lambda: self._counters.add("dropped_properties")
        self._link = link
        try:
            link.start(will)
        except ValueError as error:
            raise UsageError("will", str(error)) from error

    def publish(self, message: Message, on_sent: OnSent | None = None, on_done: OnDone | None = None) -> bool:
        """Queue one message; False when it was dropped, under one of the `dropped_*` counters. Any thread.

        on_sent and on_done run in the network thread and must not block.
        """
        try:
            mqtt_properties.check(message)
            properties = mqtt_properties.pack(message)
        except ValueError as error:
            _log.warning("not published: %s", error)
            return self._drop("dropped_invalid")
        entry = Entry(mqtt_properties.wire_size(message, properties), message.qos, on_sent, on_done)
        link = self._link
        if link is None or link.stopped:
            return self._drop("dropped_stopped")
        if entry.size > self._largest():
            return self._drop("dropped_too_large")
        if message.qos == 0 and not link.connected:
            return self._drop("dropped_disconnected")
        if not self._ledger.reserve(entry.size):
            return self._drop("dropped_outgoing_full")
        # A copy of what can change: at QoS 1 the client keeps it to send it again.
        payload = message.payload if isinstance(message.payload, bytes) else bytes(message.payload)
        info = link.client.publish(message.topic, payload, message.qos, message.retain, properties)
        return self._enter(info, entry)

    def refusal(self, message: Message) -> str:
        """Return what is wrong with the message, or that its packet is larger than the broker or the settings allow."""
        try:
            mqtt_properties.check(message)
            size = mqtt_properties.wire_size(message, mqtt_properties.pack(message))
        except ValueError as error:
            return str(error)
        largest = self._largest()
        return f"its packet has {size} bytes, the largest may have {largest}" if size > largest else ""

    def stop(self, timeout_s: float = 2.0) -> None:
        """Wait for what was accepted, disconnect cleanly, end the thread; all within about twice `timeout_s`."""
        link = self._link
        if link is None or link.stopped:
            return
        begun = now_ns()
        if not link.in_thread():
            self._ledger.wait_empty(timeout_s)
        link.stop(max(timeout_s - (now_ns() - begun) / NS_PER_S, 0.2))
        # Whatever is left was promised to nobody any more, but it is not silent.
        self._counters.add("dropped_stopped", self._ledger.load()[1])

    def stats(self) -> dict[str, int]:
        """Return the counters, `connected`, `protocol` (5, or 4 for 3.1.1) and what is queued."""
        waiting_bytes, waiting = self._ledger.load()
        facts = self._link.facts() if self._link is not None else {}
        return {**self._counters.snapshot(), **facts, "outgoing_bytes": waiting_bytes, "outgoing_messages": waiting}

    def _largest(self) -> int:
        """Return the most bytes that a packet may have."""
        told = self._link.max_packet if self._link is not None else 0
        return min(told or mqtt_properties.MAX_PACKET, self.settings.max_outgoing_bytes, mqtt_properties.MAX_PACKET)

    def _drop(self, counter: str) -> bool:
        self._counters.add(counter)
        return False

    def _enter(self, info: MQTTMessageInfo, entry: Entry) -> bool:
        """Judge paho's answer. At QoS 1 "no connection" means queued; the code stays in `info` even when delivered."""
        refused = (
            info.rc == MQTTErrorCode.MQTT_ERR_QUEUE_SIZE if entry.qos else info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS
        )
        if refused:
            self._ledger.release(entry.size)
            return self._drop("dropped_outgoing_full" if entry.qos else "dropped_disconnected")
        settled = entry.qos == 0 and info.is_published()
        return self._ledger.enter(info.mid, entry, settled=settled) or self._drop("dropped_connection_lost")

    def _incoming(self, client: Client, _userdata: object, raw: MQTTMessage) -> None:
        link = self._link
        if link is None:
            return
        received_ns = link.client.first_byte_ns()
        self._rearm(client)
        try:
            message = mqtt_properties.unpack(raw, received_ns)
        except UnicodeDecodeError:
            self._counters.add("dropped_bad_topic")
            return
        self._counters.add("received")
        self._counters.guard(self._on_message, message)

    def _published(
        self, client: Client, _userdata: object, mid: int, reason: ReasonCode, _properties: Properties | None
    ) -> None:
        self._rearm(client)
        self._counters.add("publishes_refused" if reason.is_failure else "sent")
        if self._ledger.done(mid) and self._link is not None:
            self._link.acknowledged()

    def _rearm(self, client: Client) -> None:
        if self.settings.quickack and self._link is not None and not self._link.client.marks:
            mqtt_paho.rearm_quickack(client.socket())

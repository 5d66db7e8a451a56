"""MQTT over TCP or TLS: MQTT 5, or 3.1.1 where the broker knows no better.

Threads: one, made by paho's `loop_start()`. It connects, reads, writes and calls back. `publish` writes by itself what
the kernel takes at once, and queues the rest (`mqtt_send`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, ClassVar

from paho.mqtt.reasoncodes import ReasonCode

from edged.clock import NS_PER_S, now_ns
from edged.errors import InternalError, UsageError
from edged.filters import valid_filter
from edged.request import OnSent
from edged.transports import mqtt_properties
from edged.transports.base import Message, OnConnection, OnDone, OnMessage, Subscription
from edged.transports.counters import Counters
from edged.transports.mqtt_ledger import Entry, Ledger
from edged.transports.mqtt_link import Link
from edged.transports.mqtt_settings import MqttSettings

__all__ = ["MqttSettings", "MqttTransport", "open_url"]

_log = logging.getLogger(__name__)
_COUNTERS = (
    "connects", "disconnects", "connect_failures", "received", "sent", "publishes_refused", "subscriptions_refused",
    "callback_errors", "client_errors", "dropped_poison", "taken_over", "cut_short", "renewals", "login_files_refused",
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
        link.client.incoming = self._incoming
        link.client.finished = self._finished
        link.client.dropped = self._counters.add
        self._link = link
        try:
            link.start(will)
        except ValueError as error:
            raise UsageError("will", str(error)) from error

    def publish(self, message: Message, on_sent: OnSent | None = None, on_done: OnDone | None = None) -> bool:
        """Send or queue one message; False when it was dropped, under one of the `dropped_*` counters. Any thread.

        on_sent and on_done must not block. They run in the network thread, or in this one before `publish` returns.
        """
        try:
            mqtt_properties.check(message)
            properties = mqtt_properties.pack(message)
        except ValueError as error:
            _log.warning("not published: %s", error)
            return self._drop("dropped_invalid")
        entry = Entry(
            mqtt_properties.wire_size(message, properties),
            message.qos,
            on_sent,
            on_done,
            message.on_refused,
            message.topic,
        )
        link = self._link
        if link is None or link.stopped:
            return self._drop("dropped_stopped")
        if entry.size > self._largest():
            return self._drop("dropped_too_large")
        if message.qos == 0 and not link.connected:
            return self._drop("dropped_disconnected")
        dropped = link.client.send(message, properties, entry)
        return self._drop(dropped) if dropped else True

    def refusal(self, message: Message) -> str:
        """Return what is wrong with the message, or that its packet is larger than the broker or the settings allow."""
        try:
            mqtt_properties.check(message)
            size = mqtt_properties.wire_size(message, mqtt_properties.pack(message))
        except ValueError as error:
            return str(error)
        largest = self._largest()
        return f"its packet has {size} bytes, the largest may have {largest}" if size > largest else ""

    def trouble(self) -> str:
        """Return what is wrong with the connection: a refused subscription, another client with the same id."""
        return self._link.trouble() if self._link is not None else ""

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
        """Return the counters, `connected`, `protocol` (5, or 4 for 3.1.1), what is queued, and how receiving went."""
        waiting_bytes, waiting = self._ledger.load()
        facts = self._link.facts() | self._link.client.facts() if self._link is not None else {}
        return {**self._counters.snapshot(), **facts, "outgoing_bytes": waiting_bytes, "outgoing_messages": waiting}

    def _largest(self) -> int:
        """Return the most bytes that a packet may have."""
        told = self._link.health.max_packet if self._link is not None else 0
        return min(told or mqtt_properties.MAX_PACKET, self.settings.max_outgoing_bytes, mqtt_properties.MAX_PACKET)

    def _drop(self, counter: str) -> bool:
        self._counters.add(counter)
        return False

    def _incoming(self, message: Message) -> None:
        self._counters.add("received")
        self._counters.guard(self._on_message, message)

    def _finished(self, number: int, written_ns: int, refusal: ReasonCode | None) -> None:
        self._counters.add("sent" if refusal is None else "publishes_refused")
        if refusal is not None and self._link is not None:
            self._link.health.publish_refused(self._ledger.topic(number), refusal)
        self._ledger.done(number, written_ns, refused=refusal is not None)

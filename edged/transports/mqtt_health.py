"""What is wrong with connections that can be made: cut by a twin, dead of one message, a subscription refused.

Learns from each that ends, on the network thread; tells it in words to any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from paho.mqtt.client import DisconnectFlags
from paho.mqtt.reasoncodes import ReasonCode

from edged.clock import NS_PER_S, now_ns
from edged.transports import mqtt_reasons
from edged.transports.counters import Counters
from edged.transports.mqtt_ledger import Entry, Ledger
from edged.transports.mqtt_session import DEATHS, Backoff, SizeLimit
from edged.transports.mqtt_settings import MqttSettings
from edged.transports.mqtt_stock import StockClient

_log = logging.getLogger(__name__)
_TELL_NS = 60 * NS_PER_S  # between two lines of the log on refused messages


class Health:
    """Of the connections of one client, one after the other."""

    def __init__(self, settings: MqttSettings, client: StockClient, client_id: str, ledger: Ledger, counters: Counters):
        self._where, self._client_id = f"{settings.host}:{settings.port}", client_id
        self._client, self._ledger, self._counters = client, ledger, counters
        self.backoff, self._limit = Backoff(settings), SizeLimit()
        self._end = 0  # why the connection ended, where that may tell something of a message
        self._refused_filters: dict[str, str] = {}
        self._tell_ns = 0

    @property
    def max_packet(self) -> int:
        """The size in bytes of the largest packet the broker takes; 0 when no limit is known."""
        return self._limit.current(now_ns())

    def trouble(self, connected_ns: int) -> str:
        """Return what is wrong with a connection that is up since then (monotonic ns); 0: there is none."""
        stable = connected_ns and now_ns() - connected_ns >= self.backoff.stable_ns
        if self.backoff.contested and not stable:
            return mqtt_reasons.contested(self._client_id, told=self.backoff.told)
        # A copy, which is one step: the network thread may change it meanwhile.
        refused = dict(self._refused_filters)
        return "; ".join(f"subscription to {name} refused: {why}" for name, why in refused.items())

    def limit_told(self, limit: int) -> None:
        """Note the largest packet that the broker takes, 0 when it named none; drop what waits and is larger."""
        self._limit.told = limit
        if limit and self._ledger.largest_unacknowledged() > limit:
            self._purge(limit, "dropped_too_large")

    def disconnected(self, flags: DisconnectFlags, reason: ReasonCode) -> None:
        """Note how a connection ended."""
        telling = mqtt_reasons.TOO_LARGE if flags.is_disconnect_packet_from_server else mqtt_reasons.LOST
        self._end = telling if reason.value == telling else 0
        if flags.is_disconnect_packet_from_server and reason.value == mqtt_reasons.TAKEN_OVER:
            self._counters.add("taken_over")
            self.backoff.taken_over()

    def lived(self, lifetime_ns: int) -> str:
        """Learn from a connection that was accepted, and ended; returns what it looks like, if it looks like anything.

        Over one message the broker may close every connection: then it is given up.
        """
        if self.backoff.away:
            self._limit.acquit()  # of a broker that goes away connections end by themselves
        self.backoff.lived(lifetime_ns)
        limit = self._learn(lifetime_ns)
        if limit:
            self._purge(limit, "dropped_poison")
        if self.backoff.contested:
            self._counters.add("cut_short")
            return f" ({mqtt_reasons.contested(self._client_id, told=self.backoff.told)})"
        return ""

    def _learn(self, lifetime_ns: int) -> int:
        """Return the limit to which waiting messages must be held now; 0 when nothing was learnt."""
        end, self._end = self._end, 0
        if end == mqtt_reasons.TOO_LARGE and (size := self._ledger.largest()):
            self.backoff.explained(1)
            return self._limit.exceeded(size, now_ns())
        limit = self._limit.died(self._ledger.suspect() if end == mqtt_reasons.LOST else None, lifetime_ns, now_ns())
        if limit:
            self.backoff.explained(DEATHS)
        return limit

    def subscribed(self, filters: Iterable[str], reasons: Iterable[ReasonCode]) -> None:
        """Note the broker's answers to the subscriptions."""
        self._ledger.answered()
        for reason, wanted in zip(reasons, filters, strict=False):
            self._refused_filters.pop(wanted, None)
            if reason.is_failure:
                self._refused_filters[wanted] = str(reason)
                self._counters.add("subscriptions_refused")
                _log.warning("%s: subscription to %s refused: %s", self._where, wanted, reason)

    def publish_refused(self, topic: str, reason: ReasonCode) -> None:
        """Log that the broker refused a message, once a minute: the counter has them all."""
        now = now_ns()
        if now >= self._tell_ns:
            self._tell_ns = now + _TELL_NS
            _log.warning("%s: the broker refused a message on %s: %s", self._where, topic, reason)

    def _purge(self, limit: int, counter: str) -> None:
        """Give up waiting messages larger than `limit` bytes."""
        for entry in self._client.drop_larger(limit):
            self._give_up(entry, counter)

    def _give_up(self, entry: Entry, counter: str) -> None:
        self._ledger.release(entry.size)
        self._counters.add(counter)
        _log.warning("%s: gave up a message of %d bytes on %s", self._where, entry.size, entry.topic)
        self._ledger.finished(entry, refused=True)

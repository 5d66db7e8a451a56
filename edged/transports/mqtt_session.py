"""When to try again and with which protocol version. Pure: the caller gives the time."""

from __future__ import annotations

import random

from edged.clock import NS_PER_S
from edged.transports.mqtt_settings import MqttSettings

V5, V3 = "5", "3.1.1"
_EARLY_CLOSES = 3
_STABLE_S = 10
_SHORT_LIVES = 3


class ProtocolChoice:
    """MQTT 5 first; 3.1.1 when 5 is refused, or closed before CONNACK several times in a row; 5 again later."""

    def __init__(self, settings: MqttSettings) -> None:
        self._auto = settings.protocol == "auto"
        self._retry_ns = int(settings.retry_v5_s * NS_PER_S)
        self._early = 0
        self._v3_works = False
        self._since_ns = 0
        self.current = V3 if settings.protocol == V3 else V5
        self.fallbacks = 0

    def before_attempt(self, now: int) -> None:
        """Go back to MQTT 5 when 3.1.1 was kept long enough."""
        if self._auto and self.current == V3 and now - self._since_ns >= self._retry_ns:
            self.current, self._early = V5, 0

    def accepted(self) -> None:
        """Note a connection that the broker accepted."""
        self._early = 0
        self._v3_works = self.current == V3

    def refused(self, now: int) -> bool:
        """Note "unsupported protocol version"; True when the other version is next."""
        return self._switch(now)

    def closed_early(self, now: int) -> bool:
        """Note a connection closed before CONNACK; True when the other version is next."""
        self._early += 1
        limit = 1 if self._v3_works and self.current == V5 else _EARLY_CLOSES
        return self._early >= limit and self._switch(now)

    def _switch(self, now: int) -> bool:
        if not self._auto:
            return False
        self._early = 0
        self.current = V3 if self.current == V5 else V5
        self._since_ns = now
        self.fallbacks += self.current == V3
        return True


class Backoff:
    """Exponential delays with jitter, so that a fleet does not come back in one instant.

    A connection that lived less than ten seconds does not reset the delay: two clients that take the same
    client id from each other would else do so for ever at full speed.
    """

    def __init__(self, settings: MqttSettings) -> None:
        self._min_s, self._max_s = settings.reconnect_min_s, settings.reconnect_max_s
        self._failures = 0
        self._short_lives = 0

    def delay_s(self) -> float:
        """Return the time to wait before the next attempt: between half and all of min * 2**n."""
        ceiling = min(self._max_s, self._min_s * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return ceiling * random.uniform(0.5, 1.0)  # noqa: S311 (no secret)

    def lived(self, lifetime_ns: int) -> None:
        """Note how long an accepted connection lasted."""
        if lifetime_ns >= _STABLE_S * NS_PER_S:
            self._failures = self._short_lives = 0
        else:
            self._short_lives += 1

    @property
    def contested(self) -> bool:
        """Whether connections keep being accepted and cut: most often a second client with the same id."""
        return self._short_lives >= _SHORT_LIVES

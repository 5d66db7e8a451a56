"""When to try again and with which protocol version. Pure: the caller gives the time."""

from __future__ import annotations

import random

from edged.clock import NS_PER_S
from edged.transports.mqtt_ledger import LARGE, Suspect
from edged.transports.mqtt_settings import MqttSettings

V5, V3 = "5", "3.1.1"
_EARLY_CLOSES = 3
_EARLY_CLOSES_OF_A_V5_BROKER = 10
_STABLE_S = 10
_SHORT_LIVES = 3
DEATHS = 3  # connections in a row that died of a message
# Within which a broker hangs up over what it does not take; it does so when it has read the size in front.
_DEADLY_S, _AT_ONCE_S = 3, 1
_LEARNT_S = 300


class ProtocolChoice:
    """MQTT 5 first; 3.1.1 when 5 is refused, or closed before CONNACK several times in a row; 5 again later.

    An early close says little: the network may flap, a proxy may stand before a broker that is down. Who falls back for
    no reason hears no MQTT 5 request any more. So it takes many where 5 has worked, and where 3.1.1 is accepted after
    them, 5 is tried once more, now that the broker is known to be there.
    """

    def __init__(self, settings: MqttSettings) -> None:
        self._auto = settings.protocol == "auto"
        self._retry_ns = int(settings.retry_v5_s * NS_PER_S)
        self._early = 0
        self._v5_works = self._v3_works = self._doubted = False
        self._since_ns = 0
        self.current = V3 if settings.protocol == V3 else V5
        self.fallbacks = 0

    def before_attempt(self, now: int) -> None:
        """Go back to MQTT 5 when 3.1.1 was kept long enough."""
        if self._auto and self.current == V3 and now - self._since_ns >= self._retry_ns:
            self.current, self._early = V5, 0

    def accepted(self) -> bool:
        """Note a connection that the broker accepted; False when it is to be left at once for one with MQTT 5."""
        self._early = 0
        self._v3_works = self.current == V3
        self._v5_works |= self.current == V5
        if self._v3_works and self._doubted:
            self._doubted, self.current = False, V5
            return False
        return True

    def refused(self, now: int) -> bool:
        """Note "unsupported protocol version"; True when the other version is next."""
        self._doubted = False
        return self._switch(now)

    def closed_early(self, now: int) -> bool:
        """Note a connection closed before CONNACK; True when the other version is next."""
        self._early += 1
        limit = _EARLY_CLOSES
        if self.current == V5 and (self._v3_works or self._v5_works):
            limit = 1 if self._v3_works else _EARLY_CLOSES_OF_A_V5_BROKER
        if self._early < limit:
            return False
        self._doubted = self.current == V5 and not self._v3_works
        return self._switch(now)

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

    A connection must live ten seconds, and twice the longest delay so far, to reset the delay: two clients that take
    the same client id from each other would else do so for ever, each living as long as the other one waits.
    """

    def __init__(self, settings: MqttSettings) -> None:
        self._min_s, self._max_s = settings.reconnect_min_s, settings.reconnect_max_s
        self._failures = 0
        self._short_lives = 0
        self._told = False
        self.away = False  # there was nothing to connect to since the last connection

    def delay_s(self) -> float:
        """Return the time to wait before the next attempt: between half and all of min * 2**n, of 4**n if contested."""
        ceiling = self._ceiling_s()
        self._failures += 2 if self.contested else 1
        return ceiling * random.uniform(0.5, 1.0)  # noqa: S311 (no secret)

    def lived(self, lifetime_ns: int) -> None:
        """Note how long an accepted connection lasted."""
        self.away = False
        if lifetime_ns >= self.stable_ns:
            self.reset()
        else:
            self._short_lives += 1

    def unreached(self) -> None:
        """Note that there was nothing to connect to: then it was the broker that cut the connections before."""
        self.away = True
        if not self._told:
            self._short_lives = 0

    def taken_over(self) -> None:
        """Note that the broker said so: another client came with the same id."""
        self._told = True

    def explained(self, short_lives: int) -> None:
        """Note that something else than another client has ended as many; without other signs of one, begin anew."""
        self._short_lives = max(0, self._short_lives - short_lives)
        if not self.contested:
            self.reset()

    def reset(self) -> None:
        """Begin anew: all is well."""
        self._failures = self._short_lives = 0
        self._told = False

    @property
    def stable_ns(self) -> int:
        """How long a connection must live to be taken for a lasting one."""
        return int(max(_STABLE_S, 2 * self._ceiling_s() if self._failures else 0) * NS_PER_S)

    @property
    def told(self) -> bool:
        """Whether the broker said that another client took a connection over."""
        return self._told

    @property
    def contested(self) -> bool:
        """Whether connections keep being accepted and cut: most often a second client with the same id."""
        return self._told or self._short_lives >= _SHORT_LIVES

    def _ceiling_s(self) -> float:
        return min(self._max_s, self._min_s * 2.0 ** min(self._failures, 30))


class SizeLimit:
    """The largest packet that the broker takes, in bytes: as it says in CONNACK, or as its closing connections teaches.

    MQTT 3.1.1 has no word for it: the broker hangs up over a packet too large for it, and would get it again for ever.
    It hangs up at once, and is there again at once. So it is believed after three connections in a row that died over
    the same message, each within three seconds; where it was not all written, within one since it might have been.
    """

    def __init__(self) -> None:
        self.told = 0
        self._learnt = self._until_ns = 0
        self._who: object = None
        self._deaths = 0

    def died(self, suspect: Suspect | None, lifetime_ns: int, now: int) -> int:
        """Note an accepted connection that ended without a word, and the message that it may have died of.

        Returns the limit to which waiting messages must be held now; 0 when nothing was learnt.
        """
        stuck_ns = 0 if suspect is None else min(suspect.stuck_ns, lifetime_ns)
        if suspect is None or lifetime_ns >= _DEADLY_S * NS_PER_S or stuck_ns >= _AT_ONCE_S * NS_PER_S:
            self.acquit()
            return 0
        self._deaths = self._deaths + 1 if suspect.who == self._who else 1
        self._who = suspect.who
        return self.exceeded(suspect.size, now) if self._deaths >= DEATHS else 0

    def exceeded(self, size: int, now: int) -> int:
        """Note that the broker does not take a packet of this size; returns the limit."""
        self.acquit()
        if size > LARGE:
            self._learnt, self._until_ns = size - 1, now + _LEARNT_S * NS_PER_S
        return size - 1

    def acquit(self) -> None:
        """Forget who was suspected: something else ends connections."""
        self._who, self._deaths = None, 0

    def current(self, now: int) -> int:
        """Return the limit; 0 when none is known. What was learnt is believed for a while only."""
        if self._learnt and now < self._until_ns:
            return min(self._learnt, self.told or self._learnt)
        return self.told

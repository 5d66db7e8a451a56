"""What is learnt from connections that end, one after the other."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from paho.mqtt.client import DisconnectFlags
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from edged.clock import now_ns
from edged.transports.counters import Counters
from edged.transports.mqtt_health import Health
from edged.transports.mqtt_ledger import LARGE, Entry, Ledger
from edged.transports.mqtt_settings import MqttSettings

_MS = 1_000_000


class _Connections:
    """Short ones, in which the broker answers the subscription and then ends it over the same message."""

    def __init__(self) -> None:
        self.ledger = Ledger(10 * LARGE, 10, Counters())
        self.ledger.admit(1, Entry(2 * LARGE, 1, None))
        client = SimpleNamespace(drop_larger=lambda _: [])
        self.health = Health(MqttSettings("h"), client, "box", self.ledger, Counters())  # type: ignore[arg-type]

    def end(self, reason: str = "Unspecified error", *, by_broker: bool = False) -> None:
        self.ledger.begin()
        self.health.subscribed([], [])
        self.ledger.written(1, now_ns())
        flags = DisconnectFlags(is_disconnect_packet_from_server=by_broker)
        self.health.disconnected(flags, ReasonCode(PacketTypes.DISCONNECT, reason))
        self.health.lived(_MS)


def test_three_in_a_row_speak_against_the_message() -> None:
    """Then packets of its size are too large."""
    made = _Connections()
    for limit in (0, 0, 2 * LARGE - 1):
        made.end()
        assert made.health.max_packet == limit


def test_a_broker_that_was_away_in_between_speaks_against_none() -> None:
    """It restarts, and that ends connections too."""
    made = _Connections()
    for _ in range(3):
        made.end()
        made.end()
        made.health.backoff.unreached()
    assert made.health.max_packet == 0


@pytest.mark.parametrize(
    ("reason", "by_broker"),
    [("Protocol error", False), ("Success", False), ("Keep alive timeout", False), ("Unspecified error", True)],
)
def test_an_end_of_another_kind_speaks_against_none(reason: str, *, by_broker: bool) -> None:
    """We ended it, or the broker had a reason."""
    made = _Connections()
    for _ in range(5):
        made.end(reason, by_broker=by_broker)
    assert made.health.max_packet == 0


def test_a_reason_that_says_so_is_enough() -> None:
    """0x95, once."""
    made = _Connections()
    made.end("Packet too large", by_broker=True)
    assert made.health.max_packet == 2 * LARGE - 1

"""When our client serves. What it does is tested at a socket, in tests/integration/test_mqtt_transport_wire.py."""

from __future__ import annotations

import select

import paho.mqtt
import pytest
from paho.mqtt.client import Client

from edged.transports import mqtt_paho
from edged.transports.counters import Counters
from edged.transports.mqtt_ledger import Entry, Ledger
from edged.transports.mqtt_settings import MqttSettings
from edged.transports.mqtt_stock import StockClient


def _client(ledger: Ledger | None = None) -> StockClient:
    ledger = ledger or Ledger(1000, 100, Counters())
    return mqtt_paho.make_client(MqttSettings("h"), "id", drive=lambda: None, ledger=ledger)


def test_another_paho_gets_no_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version, a method that is gone, a system that cannot poll: stock paho."""
    assert _client().fast
    with monkeypatch.context() as patch:
        patch.setattr(paho.mqtt, "__version__", "2.99.0")
        assert not _client().fast
    with monkeypatch.context() as patch:
        patch.delattr(select, "poll")
        assert not _client().fast
    monkeypatch.delattr(Client, "_update_inflight")
    assert not _client().fast


def test_an_id_in_use_is_not_given_again() -> None:
    """After 65,535 messages the ids start anew; one that still waits for its acknowledgement is left out."""
    ledger = Ledger(1000, 100, Counters())
    for mid in (7, 8):
        ledger.admit(mid, Entry(1, 1, None))
    client = _client(ledger)
    assert [client._mid_generate() for _ in range(8)] == [1, 2, 3, 4, 5, 6, 9, 10]

"""When the marks are used. What they mark is tested at a socket, in tests/integration/test_mqtt_transport_wire.py."""

from __future__ import annotations

import paho.mqtt
import pytest
from paho.mqtt.client import Client

from edged.transports import mqtt_paho
from edged.transports.mqtt_settings import MqttSettings


def _client() -> mqtt_paho.StockClient:
    return mqtt_paho.make_client(
        MqttSettings("h"), "id", drive=lambda: None, written=lambda _mid, _ns: None, in_use={7, 8}.__contains__
    )


def test_another_paho_gets_no_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version, or a method that is gone: stock callbacks."""
    assert _client().marks
    with monkeypatch.context() as patch:
        patch.setattr(paho.mqtt, "__version__", "2.99.0")
        assert not _client().marks
    monkeypatch.delattr(Client, "_sock_send")
    assert not _client().marks


def test_an_id_in_use_is_not_given_again() -> None:
    """After 65,535 messages the ids start anew; one that still waits for its acknowledgement is left out."""
    client = _client()
    assert [client._mid_generate() for _ in range(8)] == [1, 2, 3, 4, 5, 6, 9, 10]

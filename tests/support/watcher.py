"""An independent MQTT client for tests: bare paho, nothing of ours in it."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties


class Watcher:
    """Subscribes to filters and keeps what comes; publishes with or without MQTT 5 properties."""

    def __init__(self, port: int, *filters: str, protocol: int = paho.MQTTv5) -> None:
        self.messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=protocol)
        self.client.on_message = lambda _client, _data, message: self.messages.put(message)
        self._subscribed: queue.Queue[int] = queue.Queue()
        self.client.on_subscribe = lambda *_: self._subscribed.put(1)
        self._v5 = protocol == paho.MQTTv5
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        for topic in filters:
            self.client.subscribe(topic, 1)
            self._subscribed.get(timeout=10)

    def publish(self, topic: str, payload: bytes, qos: int = 1, **properties: Any) -> None:
        """Publish; properties by paho's names: ResponseTopic, CorrelationData, ContentType, UserProperty, …"""
        retain = bool(properties.pop("retain", False))
        packed = None
        if self._v5:
            packed = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            for name, value in properties.items():
                setattr(packed, name, value)
        self.client.publish(topic, payload, qos, retain, packed)

    def get(
        self, wanted: Callable[[paho.MQTTMessage], bool] = lambda _: True, timeout: float = 15.0
    ) -> paho.MQTTMessage:
        """Return the next message that is `wanted`, dropping others."""
        end = time.monotonic() + timeout
        while True:
            message = self.messages.get(timeout=max(0.01, end - time.monotonic()))
            if wanted(message):
                return message

    def close(self) -> None:
        """Disconnect."""
        self.client.disconnect()
        self.client.loop_stop()

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

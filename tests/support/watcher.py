"""An independent MQTT client for tests: bare paho, nothing of ours in it."""

from __future__ import annotations

import json
import queue
import threading
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
        self.client.on_message = lambda _client, _data, message: self._on_message(message)
        self._subscribed: queue.Queue[int] = queue.Queue()
        self.client.on_subscribe = lambda *_: self._subscribed.put(1)
        self._v5 = protocol == paho.MQTTv5
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        for topic in filters:
            self.client.subscribe(topic, 1)
            self._subscribed.get(timeout=10)

    def _on_message(self, message: paho.MQTTMessage) -> None:
        self.messages.put(message)

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


class StatusBoard(Watcher):
    """The status of one device as it was said last. No message is lost between two looks."""

    def __init__(self, port: int, device: str) -> None:
        self.said: dict[str, Any] = {}
        self._heard = threading.Condition()
        super().__init__(port, f"edged/v1/dev/{device}/status")

    def _on_message(self, message: paho.MQTTMessage) -> None:
        with self._heard:
            self.said = json.loads(message.payload)
            self._heard.notify_all()

    def model(self, name: str) -> dict[str, Any]:
        """What was said of one model."""
        found: dict[str, Any] = self.said["models"][name]
        return found

    def wait(self, wanted: Callable[[dict[str, Any]], bool], timeout: float = 20.0) -> None:
        """Wait until the status is as wanted; one without the key that is looked at is not."""
        with self._heard:
            assert self._heard.wait_for(lambda: self._is(wanted), timeout), self.said

    def _is(self, wanted: Callable[[dict[str, Any]], bool]) -> bool:
        try:
            return wanted(self.said)
        except KeyError:
            return False

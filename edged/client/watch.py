"""The last status of the devices a client follows, and waiting for the first one."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edged import topics
from edged.client.connection import mqtt_transport
from edged.client.status import Status, parse_status, supersedes
from edged.clock import now_ns
from edged.transports.base import Message, Subscription

if TYPE_CHECKING:
    from edged.transports.mqtt_settings import MqttSettings


class StatusWatch:
    """Statuses by device. Any thread. `malformed` counts payloads that are no status."""

    def __init__(self, devices: Sequence[str]) -> None:
        self._topics = {topics.device(name, "status"): name for name in devices}
        self._known: dict[str, Status] = {}
        self._changed = threading.Condition()
        self.malformed = 0

    def subscriptions(self) -> list[Subscription]:
        """What to subscribe to; retained, so that the last status comes at once."""
        return [Subscription(topic, 1) for topic in self._topics]

    def follows(self, device: str) -> bool:
        """Whether this device was asked for."""
        return device in self._topics.values()

    def take(self, message: Message) -> bool:
        """Note a message if it is a status of these devices; False when it is something else."""
        device = self._topics.get(message.topic)
        if device is None:
            return False
        status = parse_status(message.payload, now_ns())
        with self._changed:
            if status is None:
                # An empty retained message clears a status; only other bytes are wrong.
                self.malformed += bool(message.payload)
            elif supersedes(status, self._known.get(device)):
                self._known[device] = status
                self._changed.notify_all()
        return True

    def note(self, message: Message) -> None:
        """`take`, for a connection that carries nothing else."""
        self.take(message)

    def known(self, device: str) -> Status | None:
        """The last status, None when none has come."""
        with self._changed:
            return self._known.get(device)

    def wait(self, device: str, timeout_s: float) -> Status | None:
        """The last status, waiting for the first one at most `timeout_s`."""
        with self._changed:
            self._changed.wait_for(lambda: device in self._known, timeout_s)
            return self._known.get(device)


def read_status(settings: MqttSettings, device: str, timeout_s: float) -> Status | None:
    """Read one retained status over a connection of its own."""
    watch = StatusWatch([device])
    transport = mqtt_transport(dataclasses.replace(settings, client_id=f"{settings.client_id}-status"))
    transport.start(watch.note, watch.subscriptions())
    try:
        return watch.wait(device, timeout_s)
    finally:
        transport.stop()

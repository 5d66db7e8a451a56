"""The last status of the devices a client follows, and waiting for the first one."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from edged import topics
from edged.client.connection import Requester
from edged.client.exchange import Pending
from edged.client.status import Status, believed, describe, parse_status
from edged.client.untrusted import times
from edged.clock import now_ns
from edged.transports.base import Message, Subscription


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
            elif believed(status, self._boots(device)):
                self._known[device] = status
                self._changed.notify_all()
        return True

    def _boots(self, device: str) -> frozenset[str]:
        known = self._known.get(device)
        return known.boots if known is not None else frozenset()

    def note(self, message: Message) -> None:
        """`take`, for a connection that carries nothing else."""
        self.take(message)

    def known(self, device: str) -> Status | None:
        """The last status, None when none has come."""
        with self._changed:
            return self._known.get(device)

    def describe(self, device: str) -> str:
        """Say a device's last known state in a few words."""
        if not self.follows(device):
            return "its state is not followed: name it in Client(devices=[…])"
        return describe(self.known(device), now_ns())

    def explain(self, pending: Pending, trouble: str) -> str:
        """Say why a request was not answered by its deadline. trouble: with the connection, "" where there is one."""
        device = pending.target.device
        if trouble:
            why = f"not connected to the broker: {trouble}"
        elif not pending.sends:
            why = "never sent: the connection takes no more messages"
        else:
            why = f"sent {times(pending.sends)}, {self.describe(device)}"
        return f"no answer from {device} within {pending.deadline_ms} ms ({why})"

    def wait(self, device: str, timeout_s: float) -> Status | None:
        """The last status, waiting for the first one at most `timeout_s`."""
        with self._changed:
            self._changed.wait_for(lambda: device in self._known, timeout_s)
            return self._known.get(device)


def read_status(broker: Requester, device: str, timeout_s: float) -> Status | None:
    """Read one retained status over a connection of its own."""
    watch = StatusWatch([device])
    transport = broker.open("status")
    transport.start(watch.note, watch.subscriptions())
    try:
        return watch.wait(device, timeout_s)
    finally:
        transport.stop()

"""What the daemon publishes of itself: status, metrics, and the will that speaks for it when it cannot."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from edged import topics
from edged.contract import DeviceState
from edged.report import Report
from edged.transports.base import Message


class Announcer:
    """Publishes the messages of a `Report`. send: a transport's `publish`, for one message.

    facts: what else the status tells, asked at each. `heard` may be called from any thread, the rest from one.
    """

    def __init__(
        self, device: str, report: Report, send: Callable[[Message], object], facts: Callable[[], Mapping[str, object]]
    ) -> None:
        self._device, self._report, self._send, self._facts = device, report, send, facts
        self.status_topic = topics.device(device, "status")
        self._published: tuple[object, ...] = ()
        self._due = True

    def repeat(self) -> None:
        """Let the next `status` be published although nothing changed: there is a new connection."""
        self._due = True

    def heard(self, message: Message) -> None:
        """Notice when the retained status is not ours: a late will of an earlier connection or start."""
        try:
            said = json.loads(bytes(message.payload))
            ours = self._report.is_own(said["boot"]) and said["state"] != DeviceState.LOST
        except (ValueError, TypeError, KeyError, RecursionError):
            ours = False
        # Put right at the next tick, not at once: with a second daemon of the same name each would answer the other.
        self._due |= not ours

    def status(self, state: DeviceState, reason: str, *, always: bool) -> None:
        """Publish the status when it changed, or is due."""
        current = (state, reason, self._report.models())
        if always or self._due or current != self._published:
            self._due, self._published = False, current
            self._publish("status", {**self._report.status(state, reason), **self._facts()}, qos=1, retain=True)

    def metrics(self) -> None:
        """Publish the metrics."""
        self._publish("metrics", self._report.metrics(), qos=0, retain=False)

    def will(self) -> Message:
        """Return what the broker is to say when the connection ends without a goodbye."""
        # The models' states of now would be read as those at the time of the loss.
        body = {**self._report.status(DeviceState.LOST, "the connection ended without a goodbye"), "models": {}}
        return Message(self.status_topic, json.dumps(body).encode(), qos=1, retain=True)

    # Without MQTT 5 properties: rumqttd drops a 3.1.1 subscriber that is sent any, and these are JSON by contract.
    def _publish(self, level: str, body: Mapping[str, object], *, qos: int, retain: bool) -> None:
        self._send(Message(topics.device(self._device, level), json.dumps(body).encode(), qos=qos, retain=retain))

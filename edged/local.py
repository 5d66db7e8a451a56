"""Requests of producers on this box: their transport, and an intake that answers over it."""

from __future__ import annotations

from edged.affinity import ThreadPolicy
from edged.config_device import LocalConfig
from edged.intake import Intake
from edged.transports.shm import ShmTransport


class LocalIntake:
    """The way in beside that of the broker, whose intake is `beside`. policy: of the thread that serves producers.

    Raises UnavailableError where the system lacks what it needs.
    """

    def __init__(self, config: LocalConfig, device: str, beside: Intake, policy: ThreadPolicy) -> None:
        self._transport = ShmTransport(config, device)
        self._intake, self._policy = beside.beside(self._transport.publish), policy
        self._scheduling = ""

    def start(self) -> None:
        """Listen. Raises ConfigError, and UnavailableError when another process listens there."""
        self._transport.start(self._intake.on_message, on_connection=self._on_connection)

    def stop(self, timeout_s: float) -> None:
        """Tell the producers and end."""
        self._transport.stop(timeout_s)

    def facts(self) -> dict[str, object]:
        """Return the counters, and what the thread's priority is, for the metrics."""
        counted = {**self._transport.stats(), "intake": dict(self._intake.counters)}
        return {**counted, "scheduling": self._scheduling}

    def _on_connection(self, _connected: bool, _detail: str) -> None:
        self._scheduling = self._policy.apply()

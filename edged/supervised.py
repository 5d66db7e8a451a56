"""What the service manager is told: that the daemon is ready, what it is at, and that it lives."""

from __future__ import annotations

from collections.abc import Callable

from edged.contract import DeviceState
from edged.sdnotify import Notifier


class Supervised:
    """Tells changes once. first_s: what a first start may take beyond the usual, in seconds, each time it is at
    something else. on_ready: called once, when the manager heard that the start is over.
    """

    def __init__(self, first_s: float, on_ready: Callable[[], None]) -> None:
        self._notifier, self._first_s, self._on_ready = Notifier(), first_s, on_ready
        self._announced = False
        self._asked_for = self._said = ""

    def tell(self, state: DeviceState, reason: str) -> None:
        """Say what is new, and that the daemon lives."""
        if state is DeviceState.STARTING and reason not in ("", self._asked_for):
            self._asked_for = reason
            self._notifier.extend(self._first_s)
        self._tell_text(state, f"{state.value} {reason}".rstrip())
        # A hung invoke is what a watchdog is for: silence lets the service manager restart the daemon.
        if self._notifier.watchdog_s is not None and state is not DeviceState.STUCK:
            self._notifier.watchdog()

    def _tell_text(self, state: DeviceState, text: str) -> None:
        if not self._announced and state is not DeviceState.STARTING:
            self._announced = self._notifier.ready(text) or not self._notifier.enabled
            self._said = text
            if self._announced:
                self._on_ready()
        elif text != self._said and self._notifier.status(text):
            self._said = text

    def reloading(self) -> None:
        """Say that the configuration is read again; `reloaded` follows."""
        self._notifier.reloading()

    def reloaded(self) -> None:
        """Say that it was."""
        self._notifier.ready()

    def stopping(self) -> None:
        """Say that the daemon is about to end."""
        self._notifier.stopping(DeviceState.DRAINING.value)

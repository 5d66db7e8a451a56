"""Where the daemon hands in what is asked of it. Control itself is imported and started with the first message."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from edged.control.inbox import Inbox

if TYPE_CHECKING:
    from edged.control.thread import Control, Rooms


class Desk(Inbox):
    """rooms: what control acts on. told: it was told something at an earlier start, and reports without a message.

    The main thread calls `turn`, `stop` and `join`; the network thread the rest.
    """

    def __init__(
        self,
        device: str,
        rooms: Callable[[], Rooms],
        wake: Callable[[], None],
        *,
        desired: bool = True,
        told: bool = False,
    ) -> None:
        super().__init__(device, wake, desired=desired)
        self._rooms, self._told = rooms, told
        self._control: Control | None = None

    def turn(self) -> None:
        """Start control once there is anything for it; have it report models whose state has changed."""
        if self._control is not None:
            if self._control.stale:
                self.news.set()
        elif self.used or self._told:
            from edged.control.thread import Control  # noqa: PLC0415  # most devices are never told anything

            self._control = Control(self._rooms(), self)
            self._control.start()

    def stop(self) -> None:
        """Let it give up what it is at; `join` waits for it."""
        if self._control is not None:
            self._control.stop()

    def join(self, timeout_s: float) -> None:
        """Wait until it has ended."""
        if self._control is not None:
            self._control.join(timeout_s)

    def facts(self) -> dict[str, int]:
        """Counters since start; see `Control.stats`."""
        return {"dropped": self.dropped} if self._control is None else self._control.stats()

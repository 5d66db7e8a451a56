"""The outbox of a daemon whose streams ask for one. Without such a stream: no thread, no file, no import."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from edged.config import Config
from edged.intake import Publish
from edged.transports.base import Transport

if TYPE_CHECKING:
    from edged.outbox import Outbox


class Storing:
    """Made before the streams and started after the transport. on_trouble: see Outbox.

    publish: takes the answers that are to be kept; None where no stream has `store`.
    """

    def __init__(self, config: Config, transport: Transport, on_trouble: Callable[[], None]) -> None:
        self._outbox: Outbox | None = None
        self.publish: Publish | None = None
        if any(stream.store for stream in config.streams):
            from edged.outbox import Outbox  # noqa: PLC0415  # see the module

            self._outbox = Outbox(config.state_dir / "outbox", config.outbox, transport, on_trouble)
            self.publish = self._outbox.publish

    def start(self) -> None:
        """Begin with what is there from before."""
        if self._outbox is not None:
            self._outbox.start()

    def stop(self, stop_transport: Callable[[float], None], timeout_s: float) -> None:
        """Stop the transport, so that what it acknowledges until it has stopped is still noted."""
        if self._outbox is not None:
            self._outbox.stop(timeout_s)
        stop_transport(timeout_s)
        if self._outbox is not None:
            self._outbox.close(timeout_s)

    def facts(self) -> Mapping[str, object]:
        """Return {"outbox": its counters and what waits}, for the metrics; {} without one."""
        return {} if self._outbox is None else {"outbox": self._outbox.stats()}

    def state(self) -> Mapping[str, object]:
        """Return {"outbox": what waits}, for the status; {} without one."""
        return {} if self._outbox is None else {"outbox": self._outbox.load()}

    def trouble(self) -> str:
        """Return why answers cannot be kept, for a person; "" when they can."""
        found = "" if self._outbox is None else self._outbox.trouble
        return found and f"outbox: {found}"

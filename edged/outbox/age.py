"""How old a record is. The wall clock of a box without a battery jumps by years when the network comes."""

from __future__ import annotations

import uuid
from pathlib import Path

from edged.clock import uptime_s, wall_s
from edged.outbox.record import Stamp

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock:
    """Stamps records. Within one start of the machine ages are told by its uptime, else by the wall clock."""

    def __init__(self) -> None:
        try:
            self._boot = uuid.UUID(_BOOT_ID.read_text().strip()).bytes
        except (OSError, ValueError):  # no Linux: then each start of the program counts as one
            self._boot = uuid.uuid4().bytes

    def stamp(self) -> Stamp:
        """Return the stamp of now."""
        return Stamp(wall_s(), uptime_s(), self._boot)

    def age_s(self, then: Stamp) -> float:
        """Return the seconds since `then`; 0 where the wall clock was put back in between."""
        now = self.stamp()
        past = now.uptime_s - then.uptime_s if now.boot == then.boot else now.wall_s - then.wall_s
        return max(0.0, past)

    def since_boot(self, then: Stamp) -> bool:
        """Return whether the machine has not been restarted since."""
        return then.boot == self.stamp().boot

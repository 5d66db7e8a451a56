"""The one place that reads clocks.

Durations and deadlines are integer nanoseconds of the monotonic clock; wall time only stamps messages.
"""

from __future__ import annotations

import time

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

now_ns = time.monotonic_ns


def wall_s() -> float:
    """Seconds since the epoch, for the `ts` of published messages; never for a duration."""
    return round(time.time(), 3)

"""The one place that reads clocks.

Durations and deadlines are integer nanoseconds of the monotonic clock; wall time only stamps messages.
"""

from __future__ import annotations

import time

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

now_ns = time.monotonic_ns
_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # Linux's goes on while the machine sleeps


def wall_s() -> float:
    """Seconds since the epoch, for the `ts` of published messages; never for a duration."""
    return round(time.time(), 3)


def uptime_s() -> float:
    """Seconds since the machine's start, for ages that outlive the process."""
    return time.clock_gettime(_UPTIME)

"""Affinity and priority of the calling thread. Nothing here raises; what was achieved is told in words, for the status.

Call it on the thread that will do the work, before it opens its interpreter: helper threads inherit both.
`auto` tries nice before SCHED_FIFO: the kernel holds realtime threads back once they have used up their share of a
period (sched_rt_runtime_us in sched(7)), niced ones it does not. Linux gives each thread its own nice value, other than
POSIX says: see setpriority(2), NOTES.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

Realtime = Literal["auto", "fifo", "nice", "off"]

NICE = -20
FIFO_PRIORITY = 50  # what the kernel gives its own threaded interrupts


def pin(cpus: Collection[int]) -> str | None:
    """Keep the calling thread on `cpus`; returns what went wrong, or None. Nothing to do when empty."""
    if not cpus:
        return None
    wanted = f"cpus {_listed(cpus)}"
    if not hasattr(os, "sched_setaffinity"):
        return f"{wanted} not supported here"
    try:
        os.sched_setaffinity(threading.get_native_id(), cpus)
        # The kernel takes a set of which only some are there, and says nothing.
        missing = set(cpus) - os.sched_getaffinity(threading.get_native_id())
    except (OSError, ValueError, OverflowError):
        return f"{wanted} not on this machine"
    return f"cpus {_listed(missing)} not on this machine" if missing else None


def raise_priority(mode: Realtime, nice: int = NICE) -> str:
    """Raise the calling thread's priority; returns what holds now: "nice -20", "fifo 50", "off", "… not permitted"."""
    if mode == "off":
        return "off"
    if mode == "fifo":
        return _fifo()[1]
    achieved, told = _nice(nice)
    if achieved or mode == "nice":
        return told
    achieved, other = _fifo()
    return other if achieved else f"{told}, {other}"


def _nice(value: int) -> tuple[bool, str]:
    """Return whether it was achieved, and what there is to tell."""
    wanted = f"nice {value}"
    return _attempt(wanted, lambda: os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), value))


def _fifo() -> tuple[bool, str]:
    wanted = f"fifo {FIFO_PRIORITY}"
    if not hasattr(os, "sched_setscheduler"):
        return False, f"{wanted} not supported here"
    param = os.sched_param(FIFO_PRIORITY)
    return _attempt(wanted, lambda: os.sched_setscheduler(threading.get_native_id(), os.SCHED_FIFO, param))


def _attempt(wanted: str, change: Callable[[], None]) -> tuple[bool, str]:
    try:
        change()
    except PermissionError:
        return False, f"{wanted} not permitted"
    except OSError as exc:
        return False, f"{wanted} failed: {exc.strerror}"
    return True, wanted


def _listed(cpus: Collection[int]) -> str:
    return ",".join(map(str, sorted(cpus)))


@dataclass(frozen=True)
class ThreadPolicy:
    """Where a thread runs and before whom. No cpus: wherever the scheduler likes."""

    cpus: tuple[int, ...] = ()
    realtime: Realtime = "off"

    def apply(self) -> str:
        """Apply it to the calling thread; returns what was achieved, like "cpus 1, nice -20"."""
        achieved = raise_priority(self.realtime)
        if not self.cpus:
            return achieved
        return f"{pin(self.cpus) or f'cpus {_listed(self.cpus)}'}, {achieved}"

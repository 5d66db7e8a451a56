"""Affinity and priority of the calling thread. Nothing here raises; what was achieved is told in words, for the status.

Call it on the thread that will do the work, before it opens its interpreter: helper threads inherit both.
`auto` tries nice before SCHED_FIFO: under load, realtime threads were held back for tens of milliseconds by the
kernel's realtime throttling (sched_rt_runtime_us), niced ones were not. Linux gives each thread its own nice value,
other than POSIX says: see setpriority(2), NOTES.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection
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
        return _fifo()
    done = _nice(nice)
    if mode == "nice" or done == f"nice {nice}":
        return done
    other = _fifo()
    return other if other == f"fifo {FIFO_PRIORITY}" else f"{done}, {other}"


def _nice(value: int) -> str:
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), value)
    except PermissionError:
        return f"nice {value} not permitted"
    except OSError as exc:
        return f"nice {value} failed: {exc.strerror}"
    return f"nice {value}"


def _fifo() -> str:
    wanted = f"fifo {FIFO_PRIORITY}"
    if not hasattr(os, "sched_setscheduler"):
        return f"{wanted} not supported here"
    try:
        os.sched_setscheduler(threading.get_native_id(), os.SCHED_FIFO, os.sched_param(FIFO_PRIORITY))
    except PermissionError:
        return f"{wanted} not permitted"
    except OSError as exc:
        return f"{wanted} failed: {exc.strerror}"
    return wanted


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

"""Affinity and priority of the calling thread. Nothing here raises; what was achieved is told in words, for the status.

Call it on the thread that will do the work, before it opens its interpreter: helper threads inherit both.
`auto` tries nice before SCHED_FIFO: the kernel holds realtime threads back once they have used up their share of a
period (sched_rt_runtime_us in sched(7)), niced ones it does not. Linux gives each thread its own nice value, other than
POSIX says: see setpriority(2), NOTES.

**Order among threads.** `behind` counts the levels of priority that stand before a thread. The first level gets the
most there is, so that a device with one level only loses nothing by it; each level behind it is 5 nice steps, a third
of the CPU time where both want it, or one step of SCHED_FIFO, which is strict. Where raising is not permitted the first
level stays as it is, and those behind it are lowered by as much: that is always permitted.

**Sessions.** Where the kernel weighs sessions against each other, a nice value counts inside one only (autogroup, see
sched(7)). A daemon that leads its session, as one started by init or setsid does, raises that as well; one started from
a shell leaves the shell's alone. Under systemd services are weighed instead, see `CPUWeight` in the unit.

**Turns.** A niced thread gets nearly all of a CPU, but not at once: who computes there may end a turn of some
milliseconds first. So threads that are not realtime ask for short turns as well (`timeslice`), permitted or not.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from edged import timeslice

Realtime = Literal["auto", "fifo", "nice", "off"]

NICE = -20
FIFO_PRIORITY = 50  # what the kernel gives its own threaded interrupts
FOREMOST = -1  # `behind` of a thread that all models wait for: before them with SCHED_FIFO, beside the first with nice
_NICE_STEP = 5
_LEAST_NICE = 19
_ORDINARY_NICE = os.getpriority(os.PRIO_PROCESS, 0)  # what this process had before any of its threads was raised
_AUTOGROUP = Path("/proc/self/autogroup")  # "/autogroup-25 nice 0"


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


def raise_priority(mode: Realtime, behind: int = 0) -> str:
    """Raise the calling thread's priority; returns what holds now: "nice -20", "fifo 50", "off", "… not permitted".

    behind: levels of priority before it, FOREMOST to 3; see the module. "off" leaves the thread alone.
    """
    if mode == "off":
        return "off"
    if mode == "fifo":
        achieved, told = _fifo(behind)
    else:
        achieved, told = _nice(max(NICE, NICE + _NICE_STEP * behind))
        if not achieved and mode == "auto":
            achieved, other = _fifo(behind)
            told = other if achieved else f"{told}, {other}"
    return told if achieved or behind <= 0 else f"{told}, {_lowered(behind)}"


def be_ordinary() -> None:
    """Give up the CPUs and the priority that the calling thread has from a raised one which started it."""
    thread = threading.get_native_id()
    with contextlib.suppress(OSError, AttributeError):  # not Linux
        os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
        os.sched_setaffinity(thread, os.sched_getaffinity(os.getpid()))
        os.setpriority(os.PRIO_PROCESS, thread, _ORDINARY_NICE)


def _lowered(behind: int) -> str:
    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    return _nice(min(own + _NICE_STEP * behind, _LEAST_NICE))[1]


def _nice(value: int) -> tuple[bool, str]:
    """Return whether it was achieved, and what there is to tell."""
    wanted = f"nice {value}"
    return _attempt(wanted, lambda: os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), value))


def _raise_session() -> str:
    """Raise the session that this process leads as far as the calling thread; returns "session -20", or "" for none."""
    nice = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    if nice >= 0 or os.getsid(0) != os.getpid():
        return ""
    try:
        now = int(_AUTOGROUP.read_text().split()[-1])
        if now > nice:
            _AUTOGROUP.write_text(str(nice))
    except (OSError, IndexError, ValueError):  # no autogroups here, or one that may not be raised
        return ""
    return f"session {min(now, nice)}"


def _fifo(behind: int) -> tuple[bool, str]:
    priority = FIFO_PRIORITY - behind
    wanted = f"fifo {priority}"
    if not hasattr(os, "sched_setscheduler"):
        return False, f"{wanted} not supported here"
    param = os.sched_param(priority)
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
    """Where a thread runs and before whom. No cpus: wherever the scheduler likes. behind: see `raise_priority`."""

    cpus: tuple[int, ...] = ()
    realtime: Realtime = "off"
    behind: int = 0

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> ThreadPolicy:
        """Make it of what `dataclasses.asdict` returned, perhaps by way of JSON."""
        return cls(tuple(fields["cpus"]), fields["realtime"], fields["behind"])

    def apply(self) -> str:
        """Apply it to the calling thread; returns what was achieved, like "cpus 1, nice -20, slice 0.1 ms"."""
        told = [raise_priority(self.realtime, self.behind)]
        if self.cpus:
            told.insert(0, pin(self.cpus) or f"cpus {_listed(self.cpus)}")
        if self.realtime != "off":
            told += filter(None, (_raise_session(), timeslice.shorten()))
        return ", ".join(told)

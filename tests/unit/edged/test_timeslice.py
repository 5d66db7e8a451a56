"""Short turns: what the kernel says of the thread, and that nothing else of it changes."""

from __future__ import annotations

import os
import platform
import re
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from edged import timeslice

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has them")

KNOWN = (platform.machine(), 8 * struct.calcsize("P")) in timeslice._NUMBERS
SINCE_6_12 = tuple(map(int, re.findall(r"\d+", platform.release())[:2])) >= (6, 12)


def on_a_thread(work: Callable[[], object]) -> object:
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def kernel_says() -> str:
    """The scheduler's own figure, in ns, of the calling thread; "" where it shows none."""
    try:
        text = Path(f"/proc/self/task/{threading.get_native_id()}/sched").read_text()
    except OSError:
        return ""
    found = re.search(r"se\.slice\s*:\s*(\d+)", text)
    return found[1] if found else ""


def test_short_turns_where_the_kernel_has_them() -> None:
    """Told exactly where it holds, and nice value and policy stay."""
    own = os.getpriority(os.PRIO_PROCESS, 0)

    def work() -> object:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(own + 3, 19))  # lowering is always permitted
        told = timeslice.shorten()
        tid = threading.get_native_id()
        return told, kernel_says(), os.getpriority(os.PRIO_PROCESS, tid), os.sched_getscheduler(0)

    told, shown, nice, policy = on_a_thread(work)  # type: ignore[misc]
    assert told == ("slice 0.1 ms" if KNOWN and SINCE_6_12 else "")
    assert shown in ("", "100000") if told else shown != "100000"
    assert (nice, policy) == (min(own + 3, 19), os.SCHED_OTHER)


def test_other_policies_are_left_alone() -> None:
    """They do not have turns of that kind, and the call would end them."""

    def work() -> object:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        return timeslice.shorten(), os.sched_getscheduler(0)

    assert on_a_thread(work) == ("", os.SCHED_BATCH)


def test_machines_that_are_not_known_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system call's number means something else elsewhere."""
    monkeypatch.setattr(platform, "machine", lambda: "mips")
    assert on_a_thread(timeslice.shorten) == ""

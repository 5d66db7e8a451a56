"""Short turns on the CPU: what lets a thread that wakes up run at once beside others that compute.

Linux's fair scheduler (EEVDF, see Documentation/scheduler/sched-eevdf.rst of the kernel) lets run whose turn ends
first; since 6.12 a thread may ask for turns shorter than the usual 3 ms, and stands before others when it wakes. It
gets no more of the CPU by that, so it needs no permission. Older kernels know nothing of it, nor do policies other
than SCHED_OTHER.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import threading

SHORTEST_NS = 100_000  # the kernel takes nothing below
_SIZE = 48
_ATTR = struct.Struct("=IIQiIQQQ")  # struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period
# sched_setattr and sched_getattr, by machine and bits of the process: asm/unistd.h of each.
_NUMBERS = {
    ("x86_64", 64): (314, 315),
    ("x86_64", 32): (351, 352),
    ("i686", 32): (351, 352),
    ("aarch64", 64): (274, 275),
    ("riscv64", 64): (274, 275),
    ("aarch64", 32): (380, 381),
    ("armv8l", 32): (380, 381),
    ("armv7l", 32): (380, 381),
    ("armv6l", 32): (380, 381),
}


def shorten() -> str:
    """Ask for the shortest turns for the calling thread; returns "slice 0.1 ms" when it has them, else ""."""
    numbers = _NUMBERS.get((platform.machine(), 8 * struct.calcsize("P")))
    if numbers is None or not hasattr(os, "SCHED_OTHER") or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return ""
    nice = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())  # which the call sets too
    asked = ctypes.create_string_buffer(_ATTR.pack(_SIZE, os.SCHED_OTHER, 0, nice, 0, SHORTEST_NS, 0, 0), _SIZE)
    got = ctypes.create_string_buffer(_SIZE)
    libc = ctypes.CDLL(None)
    if libc.syscall(numbers[0], 0, asked, 0) or libc.syscall(numbers[1], 0, got, _SIZE, 0):
        return ""
    return "slice 0.1 ms" if _ATTR.unpack(got.raw)[5] == SHORTEST_NS else ""

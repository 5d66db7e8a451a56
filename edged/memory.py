"""Memory of processes: how much one has, giving back what the start took and no longer needs, and keeping the rest in
memory."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

# mlockall(2). ONFAULT locks a page when it is first used: what was only reserved goes on costing nothing.
_CURRENT, _FUTURE, _ONFAULT = 1, 2, 4
_CAP_IPC_LOCK = 14  # linux/capability.h
_ALL_IDS = "4294967295"
_ARENA_MAX = -8  # mallopt(3)
SLACK = 1 << 20  # bytes that are not worth a pause


def return_memory() -> None:
    """Collect garbage once and hand free pages back (glibc's malloc_trim; nothing where libc has none).

    Reading bundles, golden samples and the configuration leaves holes in the heap that a daemon would keep for ever.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def share_heap() -> None:
    """Let threads that start from now on take memory from one heap (glibc; nothing elsewhere).

    Of heaps of their own the free end is never handed back: each time a model is replaced it may be another one's.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)


class OwnMemory:
    """The memory of this process: what is free is returned, what is left is kept from being swapped out.

    lock: "auto" locks where that cannot hurt: under a limit nothing is locked, since memory that is asked for once the
    limit is reached would be refused. A child process inherits nothing. told: what was achieved, for the status.
    """

    def __init__(self, lock: Literal["auto", "off"]) -> None:
        self.told = "off"
        self._wanted, self._held = lock != "off", False
        self._settled_bytes = 0

    def grown(self) -> int:
        """Return how many bytes there are more than the last time."""
        return (resident("self") or 0) - self._settled_bytes

    def settle(self) -> None:
        """Return what is free and lock what is left and what comes; nothing while little has come since the last time.

        It takes some ten milliseconds, in which other threads may have to wait for memory.
        """
        if self._settled_bytes and self.grown() <= SLACK:
            return
        self.release()  # nothing that is locked can be returned
        return_memory()
        if self._wanted:
            self.told = self._lock()
        self._settled_bytes = resident("self") or 0

    def release(self) -> None:
        """Lock nothing any more."""
        if self._held:
            self._held = False
            ctypes.CDLL(None).munlockall()

    def _lock(self) -> str:
        if not _unlimited():
            return "not permitted"
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "mlockall"):
            return "not supported here"
        self._held = libc.mlockall(_CURRENT | _FUTURE | _ONFAULT) == 0
        return "locked" if self._held else f"failed: {os.strerror(ctypes.get_errno())}"


def _unlimited() -> bool:
    """Whether this process may lock any amount: by its limit, or as the kernel's own root may."""
    if resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] == resource.RLIM_INFINITY:
        return True
    try:
        status = Path("/proc/self/status").read_text()
        ids = Path("/proc/self/uid_map").read_text().split()
    except OSError:  # not Linux
        return False
    return ids[-1:] == [_ALL_IDS] and any(held >> _CAP_IPC_LOCK & 1 for held in _effective(status))


def _effective(status: str) -> Iterator[int]:
    """Yield the effective capabilities, as a set of bits; see proc(5)."""
    for line in status.splitlines():
        if line.startswith("CapEff:"):
            yield int(line.split()[1], 16)


def allocated() -> int | None:
    """Return the bytes that this process has from malloc and not given back; None where the C library does not tell.

    Unlike resident memory it tells what something takes also where that finds room in what others left.
    """
    tell = getattr(ctypes.CDLL(None), "mallinfo2", None)  # glibc 2.33; the one before it counts in 32 bits
    if tell is None:
        return None
    tell.restype = _Mallinfo2
    found = tell()
    return int(found.uordblks + found.hblkhd)


class _Mallinfo2(ctypes.Structure):
    """See mallinfo2(3)."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip


def resident(process: int | str) -> int | None:
    """Return the resident bytes of a process, shared pages included; None where the system does not tell.

    process: its id, or "self".
    """
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):  # not Linux, or it has just ended
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")

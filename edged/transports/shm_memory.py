"""The memory that a daemon and one producer share: slots in a file without a path, whose size nobody can change.

The file is sealed against shrinking and growing, and its pages are there from the start: neither side can make the
other's mapping fault. What is in a slot is another matter. The producer may write there at any time, so whoever reads
it on behalf of the daemon reads each byte once, or a copy.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import socket
import weakref
from collections.abc import Callable
from pathlib import Path

from edged.errors import ConfigError, UnavailableError
from edged.shown import size as told
from edged.transports.shm_wire import Hello

_PAGE = 4096  # of any size that is a multiple of what tensors are aligned to
# From Python 3.10 on, on Linux: pages are mapped at once, and not at the first frame.
_POPULATE = getattr(mmap, "MAP_POPULATE", 0)


def unsupported() -> str:
    """Return what this system lacks for memory shared with producers; "" where it has all."""
    needed = {
        "memfd_create": hasattr(os, "memfd_create"),
        "file seals": hasattr(fcntl, "F_ADD_SEALS"),
        "SOCK_SEQPACKET sockets with credentials": hasattr(socket, "SO_PEERCRED"),
        "epoll": _has_epoll(),
    }
    missing = [name for name, there in needed.items() if not there]
    return f"producers on the box need Linux: no {', no '.join(missing)} here" if missing else ""


def refuse_unsupported() -> None:
    """Raise UnavailableError where this system lacks something."""
    if missing := unsupported():
        raise UnavailableError("local", missing)


def _has_epoll() -> bool:
    import select  # noqa: PLC0415  # asked once

    return hasattr(select, "epoll")


class SlotMemory:
    """One side's mapping. It goes when the last view of it goes: `view` hands out such views.

    fd: stays the caller's. populate: take the time now for page tables that the first payloads would take otherwise.
    Raises OSError.
    """

    def __init__(self, fd: int, shape: Hello, *, populate: bool) -> None:
        self.shape = shape
        self._stride = _stride(shape)
        flags = mmap.MAP_SHARED | (_POPULATE if populate else 0)
        self._whole = memoryview(mmap.mmap(fd, size(shape), flags=flags))

    def view(self, slot: int, length: int) -> memoryview:
        """Return the first `length` bytes of a slot, writable; its start is aligned to a page."""
        start = slot * self._stride
        return self._whole[start : start + length]

    def when_gone(self, tell: Callable[[], None]) -> None:
        """Call `tell` once the mapping is gone, on the thread that lets go of its last view: it must not wait."""
        weakref.finalize(self._whole.obj, tell).atexit = False


def size(shape: Hello) -> int:
    """Return the bytes of the whole."""
    return shape.slots * _stride(shape)


def refuse_too_much(shape: Hello, producers: int) -> None:
    """Raise ConfigError when so many producers' memory is more than this machine has."""
    whole, here = size(shape) * producers, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if whole > here:
        what = (
            f"{producers} producers with {shape.slots} slots of {told(shape.slot_bytes)} need {told(whole)} of memory"
        )
        raise ConfigError(
            "local", f"{what}, and this machine has {told(here)}", "fewer producers, fewer slots, or smaller"
        )


def create(shape: Hello) -> int:
    """Make the memory, all zeros; returns its descriptor. Raises OSError when there is not so much."""
    if size(shape) > _available():  # asking for it would end others, or us, before it fails
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    fd = os.memfd_create("edged-local", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, fd)
        os.posix_fallocate(fd, 0, size(shape))  # too little memory is an error here, later on it is SIGBUS
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        undo.pop_all()
    return fd


def _available() -> int:
    """Return the bytes that can be had without pushing anything out; see meminfo in proc(5)."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) * 1024


def check(fd: int, shape: Hello) -> None:
    """Raise ValueError when a descriptor that was received is not such memory: using it could end this process."""
    if os.fstat(fd).st_size < size(shape):
        raise ValueError("the memory is smaller than the daemon says")
    if not fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
        raise ValueError("the memory may be cut off: it is not sealed")


def _stride(shape: Hello) -> int:
    return -(-shape.slot_bytes // _PAGE) * _PAGE

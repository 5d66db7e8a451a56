"""Memory of processes: how much one has, and giving back what the start took and no longer needs."""

from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path


def return_memory() -> None:
    """Collect garbage once and hand free pages back (glibc's malloc_trim; nothing where libc has none).

    Reading bundles, golden samples and the configuration leaves holes in the heap that a daemon would keep for ever.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def resident(process: int | str) -> int | None:
    """Return the resident bytes of a process, shared pages included; None where the system does not tell.

    process: its id, or "self".
    """
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):  # not Linux, or it has just ended
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")

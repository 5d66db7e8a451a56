"""Gives memory back to the system that the start took and no longer needs."""

from __future__ import annotations

import ctypes
import gc


def return_memory() -> None:
    """Collect garbage once and hand free pages back (glibc's malloc_trim; nothing where libc has none).

    Reading bundles, golden samples and the configuration leaves holes in the heap that a daemon would keep for ever.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)

"""One measurement at a time in a state directory: two side by side would measure each other. And who serves from it."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

log = logging.getLogger(__name__)

MEASURING, SERVING = "measuring.lock", "serving.lock"
_LOOK_S = 0.05
# How long `served` of another process is waited for: it holds the lock for a moment.
_LOOKED_AT_S, _MOMENT_S = 1.0, 0.005


@contextlib.contextmanager
def exclusively(state_dir: Path, stopped: threading.Event, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of whoever measures, over all processes; the kernel frees it when its holder ends.

    waiting: called once, when another process has it. Returns without the lock when `stopped` is set, and where the
    directory cannot be written.
    """
    handle = _opened(state_dir / MEASURING)
    try:
        if handle is not None and not _taken(handle, fcntl.LOCK_EX):
            waiting()
            while not stopped.wait(_LOOK_S) and not _taken(handle, fcntl.LOCK_EX):
                pass
        yield
    finally:
        if handle is not None:
            os.close(handle)


class Presence:
    """Says that this process serves from a state directory, until it is closed or the process ends."""

    def __init__(self, state_dir: Path) -> None:
        self._handle = _opened(state_dir / SERVING)
        if self._handle is not None and not _shared(self._handle):
            log.warning("%s: somebody else holds the lock; nobody will see that this process serves", state_dir)

    def close(self) -> None:
        """Say no longer."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def served(state_dir: Path) -> bool:
    """Whether some process serves from the state directory now."""
    try:
        handle = os.open(state_dir / SERVING, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _taken(handle, fcntl.LOCK_EX)
    finally:
        os.close(handle)


def _opened(path: Path) -> int | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return None


def _shared(handle: int) -> bool:
    end_s = time.monotonic() + _LOOKED_AT_S
    while not (taken := _taken(handle, fcntl.LOCK_SH)) and time.monotonic() < end_s:
        time.sleep(_MOMENT_S)
    return taken


def _taken(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

"""Marks on disk while code of a vendor is being opened: one that is found later tells which candidate ended a start.

A mark is on the disk before the library is loaded, so it outlives a crash of the whole machine. Each process has its
own for a key, and holds it as long as one of its threads opens what the key is of.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from edged import wholefile
from edged.selection.key import Key, digest

log = logging.getLogger(__name__)

FOLDER = "opening"
_MOST_BYTES = 1 << 16
_STARTED = 19  # of what follows the name in parentheses: field 22 in proc_pid_stat(5)


class Marks:
    """The marks in one state directory. Any thread."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / FOLDER
        self._lock = threading.Lock()
        self._held: dict[Path, set[object]] = {}
        self._over = False

    @contextlib.contextmanager
    def opening(self, key: Key, label: str) -> Iterator[None]:
        """Hold a mark, unless `let_go` was called. A directory that cannot be written is told in the log, and is no
        obstacle."""
        path, mine = self._path(key), object()
        try:
            with self._lock:
                self._hold(path, mine, label)
            yield
        finally:  # also of what was interrupted in the middle of making the mark
            with self._lock:
                self._release(path, mine)

    def _hold(self, path: Path, holder: object, label: str) -> None:
        if self._over:
            return
        holders = self._held.setdefault(path, set())
        holders.add(holder)
        if len(holders) == 1:
            _write(path, label)

    def _release(self, path: Path, holder: object) -> None:
        holders = self._held.get(path, set())
        holders.discard(holder)
        if not holders:
            _unlink(path)

    def let_go(self) -> None:
        """Take away the marks that are held, and make no other: the process ends in order, whatever is being opened.

        What is opened from now on is opened to be closed.
        """
        with self._lock:
            self._over = True
            for path in self._held:
                _unlink(path)
            self._held.clear()

    def left(self, key: Key) -> bool:
        """Whether a start ended while it held a mark of this key: its process is gone."""
        return any(map(_left, self._marks(key)))

    def clear(self, key: Key) -> None:
        """Take away the marks that were left."""
        for path in self._marks(key):
            if _left(path):
                _unlink(path)

    def _marks(self, key: Key) -> list[Path]:
        return list(self._folder.glob(f"{digest(key)}.*.json"))

    def _path(self, key: Key) -> Path:
        return self._folder / f"{digest(key)}.{os.getpid()}.json"


def _left(path: Path) -> bool:
    try:
        mark = json.loads(wholefile.read(path, _MOST_BYTES))
        return not (mark["boot"] == _boot() and mark["started"] == _started(int(mark["pid"])))
    except FileNotFoundError:
        return False
    except (OSError, ValueError, TypeError, KeyError, RecursionError):  # cut short by the crash it tells of
        return True


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def _write(path: Path, label: str) -> None:
    mark = {"label": label, "pid": os.getpid(), "started": _started(os.getpid()), "boot": _boot()}
    try:
        wholefile.write(path, json.dumps(mark))
        _sync(path.parent)
    except OSError as exc:
        log.warning("%s cannot be written: %s; a crash now would not be remembered", path, exc)


def _started(pid: int) -> str:
    """Return when a process started, in the kernel's ticks: with the pid it is unique in a boot. "" for none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[_STARTED]
    except (OSError, IndexError):
        return ""


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _sync(folder: Path) -> None:
    """Put the names in a directory on the disk; a file's own fsync does not."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

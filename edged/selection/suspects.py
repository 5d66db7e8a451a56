"""Marks on disk while code of a vendor is being opened: one that is found later tells which candidate ended a start.

A mark is on the disk before the library is loaded, so it outlives a crash of the whole machine.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from edged.selection import store
from edged.selection.key import Key, digest

log = logging.getLogger(__name__)

FOLDER = "opening"
_STARTED = 19  # of what follows the name in parentheses: field 22 in proc_pid_stat(5)


class Marks:
    """The marks in one state directory. Any thread."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / FOLDER
        self._held: set[Path] = set()

    @contextlib.contextmanager
    def opening(self, key: Key, label: str) -> Iterator[None]:
        """Hold a mark. A directory that cannot be written is told in the log, and is no obstacle."""
        path = self._path(key)
        self._held.add(path)
        try:
            store.write(path, {"label": label, "pid": os.getpid(), "started": _started(os.getpid()), "boot": _boot()})
            _sync(path.parent)
        except OSError as exc:
            log.warning("%s cannot be written: %s; a crash now would not be remembered", path, exc)
        try:
            yield
        finally:
            self._held.discard(path)
            self.clear(key)

    def let_go(self) -> None:
        """Take away the marks that are held: the process ends in order, whatever is being opened."""
        for path in list(self._held):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def left(self, key: Key) -> bool:
        """Whether a start ended while it held this mark: its process is gone."""
        try:
            mark = json.loads(self._path(key).read_text())
            alive = mark["boot"] == _boot() and mark["started"] == _started(int(mark["pid"]))
        except FileNotFoundError:
            return False
        except (OSError, ValueError, TypeError, KeyError):  # cut short by the crash it tells of
            return True
        return not alive

    def clear(self, key: Key) -> None:
        """Take the mark away."""
        with contextlib.suppress(OSError):
            self._path(key).unlink(missing_ok=True)

    def _path(self, key: Key) -> Path:
        return self._folder / f"{digest(key)}.json"


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

"""What a child process may take: time and memory, watched from outside, for native code heeds no limit of its own.

Memory is what is resident: a runtime may map and reserve more than it ever touches, which a limit of the address
space would forbid.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edged.clock import NS_PER_S, now_ns

# The most that is read of one file: offsets in a .tflite reach no further.
MAX_FILE = 1 << 31
_PAGE = os.sysconf("SC_PAGE_SIZE")
# Of what the machine has free, the share that one conversion may take where nothing was said.
_SHARE = 0.9


@dataclass(frozen=True)
class Limits:
    """seconds: of wall time. memory: bytes that the process and its children may hold together; 0 for most of it."""

    seconds: float = 3600.0
    memory: int = 0

    @property
    def memory_bytes(self) -> int:
        """The limit in bytes; without one given, 90 % of the memory that was free when it was asked for."""
        return self.memory or int(_SHARE * available())


class Watch:
    """Looks after one process group until it ends or breaks a limit. `tick` is called a few times a second."""

    def __init__(self, group: int, limits: Limits) -> None:
        self._group, self._limits = group, limits
        self._end_ns = now_ns() + int(limits.seconds * NS_PER_S)
        self._memory = limits.memory_bytes
        self.broken = ""

    def tick(self) -> bool:
        """Return whether a limit is broken; the whole group is then killed and `broken` says which limit it was."""
        if now_ns() > self._end_ns:
            self.broken = f"was not done after {self._limits.seconds:g} s"
        elif (held := sum(map(_resident, _members(self._group)))) > self._memory:
            self.broken = f"held {held / 2**30:.1f} GiB of memory, {self._memory / 2**30:.1f} GiB is the limit"
        if self.broken:
            self.kill()
        return bool(self.broken)

    def kill(self) -> None:
        """Kill every process of the group that is still there."""
        with suppress(ProcessLookupError):
            os.killpg(self._group, signal.SIGKILL)


def available() -> int:
    """Return the bytes of memory that the machine can give without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * _PAGE


def resident(process: int) -> int:
    """Return the bytes of memory that one process holds; 0 when it has ended."""
    return _resident(Path(f"/proc/{process}"))


def _members(group: int) -> Iterator[Path]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                # The command's name may hold blanks and brackets; the fields after it do not.
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(fields[2]) == group:
                    yield entry


def _resident(process: Path) -> int:
    try:
        return int((process / "statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):  # it has just ended
        return 0

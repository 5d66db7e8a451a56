"""The device's process while it is under load: memory, threads and descriptors as the system tells of them.

`--pid` names a process of this machine. Without it there is only what the device's metrics say of itself.
"""

from __future__ import annotations

import threading

from edged.bench.metrics import Told
from edged.bench.target import Target
from edged.client.untrusted import whole
from edged.clock import NS_PER_S, now_ns
from edged.errors import UnavailableError
from edged.memory import resident
from edged.report import held

# A plot needs no more points, and a reading costs the machine under test a tenth of a millisecond.
_POINTS = 300
_SLOWEST_S = 60.0

Sample = dict[str, float | int | None]


def exists(pid: int) -> None:
    """Raise UnavailableError when there is no such process."""
    if resident(pid) is None:
        raise UnavailableError("--pid", f"there is no process {pid} here")


class Sampler:
    """Takes samples on a thread of its own: {at_s, rss_bytes, threads, descriptors}, None for what is not told."""

    def __init__(self, target: Target, pid: int | None, seconds: float) -> None:
        self._target, self._pid = target, pid
        self._every_s = min(max(1.0, seconds / _POINTS), _SLOWEST_S)
        self._begin_ns, self._stop = now_ns(), threading.Event()
        self._last_told_ns = 0
        self.samples: list[Sample] = []
        self._thread = threading.Thread(target=self._run, name="edged-bench-proc", daemon=True)

    def start(self) -> None:
        """Take the first sample now, and go on in the background."""
        self._thread.start()

    def stop(self) -> None:
        """Take a last sample and end."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        self._take()
        while not self._stop.wait(self._every_s):
            self._take()
        self._take()

    def _take(self) -> None:
        found = _of_process(self._pid) if self._pid is not None else self._of_metrics()
        if found is not None:
            self.samples.append({"at_s": round((now_ns() - self._begin_ns) / NS_PER_S, 3), **found})

    def _of_metrics(self) -> Sample | None:
        told = self._target.told()
        if told is None or told.received_ns == self._last_told_ns:
            return None
        self._last_told_ns = told.received_ns
        return _of_told(told)


def _of_told(told: Told) -> Sample:
    names = ("rss_bytes", "threads", "descriptors")
    return {name: whole(told.process.get(name)) for name in names}


def _of_process(pid: int) -> Sample | None:
    rss = resident(pid)
    return None if rss is None else {"rss_bytes": rss, **held(pid)}

"""Inferences for nothing: one thread that nudges idle models, so that a rare request does not pay for cold caches.

A model is nudged when its last inference is `keep_warm_ms` ago and nothing waits for it, and one whose engine checks
itself every `recheck_s`, also under load, and within a second of the end of its process. The inference runs on the
model's own thread, between two requests.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from edged.clock import NS_PER_MS, NS_PER_S, now_ns
from edged.worker import ModelState, Worker

# How soon it looks again at a model that is late: it is busy, or it was nudged just now.
AGAIN_NS = 5 * NS_PER_MS
# At least this often, for models that become ready.
LONGEST_NS = NS_PER_S


class KeepWarm:
    """One thread for all models. keep_warm_ms: by model name, 0 for one that is not kept warm."""

    def __init__(self, workers: Mapping[str, Worker], keep_warm_ms: Mapping[str, int]) -> None:
        self._workers, self._keep_warm_ms = workers, keep_warm_ms
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edged-keep-warm", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End it."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        wait_ns = 0
        while not self._stopping.wait(wait_ns / NS_PER_S):
            looks = (self._look(worker, self._keep_warm_ms[name]) for name, worker in self._workers.items())
            wait_ns = min(looks, default=LONGEST_NS)

    @staticmethod
    def _look(worker: Worker, keep_warm_ms: int) -> int:
        """Nudge a model that is due; returns in how many ns to look again."""
        if worker.state is not ModelState.READY:
            return LONGEST_NS
        engine = worker.self_checked
        left_ns = 0 if engine is not None and engine.ended() else _left_ns(worker, keep_warm_ms * NS_PER_MS)
        if left_ns > 0:
            return min(left_ns, LONGEST_NS)
        worker.admission.nudge()
        return AGAIN_NS


def _left_ns(worker: Worker, keep_warm_ns: int) -> int:
    """Return in how many ns the model is due, 0 or less when it is."""
    now, left = now_ns(), [LONGEST_NS]
    if keep_warm_ns:
        busy = worker.busy_since_ns or worker.admission.requests
        since = now if busy else max(worker.last_done_ns, worker.last_idle_ns)
        left.append(since + keep_warm_ns - now)
    recheck_s = worker.self_checked.recheck_s if worker.self_checked is not None else 0
    if recheck_s:
        left.append(worker.last_idle_ns + int(recheck_s * NS_PER_S) - now)
    return min(left)

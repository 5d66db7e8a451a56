"""What the daemon says of itself: the retained status and the metrics message. Builds them; sends nothing.

Status tells whether requests are answered, not whether MQTT is connected: it carries each model's state, the age of
its last finished inference and its queue depth. A model whose invoke has run far beyond what it ever took is `stuck`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import edged
from edged.clock import NS_PER_MS, NS_PER_S, now_ns, wall_s
from edged.contract import METRICS_FORMAT, DeviceState
from edged.figures import Snapshot
from edged.worker import ModelState, Worker

Stats = Callable[[], Mapping[str, object]]


@dataclass(frozen=True)
class Hang:
    """An invoke is taken to hang after `factor` times the model's P99 of it, and never before `floor_ms`."""

    factor: float
    floor_ms: int


@dataclass(frozen=True)
class Identity:
    """Which device, and which of its starts. `boot` is unique per start."""

    device: str
    boot: str


class Report:
    """Builds the messages of one daemon. `transport` and `streams` return counters; the main thread calls."""

    def __init__(self, identity: Identity, hang: Hang, transport: Stats, streams: Stats) -> None:
        self._identity, self._hang, self._transport, self._streams = identity, hang, transport, streams
        self._workers: Mapping[str, Worker] = {}
        self._last: dict[str, Snapshot] = {}
        self._last_ns = now_ns()
        self._stuck: list[str] = []
        self._seq = 0

    def watch(self, workers: Mapping[str, Worker]) -> None:
        """Report on these models from now on."""
        self._workers = dict(workers)

    def state(self) -> tuple[DeviceState, str]:
        """Return the device's state by its models (starting, ready, degraded, stuck) and the reason."""
        # Judged once, so that the state and the models' states in one message agree.
        stuck = self._stuck = [name for name, worker in self._workers.items() if self._is_stuck(worker)]
        failed = [name for name, worker in self._workers.items() if worker.state is ModelState.FAILED]
        if stuck:
            return DeviceState.STUCK, f"invoke of {', '.join(stuck)} does not return"
        if any(worker.state is ModelState.STARTING for worker in self._workers.values()):
            return DeviceState.STARTING, ""
        if failed:
            return DeviceState.DEGRADED, "; ".join(f"{name}: {self._workers[name].reason}" for name in failed)
        return DeviceState.READY, ""

    def status(self, state: DeviceState, reason: str = "") -> dict[str, object]:
        """Return the status message; each call has the next `seq`."""
        self._seq += 1
        stamp = {"state": state.value, "boot": self._identity.boot, "seq": self._seq, "ts": wall_s(), "reason": reason}
        about = {"device": self._identity.device, "version": edged.__version__}
        return {
            **stamp,
            **about,
            "models": {name: self._model_status(name, worker) for name, worker in self._workers.items()},
        }

    def metrics(self) -> dict[str, object]:
        """Return the metrics message: since start, and since the last call."""
        now = now_ns()
        interval_s, self._last_ns = (now - self._last_ns) / NS_PER_S, now
        self._seq += 1
        return {
            "format": METRICS_FORMAT,
            "device": self._identity.device,
            "boot": self._identity.boot,
            "seq": self._seq,
            "ts": wall_s(),
            "interval_s": round(interval_s, 3),
            "process": process_facts(),
            "transport": dict(self._transport()),
            "models": {name: self._model_metrics(name, worker) for name, worker in self._workers.items()},
            "streams": dict(self._streams()),
        }

    def _is_stuck(self, worker: Worker) -> bool:
        since_ns = worker.busy_since_ns
        if since_ns == 0:
            return False
        busy_ns = now_ns() - since_ns
        if busy_ns <= self._hang.floor_ms * NS_PER_MS:
            return False
        return busy_ns > self._hang.factor * (worker.figures.latency.snapshot()["infer"].percentile(99) or 0)

    def _model_status(self, name: str, worker: Worker) -> dict[str, object]:
        bundle, info, done_ns = worker.plan.bundle, worker.info, worker.last_done_ns
        facts: dict[str, object] = {
            "state": DeviceState.STUCK.value if name in self._stuck else worker.state.value,
            "reason": worker.reason,
            "version": bundle.manifest.version,
            "sha256": bundle.model_sha256,
            "scheduling": worker.scheduling,
            "last_inference_age_s": round((now_ns() - done_ns) / NS_PER_S, 3) if done_ns else None,
            "queue_depth": worker.admission.requests,
        }
        if info is not None:
            nodes = {"nodes_delegated": info.nodes_delegated, "nodes_total": info.nodes_total}
            facts |= {"runtime": info.runtime, "delegate": info.delegate, "threads": info.threads, **nodes}
            facts["warmup_us"] = worker.warmup_us
        return facts

    def _model_metrics(self, name: str, worker: Worker) -> dict[str, object]:
        snapshot = worker.figures.snapshot()
        interval, self._last[name] = snapshot.since(self._last.get(name)), snapshot
        return {
            "version": worker.plan.bundle.manifest.version,
            "runtime": worker.info.runtime if worker.info else None,
            "delegate": worker.info.delegate if worker.info else None,
            "queue": {"requests": worker.admission.requests, "bytes": worker.admission.bytes},
            "since_start": snapshot.summary(),
            "interval": interval.summary(),
            "histograms": {stage: histogram.encode() for stage, histogram in snapshot.histograms.items()},
        }


def process_facts() -> dict[str, object]:
    """Return resident memory in bytes and CPU time in seconds of this process and its finished children."""
    times = os.times()
    cpu_s = times.user + times.system + times.children_user + times.children_system
    return {"rss_bytes": _rss_bytes(), "cpu_s": round(cpu_s, 3)}


def _rss_bytes() -> int | None:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux
        return None

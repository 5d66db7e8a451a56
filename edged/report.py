"""What the daemon says of itself: the retained status and the metrics message. Builds them; sends nothing.

Status tells whether requests are answered, not whether MQTT is connected: it carries each model's state, the age of
its last finished inference and its queue depth. A model whose invoke has run far beyond what it ever took is `stuck`;
one that a stand-in serves, or that failed, makes the device `degraded`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import edged
from edged.clock import NS_PER_MS, NS_PER_S, now_ns, wall_s
from edged.contract import METRICS_FORMAT, DeviceState
from edged.figures import Snapshot
from edged.manifest import TensorSpec
from edged.memory import resident
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
        """Report on these models from now on; the mapping may change meanwhile."""
        self._workers = workers

    def is_own(self, boot: object) -> bool:
        """Whether a message with this `boot` is of this start."""
        return boot == self._identity.boot

    def models(self) -> tuple[object, ...]:
        """Return what a status must be published for when it changes."""
        return tuple((name, one.state, one.info, one.plan.bundle.manifest) for name, one in self._workers.items())

    def state(self) -> tuple[DeviceState, str]:
        """Return the device's state by its models (starting, ready, degraded, stuck) and the reason."""
        # Judged once, so that the state and the models' states in one message agree.
        stuck = self._stuck = [name for name, worker in self._workers.items() if self._is_stuck(worker)]
        if stuck:
            return DeviceState.STUCK, f"invoke of {', '.join(stuck)} does not return"
        starting = {n: worker.reason for n, worker in self._workers.items() if worker.state is ModelState.STARTING}
        if starting:
            return DeviceState.STARTING, _each(starting)
        trouble = _each({name: _trouble(worker) for name, worker in self._workers.items()})
        return (DeviceState.DEGRADED, trouble) if trouble else (DeviceState.READY, "")

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
            "process": process_facts(self._children()),
            "transport": dict(self._transport()),
            "models": {name: self._model_metrics(name, worker) for name, worker in self._workers.items()},
            "streams": dict(self._streams()),
        }

    def _is_stuck(self, worker: Worker) -> bool:
        since_ns = worker.busy_since_ns
        if since_ns == 0:
            return False
        busy_ns = now_ns() - since_ns
        # An engine that ends a hang by itself is given the time to, and its stand-in the usual one.
        handled_ns = worker.self_checked.limit_ns if worker.self_checked is not None else 0
        if busy_ns <= self._hang.floor_ms * NS_PER_MS + handled_ns:
            return False
        return busy_ns > self._hang.factor * (worker.figures.latency.snapshot()["infer"].percentile(99) or 0)

    def _children(self) -> list[int]:
        engines = [one.self_checked for worker in self._workers.values() for one in worker.open]
        pids = (engine.pid for engine in engines if engine is not None)
        return [pid for pid in pids if pid is not None]

    def _model_status(self, name: str, worker: Worker) -> dict[str, object]:
        bundle, info, done_ns = worker.plan.bundle, worker.info, worker.last_done_ns
        facts: dict[str, object] = {
            "state": DeviceState.STUCK.value if name in self._stuck else worker.state.value,
            "reason": worker.reason,
            "version": bundle.manifest.version,
            "sha256": bundle.model_sha256,
            "inputs": [_input(spec) for spec in worker.plan.wire.inputs],
            "scheduling": worker.scheduling,
            "last_inference_age_s": round((now_ns() - done_ns) / NS_PER_S, 3) if done_ns else None,
            "queue_depth": worker.unanswered,
            **worker.facts(),
        }
        if info is not None:
            # The thread that infers is another one where the engine is a process of its own.
            facts |= {**dataclasses.asdict(info), "scheduling": info.scheduling or worker.scheduling}
            facts["worker_scheduling"] = worker.scheduling
            facts["pid"] = worker.self_checked.pid if worker.self_checked is not None else None
            facts["warmup_us"] = worker.warmup_us
        return facts

    def _model_metrics(self, name: str, worker: Worker) -> dict[str, object]:
        snapshot = worker.figures.snapshot()
        interval, self._last[name] = snapshot.since(self._last.get(name)), snapshot
        return {
            "version": worker.plan.bundle.manifest.version,
            "runtime": worker.info.runtime if worker.info else None,
            "delegate": worker.info.delegate if worker.info else None,
            "failovers": worker.info.failovers if worker.info else 0,
            "returns": worker.info.returns if worker.info else 0,
            "queue": {"requests": worker.unanswered, "bytes": worker.unanswered_bytes},
            "since_start": snapshot.summary(),
            "interval": interval.summary(),
            **worker.facts(),
            "histograms": {stage: histogram.encode() for stage, histogram in snapshot.histograms.items()},
        }


def _input(spec: TensorSpec) -> dict[str, object]:
    """What a requester sends for an input."""
    return {"name": spec.name, "dtype": spec.wire_dtype.name, "shape": list(spec.shape)}


def _each(reasons: Mapping[str, str]) -> str:
    """Return `model: reason; …` of those that have one."""
    return "; ".join(f"{name}: {reason}" for name, reason in reasons.items() if reason)


def _trouble(worker: Worker) -> str:
    if worker.state is ModelState.FAILED:
        return worker.reason
    return worker.info.degraded if worker.info is not None and worker.state is ModelState.READY else ""


def process_facts(children: Sequence[int] = ()) -> dict[str, object]:
    """Return resident memory in bytes and CPU time in seconds of this process and its children, and what it holds.

    children: process ids of those that live and are counted, the delegates' own processes; time of those that ended
    is counted without asking. Memory that two of them share is counted for each. `children` of the answer has what each
    one's part is.
    """
    times = os.times()
    cpu_s = times.user + times.system + times.children_user + times.children_system
    own, living = resident("self"), {str(pid): facts for pid in children if (facts := _child(pid)) is not None}
    rss = None if own is None else own + sum(found["rss_bytes"] for found in living.values())
    cpu_s += sum(found["cpu_s"] for found in living.values())
    return {"rss_bytes": rss, "cpu_s": round(cpu_s, 3), **held("self"), "children": living}


def held(process: int | str) -> dict[str, int | None]:
    """Return how many `threads` and `descriptors` a process has; None for what the system does not tell.

    process: its id, or "self".
    """
    return {"threads": _entries(f"/proc/{process}/task"), "descriptors": _entries(f"/proc/{process}/fd")}


def _entries(folder: str) -> int | None:
    try:
        with os.scandir(folder) as found:
            return sum(1 for _ in found)
    except OSError:  # it has ended, or is another user's
        return None


class _Child(TypedDict):
    rss_bytes: int
    cpu_s: float


def _child(pid: int) -> _Child | None:
    """Return what the kernel says of another process; None when it is gone. Fields 14 and 15: see proc(5)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    ticks = int(fields[11]) + int(fields[12])
    return {"rss_bytes": resident(pid) or 0, "cpu_s": round(ticks / os.sysconf("SC_CLK_TCK"), 3)}

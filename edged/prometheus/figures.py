"""What the daemon counts, by Prometheus' conventions for names and units.

Counters of the rooms (transport, intake, streams, …) are taken as they are told, so that a new one needs no change
here: `edged_<room>_<name>_total`, or without `_total` where a value goes up and down.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import edged
from edged.clock import NS_PER_MS, now_ns
from edged.memory import resident
from edged.prometheus.exposition import Exposition
from edged.prometheus.helps import about
from edged.report import Stats, process_facts
from edged.worker import ModelState, Worker

# Beyond this rate a scraper gets what the last one got.
_FRESH_NS = 100 * NS_PER_MS
# What goes up and down; every other number that is told is a count since start.
GAUGES = frozenset({
    "bytes", "bytes_each", "connected", "inbox", "keys", "max", "max_keys", "outgoing_bytes", "outgoing_messages",
    "producers", "protocol", "slots_busy", "spare", "unread_replies", "waiting",
})  # fmt: skip


@dataclass(frozen=True)
class Sources:
    """Where the figures are. workers: the mapping that all rooms share. transport, streams: as for the metrics."""

    device: str
    workers: Mapping[str, Worker]
    transport: Stats
    streams: Stats


class Figures:
    """Makes the text of one scrape."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._made_ns, self._made = 0, b""

    def page(self) -> bytes:
        """Return the exposition of now, or of a moment ago. One thread calls."""
        now = now_ns()
        if not self._made or now - self._made_ns > _FRESH_NS:
            self._made, self._made_ns = self._exposition().text().encode(errors="replace"), now
        return self._made

    def _exposition(self) -> Exposition:
        workers = dict(self._sources.workers)
        page = Exposition({"device": self._sources.device})
        versions = {"version": edged.__version__, "python": platform.python_version()}
        page.add("edged_build_info", "gauge", "Always 1: the versions of the daemon and of Python.", 1, versions)
        for name, worker in workers.items():
            _model(page, {"model": name}, worker)
        _counters(page, "edged_transport", self._sources.transport(), {})
        for name, stats in self._sources.streams().items():
            if isinstance(stats, Mapping):
                _counters(page, "edged_stream", stats, {"stream": name})
        _processes(page, workers)
        _own_process(page)
        return page


def _model(page: Exposition, labels: Mapping[str, str], worker: Worker) -> None:
    info, snapshot = worker.info, worker.figures.snapshot()
    version = {"version": str(worker.plan.bundle.manifest.version)}
    serves = {"runtime": info.runtime if info else "", "delegate": info.delegate if info else ""}
    page.add("edged_model_info", "gauge", "Always 1: what serves the model now.", 1, {**labels, **version, **serves})
    ready = worker.state is ModelState.READY
    page.add("edged_model_ready", "gauge", "Whether the model serves now: 1 or 0.", int(ready), labels)
    page.add("edged_requests_total", "counter", "Requests for the model since start.", snapshot.counts.requests, labels)
    for code, count in {"OK": snapshot.counts.ok, **snapshot.counts.errors}.items():
        page.add(
            "edged_replies_total", "counter", "Answers since start, by status code.", count, {**labels, "code": code}
        )
    for stage, found in snapshot.histograms.items():
        name = "edged_request_duration_seconds" if stage == "total" else "edged_request_stage_duration_seconds"
        told = "Seconds from first byte in to last byte out." if stage == "total" else "Seconds of each stage."
        page.add_histogram(name, told, found, labels if stage == "total" else {**labels, "stage": stage})
    page.add("edged_queue_requests", "gauge", "Requests admitted and not answered now.", worker.unanswered, labels)
    page.add(
        "edged_queue_bytes",
        "gauge",
        "Bytes of the payloads of requests admitted and not answered now.",
        worker.unanswered_bytes,
        labels,
    )
    page.add(
        "edged_failovers_total",
        "counter",
        "Failovers since start: times a failing delegate was left for its stand-in.",
        info.failovers if info else 0,
        labels,
    )
    page.add(
        "edged_failover_returns_total",
        "counter",
        "Returns since start: times a delegate that had failed was taken back.",
        info.returns if info else 0,
        labels,
    )
    _counters(page, "edged_model", worker.facts(), labels)


def _counters(page: Exposition, prefix: str, told: Mapping[str, object], labels: Mapping[str, str]) -> None:
    """Add every number; what is told in groups has the group's name before its own."""
    for name, value in told.items():
        if isinstance(value, Mapping):
            _counters(page, f"{prefix}_{name}", value, labels)
        elif isinstance(value, int | float) and name in GAUGES:
            page.add(f"{prefix}_{name}", "gauge", about(prefix, name), value, labels)
        elif isinstance(value, int | float):
            page.add(f"{prefix}_{name}_total", "counter", about(prefix, name), value, labels)


def _processes(page: Exposition, workers: Mapping[str, Worker]) -> None:
    engines = [one.self_checked for worker in workers.values() for one in worker.open]
    facts = process_facts([engine.pid for engine in engines if engine is not None and engine.pid is not None])
    whose = "of the daemon and the processes of its delegates"
    if isinstance(rss := facts["rss_bytes"], int):
        page.add("edged_resident_memory_bytes", "gauge", f"Bytes of memory {whose} now.", rss)
    if isinstance(cpu_s := facts["cpu_s"], int | float):
        page.add("edged_cpu_seconds_total", "counter", f"Seconds of CPU time {whose} since start.", cpu_s)


def _own_process(page: Exposition) -> None:
    """Add what client libraries tell of their process, under their names, as far as the system tells it."""
    times = os.times()
    page.add(
        "process_cpu_seconds_total",
        "counter",
        "Seconds of CPU time of the daemon's own process.",
        times.user + times.system,
    )
    found: dict[tuple[str, str], Callable[[], float | None]] = {
        ("process_resident_memory_bytes", "Bytes of memory"): lambda: resident("self"),
        ("process_virtual_memory_bytes", "Bytes of address space"): lambda: int(_stat()[20]),
        ("process_start_time_seconds", "Seconds from 1970 to the start"): _started_s,
        ("process_open_fds", "Open descriptors"): lambda: sum(1 for _ in Path("/proc/self/fd").iterdir()),
    }
    for (name, what), measure in found.items():
        try:
            value = measure()
        except (OSError, ValueError, IndexError):  # not Linux
            continue
        if value is not None:
            page.add(name, "gauge", f"{what} of the daemon's own process.", value)


def _stat() -> list[str]:
    """Fields 3 and later of proc(5): the name before them may hold anything."""
    return Path("/proc/self/stat").read_text().rpartition(")")[2].split()


def _started_s() -> float:
    return _booted_s() + int(_stat()[19]) / os.sysconf("SC_CLK_TCK")


def _booted_s() -> int:
    lines = Path("/proc/stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("btime"))

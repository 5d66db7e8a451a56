"""What reporting costs: requests answered per second with the metrics published at an interval, beside none.

python tests/bench/bench_report.py [--json] [--repeats 5] [--seconds 2]

A daemon with a tiny model on a loopback bus in this process, where a report and the requests fight for the same
interpreter: a real device, whose requester is another process, loses less. Someone keeps eight requests in flight.
Interleaved; medians. Aim: at most 1 % at the default interval of 10 s.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import numpy as np  # noqa: E402
import report  # noqa: E402
from support import tinymodel  # noqa: E402
from support.brokers import eventually  # noqa: E402

from edged import config  # noqa: E402
from edged.clock import NS_PER_MS, now_ns  # noqa: E402
from edged.daemon import Daemon  # noqa: E402
from edged.latency import Histogram  # noqa: E402
from edged.transports.base import Message, Subscription  # noqa: E402
from edged.transports.loopback import open_url  # noqa: E402
from edged.worker import ModelState  # noqa: E402

NEVER_S = 3600.0
INTERVALS_S = (0.1, 1.0, 10.0)
IN_FLIGHT = 8
LIMIT = 0.99  # of the throughput without reports, at the default interval
US = 1000


class Rig:
    """The daemon, whose interval can be changed, and its requester."""

    def __init__(self, directory: Path) -> None:
        tinymodel.write_dense_bundle(directory / "dense")
        body = {
            "device": "box", "broker": {"url": "mqtt://unused"}, "models": [{"name": "dense", "bundle": "dense"}],
            "state_dir": "state", "log_level": "error", "metrics": {"interval_s": NEVER_S},
        }  # fmt: skip
        self.config = config.loads(json.dumps(body), "edged.yaml", directory)
        self.daemon = Daemon(self.config, open_url("loopback://report"), lambda: self.config)
        self.worker = self.daemon._parts.workers["dense"]
        spec = self.worker.plan.bundle.manifest.inputs[0]
        self.payload = np.zeros(spec.shape, spec.wire_dtype).tobytes()
        self.replies: SimpleQueue[Message] = SimpleQueue()
        self.asker = open_url("loopback://report")
        self.asker.start(self.replies.put, [Subscription("edged/v1/resp/u/#", 0)])
        self.thread = threading.Thread(target=self.daemon.run)
        self.thread.start()
        eventually(lambda: self.worker.state is ModelState.READY, "the model is ready")
        self.asked = 0

    def every(self, interval_s: float) -> None:
        """Publish metrics so often from now on."""
        self.config = dataclasses.replace(
            self.config, metrics=dataclasses.replace(self.config.metrics, interval_s=interval_s)
        )
        self.daemon.request_reload()
        time.sleep(0.2)

    def run(self, seconds: float) -> tuple[float, Histogram]:
        """Return requests answered per second, and their latencies."""
        found, sent = Histogram(), dict[bytes | None, int]()
        for _ in range(IN_FLIGHT):
            self._ask(sent)
        started, count = now_ns(), 0
        while (now := now_ns()) < started + seconds * 1e9:
            reply = self.replies.get(timeout=10)
            found.record(now_ns() - sent.pop(reply.correlation))
            self._ask(sent)
            count += 1
        for _ in range(IN_FLIGHT):
            self.replies.get(timeout=10)
        return count / (now - started) * 1e9, found

    def report_ms(self) -> float:
        """Return the CPU time of one report, from the fastest of ten: the others were disturbed."""
        taken = []
        for _ in range(10):
            started = time.thread_time_ns()
            self.daemon._announcer.metrics()
            taken.append(time.thread_time_ns() - started)
        return min(taken) / NS_PER_MS

    def stop(self) -> None:
        self.daemon.request_stop()
        self.thread.join()
        self.asker.stop()

    def _ask(self, sent: dict[bytes | None, int]) -> None:
        self.asked += 1
        correlation = str(self.asked).encode()
        sent[correlation] = now_ns()
        self.asker.publish(
            Message(
                "edged/v1/dev/box/req/dense/c/u", self.payload, response_topic="edged/v1/resp/u/r",
                correlation=correlation, content_type="application/octet-stream",
            )
        )  # fmt: skip


def measure(repeats: int, seconds: float) -> tuple[float, dict[float, list[tuple[float, Histogram]]]]:
    """CPU ms of a report; rate and latencies of each repeat, by interval."""
    found: dict[float, list[tuple[float, Histogram]]] = {interval: [] for interval in (NEVER_S, *INTERVALS_S)}
    with tempfile.TemporaryDirectory() as name:
        rig = Rig(Path(name))
        try:
            rig.run(seconds)  # warm-up
            order = list(found)
            for _ in range(repeats):
                for interval in order:
                    rig.every(interval)
                    found[interval].append(rig.run(seconds))
                order.append(order.pop(0))  # each comes after each other one
            return rig.report_ms(), found
        finally:
            rig.stop()


def summed(rows: Sequence[tuple[float, Histogram]]) -> dict[str, float | None]:
    """Median rate, and percentiles of all repeats together."""
    everything = Histogram()
    for _, histogram in rows:
        everything.merge(histogram)
    p50, p99, p999 = (None if ns is None else ns / US for ns in everything.percentiles((50, 99, 99.9)))
    rate = statistics.median(rate for rate, _ in rows)
    return {"per_s": rate, "p50_us": p50, "p99_us": p99, "p999_us": p999, "max_us": everything.max_ns / US}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each repeat")
    args = parser.parse_args()
    report_ms, runs = measure(args.repeats, args.seconds)
    found = {interval: summed(rows) for interval, rows in runs.items()}
    ratios = {interval: row["per_s"] / found[NEVER_S]["per_s"] for interval, row in found.items()}
    if args.json:
        print(json.dumps({"host": report.facts(), "report_ms": report_ms, "runs": found, "ratios": ratios}))
    else:
        print(report.line(report.facts()))
        print(f"a report takes {report_ms:.1f} ms of CPU: {report_ms / 100:.3f} % of a core at the default interval")
        print(
            f"{'interval':12}{'requests/s':>12}{'ratio':>8}{'p50 us':>10}{'p99 us':>10}{'p99.9 us':>10}{'max us':>10}"
        )
        for interval, row in found.items():
            name = "none" if interval == NEVER_S else f"{interval:g} s"
            values = "".join(f"{row[key]:>10,.0f}" for key in ("p50_us", "p99_us", "p999_us", "max_us"))
            print(f"{name:12}{row['per_s']:>12,.0f}{ratios[interval]:>8.3f}{values}")
    return 0 if ratios[10.0] >= LIMIT else 1


if __name__ == "__main__":
    report.run(main)

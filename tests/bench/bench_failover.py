"""What a failing accelerator costs a client: requests at a steady rate, a crash or a hang in the middle, the return.

python tests/bench/bench_failover.py [--seconds 60] [--rate 100] [--faults segfault,hang] [--json]

The accelerator is the test delegate in its own process; the CPU stands in. Every request is an `edged.Client` request
at QoS 1 through mosquitto, sent on time whatever became of those before it. The service gap is the longest time without
an answer. Exits 1 when a request was lost, answered twice, or answered wrong.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import report  # noqa: E402
from support import delegates  # noqa: E402
from support.daemons import DEVICE, DaemonProcess  # noqa: E402
from support.watcher import StatusBoard  # noqa: E402

from edged.broker import EmbeddedBroker  # noqa: E402
from edged.client import Client, Result  # noqa: E402

DEADLINE_MS = 20_000
TARGET_MS = 250
X = np.random.default_rng(5).uniform(-2, 2, (1, delegates.SIZE)).astype(np.float32)


@dataclass
class Figures:
    """Of one run. Times in ms. detection_ms: after which a hang was ended, 0 for a crash. gap_ms: the longest time
    without an answer around the fault; usual_gap_ms: before it."""

    fault: str
    requests: int
    answered_once: int
    lost: int
    twice: int
    wrong: int
    resends: int
    by_delegate: dict[str, int]
    detection_ms: float
    gap_ms: float
    usual_gap_ms: float
    worst_ms: float
    usual_p99_ms: float
    returned_after_s: float
    reason: str

    @property
    def kept(self) -> bool:
        """Whether every request was answered once, and rightly."""
        return not (self.lost or self.twice or self.wrong)


class Load:
    """Sends `rate` requests a second and notes when each was answered, how often, and by whom."""

    def __init__(self, client: Client, rate: float) -> None:
        self._client, self._rate = client, rate
        self._lock = threading.Lock()
        self.sent: list[float] = []
        self.answers: list[tuple[int, float, Result | BaseException]] = []

    def run(self, seconds: float) -> None:
        """Send for so long, then wait until nothing is owed any more."""
        begin = time.perf_counter()
        for number in range(int(seconds * self._rate)):
            time.sleep(max(0.0, begin + number / self._rate - time.perf_counter()))
            self.sent.append(time.perf_counter())
            future = self._client.infer_async(DEVICE, "adder", X, deadline_ms=DEADLINE_MS, codec="raw")
            future.add_done_callback(partial(self._done, number))
        end = time.perf_counter() + DEADLINE_MS / 1000
        while len(self.answers) < len(self.sent) and time.perf_counter() < end:
            time.sleep(0.01)

    def _done(self, number: int, future: Future[Result]) -> None:
        at = time.perf_counter()
        with self._lock:
            self.answers.append((number, at, future.exception() or future.result()))


def gap_ms(times: list[float]) -> float:
    """Return the longest time between two answers."""
    return max((later - earlier for earlier, later in pairwise(times)), default=0.0) * 1000


def run(fault: str, seconds: float, rate: float) -> Figures:
    """One daemon, one load, one fault in the middle of it."""
    with tempfile.TemporaryDirectory() as name, EmbeddedBroker("mosquitto") as broker:
        directory = Path(name)
        delegates.adder_bundle(directory / "adder")
        options = {"fail": fault, "when": str(directory / "fault")}
        external = {"external": {"library": str(delegates.library()), "options": options}}
        model = {
            "name": "adder", "bundle": "adder", "runtime": "ai-edge-litert", "delegates": external,
            "queue": {"max_requests": 10_000}, "deadline_ms": DEADLINE_MS,
        }  # fmt: skip
        with (
            DaemonProcess(directory, broker.port, {"models": [model]}) as daemon,
            StatusBoard(broker.port, DEVICE) as board,
            Client(broker.url_v5, user="bench", protocol="5") as client,
        ):
            daemon.ready(60)
            load = Load(client, rate)
            sender = threading.Thread(target=load.run, args=(seconds,))
            sender.start()
            time.sleep(seconds / 2)
            (directory / "fault").touch()
            fault_at = time.perf_counter()
            board.wait(lambda said: bool(said["models"]["adder"]["degraded"]), seconds)
            left_at, reason = time.perf_counter(), board.model("adder")["degraded"]
            (directory / "fault").unlink()
            board.wait(lambda said: not said["models"]["adder"]["degraded"], max(60.0, seconds))
            returned_s = time.perf_counter() - left_at
            sender.join()
            return figures(fault, load, fault_at, reason, returned_s)


def figures(fault: str, load: Load, fault_at: float, reason: str, returned_s: float) -> Figures:
    """Judge what came."""
    expected = delegates.adder_expected(X).tobytes()
    counts = Counter(number for number, _, _ in load.answers)
    good = [(n, at, answer) for n, at, answer in load.answers if isinstance(answer, Result)]
    before = sorted(at for _, at, _ in load.answers if at < fault_at)
    # From the last answer before the fault on; the first tenth of the load also starts connections and caches.
    around = [*before[-1:], *sorted(at for _, at, _ in load.answers if at >= fault_at)]
    taken = [(at - load.sent[n]) * 1000 for n, at, _ in load.answers]
    usual = [(at - load.sent[n]) * 1000 for n, at, _ in load.answers if at < fault_at]
    detected = re.search(r"within (\d+) ms", reason)
    return Figures(
        fault, len(load.sent), sum(count == 1 for count in counts.values()),
        len(load.sent) - len({n for n, _, _ in good}), sum(count > 1 for count in counts.values()),
        sum(answer.payload != expected for _, _, answer in good), sum(answer.resends for _, _, answer in good),
        dict(Counter(answer.meta.delegate for _, _, answer in good)), float(detected.group(1)) if detected else 0.0,
        gap_ms(around), gap_ms(before[len(before) // 10 :]), max(taken), float(np.percentile(usual, 99)),
        returned_s, reason,
    )  # fmt: skip


def told(found: Figures) -> str:
    """A few lines for a person."""
    allowed = found.detection_ms + TARGET_MS
    verdict = "within" if found.gap_ms <= allowed else "OVER"
    return "\n".join((
        f"{found.fault}: {found.reason}",
        f"  {found.requests} requests, {found.answered_once} answered once, {found.lost} lost, {found.twice} twice, "
        f"{found.wrong} wrong, {found.resends} resent; by {found.by_delegate}",
        f"  service gap {found.gap_ms:.0f} ms, {verdict} the {allowed:.0f} ms allowed "
        f"(detection {found.detection_ms:.0f} ms + {TARGET_MS} ms; usual gap {found.usual_gap_ms:.0f} ms)",
        f"  worst latency {found.worst_ms:.0f} ms (usual P99 {found.usual_p99_ms:.1f} ms); "
        f"taken back {found.returned_after_s:.1f} s after it was left",
    ))  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--faults", default="segfault,hang", help="what the delegate plays, a run each")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    facts, runs = report.facts(), []
    if not args.json:
        print(report.line(facts))
    for fault in args.faults.split(","):
        runs.append(run(fault, args.seconds, args.rate))
        if not args.json:
            print(told(runs[-1]))
    if args.json:
        print(json.dumps({"host": facts, "rate": args.rate, "runs": [asdict(found) for found in runs]}))
    return 0 if all(found.kept for found in runs) else 1


if __name__ == "__main__":
    report.run(main)

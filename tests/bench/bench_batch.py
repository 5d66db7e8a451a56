"""What gathering requests into one inference brings: requests a second, against one by one.

python tests/bench/bench_batch.py [--rows 2,8,32] [--seconds 2] [--repeats 5] [--json]

A model's worker as the daemon runs it, without a transport, and a fixed number of requests in flight. Two models: a
tiny one, where the work around an inference is shared, and a matrix of 16 MiB, where reading it is. The two
sides take turns; the ratio is the median of those of each turn.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import report  # noqa: E402
from support import tinymodel  # noqa: E402

from edged import bundle  # noqa: E402
from edged.admission import Admission, Bounds, Sweeper  # noqa: E402
from edged.clock import NS_PER_S, now_ns  # noqa: E402
from edged.config import ModelConfig  # noqa: E402
from edged.config_models import BatchConfig  # noqa: E402
from edged.engines.candidate import Candidate  # noqa: E402
from edged.engines.opening import open_here  # noqa: E402
from edged.figures import ModelFigures  # noqa: E402
from edged.fitting import fit  # noqa: E402
from edged.request import OnSent, Reply, Request  # noqa: E402
from edged.router import Router  # noqa: E402
from edged.worker import ModelState, Worker, WorkerPlan  # noqa: E402

RUNTIME = "ai-edge-litert"
WIDTH = 2048


class Load:
    """Keeps as many requests in flight as are wanted: each answer sends the next one."""

    def __init__(self, router: Router, payload: bytes) -> None:
        self._router, self._payload = router, payload
        self.answered, self.failed = 0, 0
        self.going = threading.Event()

    def send(self) -> None:
        now = now_ns()
        self._router.submit(
            Request(
                "m", self._payload, codec="raw", received_ns=now, deadline_ns=now + 60 * NS_PER_S, respond=self._respond
            )
        )

    def _respond(self, _request: Request, reply: Reply, _on_sent: OnSent | None) -> None:
        self.answered += 1
        self.failed += reply.error is not None
        if self.going.is_set():
            self.send()


def rate(path: Path, size: int, in_flight: int, seconds: float) -> float:
    """Requests a second with up to `size` in one inference."""
    loaded, router = bundle.read(path), Router()
    way = fit(ModelConfig(name="m", bundle=path, batch=BatchConfig(max_batch_size=size)), loaded)
    sweeper = Sweeper(router.fail)
    admission = Admission(Bounds(2 * in_flight, 1 << 30, "reject"), sweeper, router.fail)
    plan = WorkerPlan(
        "m", loaded, lambda _nudge, _note: open_here(way.opened, Candidate(RUNTIME)), server=way.server,
        signature=way.signature,
    )  # fmt: skip
    worker = Worker(plan, admission, ModelFigures(), lambda _: None)
    router.serve({"m": worker})
    worker.start()
    while worker.state is ModelState.STARTING:
        time.sleep(0.01)
    load = Load(router, bytes(sum(spec.wire_bytes for spec in way.signature.inputs)))
    load.going.set()
    for _ in range(in_flight):
        load.send()
    time.sleep(seconds / 4)
    begun, before = time.perf_counter(), load.answered
    time.sleep(seconds)
    found = (load.answered - before) / (time.perf_counter() - begun)
    load.going.clear()
    worker.stop(5)
    if load.failed:
        raise RuntimeError(f"{load.failed} requests failed: {worker.reason}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="2,8,32", help="max_batch_size, of bundles of that batch")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each turn")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    facts, rows = report.facts(), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size in map(int, args.rows.split(",")):
            for model, write in (("tiny", _tiny), (f"{WIDTH} x {WIDTH}", _wide)):
                one, many = write(folder / f"{model}-one-{size}", 1), write(folder / f"{model}-{size}", size)
                turns = [
                    (rate(one, 1, 2 * size, args.seconds), rate(many, size, 2 * size, args.seconds))
                    for _ in range(args.repeats)
                ]
                alone, together = np.median(turns, axis=0)
                ratio = float(np.median([b / a for a, b in turns]))
                rows.append({"model": model, "rows": size, "one_by_one": alone, "batched": together, "ratio": ratio})
    if args.json:
        print(json.dumps({"host": facts, "rows": rows}))
        return 0
    print(report.line(facts))
    print(f"{'model':14}{'rows':>6}{'one by one/s':>16}{'batched/s':>14}{'ratio':>9}")
    for row in rows:
        print(f"{row['model']:14}{row['rows']:6}{row['one_by_one']:16.0f}{row['batched']:14.0f}{row['ratio']:9.2f}")
    return 0


def _tiny(path: Path, rows: int) -> Path:
    return tinymodel.write_rows_bundle(path, rows)


def _wide(path: Path, rows: int) -> Path:
    return tinymodel.write_matrix_bundle(path, rows, WIDTH)


if __name__ == "__main__":
    report.run(main)

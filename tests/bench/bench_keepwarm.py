"""What a rare request pays for idle clocks and caches, and what `keep_warm_ms` saves of it.

python tests/bench/bench_keepwarm.py [--intervals 0.01,1,5] [--keep-warm 0,10] [--seconds 30] [--json]

A model's worker as the daemon runs it, without a transport: requests so many seconds apart, for at least so long and at
least eight of them. Two models: a tiny one, and one with the arithmetic of a MobileNet. Times are of the inference, and
from the request to its reply.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import report  # noqa: E402
from support import tinymodel  # noqa: E402
from support.requests import Inbox  # noqa: E402

from edged import bundle  # noqa: E402
from edged.admission import Admission, Bounds, Sweeper  # noqa: E402
from edged.affinity import ThreadPolicy  # noqa: E402
from edged.engines.candidate import Candidate  # noqa: E402
from edged.engines.opening import open_here  # noqa: E402
from edged.figures import ModelFigures  # noqa: E402
from edged.keepwarm import KeepWarm  # noqa: E402
from edged.router import Router  # noqa: E402
from edged.worker import ModelState, Worker, WorkerPlan  # noqa: E402

RUNTIME = "ai-edge-litert"
LEAST = 8
# size, repeats: 2 x 260^3 x 8 floating-point operations, near the 0.3 G multiply-adds of MobileNetV2.
MOBILENET_LIKE = (260, 8)


def measured(path: Path, keep_warm_ms: int, interval_s: float, seconds: float) -> dict[str, float]:
    """Median and largest microseconds of the inference and of the whole, after a first second that is not counted."""
    loaded, inbox, router = bundle.read(path), Inbox(), Router()
    sweeper = Sweeper(router.fail)
    admission = Admission(Bounds(64, 1 << 20, "reject"), sweeper, router.fail)
    plan = WorkerPlan(
        "m", loaded, lambda _nudge, _note: open_here(loaded, Candidate.of(RUNTIME, "cpu")), ThreadPolicy((), "auto")
    )
    worker = Worker(plan, admission, ModelFigures(), lambda _: None)
    keep_warm = KeepWarm({"m": worker}, {"m": keep_warm_ms})
    router.serve({"m": worker})
    sweeper.start()
    worker.start()
    while worker.state is ModelState.STARTING:
        time.sleep(0.01)
    keep_warm.start()
    payload = bytes(sum(spec.wire_bytes for spec in loaded.manifest.inputs))
    time.sleep(1)
    infer, whole = [], []
    for _ in range(max(LEAST, int(seconds / interval_s))):
        time.sleep(interval_s)
        started = time.perf_counter()
        request = inbox.request(payload)
        router.submit(request)
        inbox.get()
        whole.append((time.perf_counter() - started) * 1e6)
        infer.append((request.inferred_ns - request.decoded_ns) / 1000)
    keep_warm.stop()
    worker.stop(5)
    sweeper.stop()
    return {
        "n": len(infer), "infer_p50_us": float(np.median(infer)), "infer_max_us": max(infer),
        "whole_p50_us": float(np.median(whole)), "whole_max_us": max(whole),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--intervals", default="0.01,1,5", help="seconds between two requests")
    parser.add_argument("--keep-warm", default="0,10", help="keep_warm_ms")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each cell")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    facts, rows = report.facts(), []
    with tempfile.TemporaryDirectory() as name:
        models = {
            "tiny": tinymodel.write_dense_bundle(Path(name) / "tiny"),
            "mobilenet-like": tinymodel.write_slow_bundle(Path(name) / "large", *MOBILENET_LIKE),
        }
        cells = [
            (model, interval, keep)
            for model in models
            for interval in map(float, args.intervals.split(","))
            for keep in map(int, args.keep_warm.split(","))
        ]
        for model, interval, keep in cells:
            found = measured(models[model], keep, interval, min(args.seconds, 300 * interval))
            rows.append({"model": model, "interval_s": interval, "keep_warm_ms": keep, **found})
    if args.json:
        print(json.dumps({"host": facts, "rows": rows}))
        return 0
    print(report.line(facts))
    head = ("interval s", "keep_warm_ms", "n", "infer P50 us", "max", "request to reply P50 us", "max")
    print(f"{'model':16}" + "".join(f"{name:>24}" if len(name) > 12 else f"{name:>14}" for name in head))
    for row in rows:
        values = [row[key] for key in ("infer_p50_us", "infer_max_us", "whole_p50_us", "whole_max_us")]
        cells_text = f"{values[0]:14.1f}{values[1]:14.1f}{values[2]:24.1f}{values[3]:14.1f}"
        print(f"{row['model']:16}{row['interval_s']:>14g}{row['keep_warm_ms']:>14}{row['n']:>14}{cells_text}")
    return 0


if __name__ == "__main__":
    report.run(main)

"""A daemon that is asked for more than it can do: its throughput beside the bare invoke, and the tail of what it takes.

python tests/bench/bench_saturation.py [--json] [--repeats 5] [--seconds 4] [--depth 8]

MobileNetV2 int8 over stock mosquitto, QoS 0, from a C requester. Throughput: `depth` requests in flight, beside a loop
of the bare Interpreter.invoke(), in turns. Tail: an open loop at twice the rate that the device can serve, a queue of
`depth` requests that refuses the rest; the P99 of what was accepted is to stay within 1.1 x (depth + 1) x the P99 of
the service: the inference as the daemon's own metrics tell it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import models  # noqa: E402
import peers  # noqa: E402
import report  # noqa: E402
from support.daemons import DEVICE, DaemonProcess  # noqa: E402
from support.watcher import Watcher  # noqa: E402

from edged.broker import EmbeddedBroker  # noqa: E402
from edged.bundle import Bundle  # noqa: E402
from edged.engines import tflite_runtime  # noqa: E402

ASKED = {"request": f"edged/v1/dev/{DEVICE}/req/m/c/bench", "reply": "edged/v1/resp/bench/1"}
LEAST, MOST = 0.95, 1.1


def bare(loaded: Bundle, seconds: float) -> peers.Figures:
    """Inferences a second of the bare interpreter, with one thread."""
    interpreter = tflite_runtime.installed()[0].module().Interpreter(model_content=loaded.model, num_threads=1)
    interpreter.allocate_tensors()
    count, started = 0, time.perf_counter()
    while time.perf_counter() < started + seconds:
        interpreter.invoke()
        count += 1
    return {"per_s": count / (time.perf_counter() - started)}


def service_p99_us(port: int) -> float:
    """P99 of the stage `infer` since start, from the daemon's next metrics message."""
    with Watcher(port, f"edged/v1/dev/{DEVICE}/metrics") as watcher:
        body = json.loads(watcher.get(timeout=10).payload)
    return float(body["models"]["m"]["since_start"]["latency"]["infer"]["p99_us"])


def measure(folder: Path, loaded: Bundle, args: argparse.Namespace) -> dict[str, Any]:
    payload = models.payload(loaded, folder / "payload")
    config = {
        "models": [{"name": "m", "bundle": str(loaded.path), "queue": {"max_requests": args.depth}}],
        "metrics": {"interval_s": 1},
    }
    with EmbeddedBroker("mosquitto") as broker, DaemonProcess(folder / "d", broker.port, config) as daemon:
        daemon.ready(120)
        shared: dict[str, Any] = {"port": broker.port, **ASKED, "file": payload}
        cells = {
            "bare": lambda: bare(loaded, args.seconds),
            "edged": lambda: peers.load(folder, **shared, window=args.depth, seconds=args.seconds),
        }
        runs = peers.interleaved(cells, args.repeats)
        rate = 2 * peers.median(runs["bare"], "per_s")
        flood = {"flood": lambda: peers.load(folder, **shared, rate=f"{rate:.0f}", seconds=args.seconds, warm=5)}
        runs |= peers.interleaved(flood, args.repeats)
        return {"runs": runs, "service_p99_us": service_p99_us(broker.port), "rate": rate}


def main() -> int:
    args = report.options(__doc__, repeats=5, seconds=4.0, depth=8).parse_args()
    report.needs("gcc", "mosquitto")
    facts = report.facts()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        peers.build(folder)
        found = measure(folder, models.needed(folder), args)
    runs = found["runs"]
    share = peers.median(runs["edged"], "per_s") / peers.median(runs["bare"], "per_s")
    bound = (args.depth + 1) * found["service_p99_us"]
    tail = peers.median(runs["flood"], "p99_us") / bound
    report.tell(args, facts, {**found, "throughput": share, "tail": tail}, lambda: show(args, found, share, tail))
    return 0


def show(args: argparse.Namespace, found: dict[str, Any], share: float, tail: float) -> None:
    runs = found["runs"]
    print(f"bare invoke {peers.spread(runs['bare'], 'per_s', 1)}/s, edged {peers.spread(runs['edged'], 'per_s', 1)}/s")
    print(f"  throughput {share:.3f} of the bare invoke: {report.verdict(share, LEAST, least=True)}")
    accepted, refused = (np.sum([run.get(key, 0) for run in runs["flood"]]) for key in ("count", "errors"))
    print(f"asked {found['rate']:.0f}/s: {accepted} accepted, {refused} refused, "
          f"{sum(run.get('missing', 0) for run in runs['flood'])} missing; P99 of accepted "
          f"{peers.spread(runs['flood'], 'p99_us')} µs, service P99 {found['service_p99_us']:.0f} µs")  # fmt: skip
    print(f"  P99 / ((depth {args.depth} + 1) x service P99) {tail:.3f}: {report.verdict(tail, MOST)}")


if __name__ == "__main__":
    report.run(main)

"""After a stall of one second: how soon the latency is what it was before.

python tests/bench/bench_stall.py [--json] [--repeats 5] [--seconds 20] [--rate 100]

The responder is stopped (SIGSTOP) for a second in the middle of an open loop at a constant rate, QoS 0. Told is the P50
before the stall, in the second after its end, and from then to the end; from the intended time of sending. The script
that everyone writes often stays one request behind for good: Nagle's algorithm waits for the next one.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import models  # noqa: E402
import peers  # noqa: E402
import report  # noqa: E402
from support import tinymodel  # noqa: E402
from support.daemons import DEVICE, DaemonProcess  # noqa: E402

from edged import bundle  # noqa: E402
from edged.broker import EmbeddedBroker  # noqa: E402
from edged.bundle import MODEL  # noqa: E402
from edged.engines import tflite_runtime  # noqa: E402

STALL_S = 1.0
LEAST_S = 8.0
BACK = 1.2  # the P50 afterwards, beside the one before


def stalled(folder: Path, port: int, pid: int, topics: dict[str, Any], args: argparse.Namespace) -> peers.Figures:
    """P50 in ms before, within one second after, and later; and how many were not answered."""
    dump, taken = folder / f"dump{pid}", [0, 0]

    def stall() -> None:
        time.sleep(args.seconds / 2)
        os.kill(pid, signal.SIGSTOP)
        taken[0] = time.monotonic_ns()
        time.sleep(STALL_S)
        os.kill(pid, signal.SIGCONT)
        taken[1] = time.monotonic_ns()

    thread = threading.Thread(target=stall)
    thread.start()
    payload = folder / "payload"
    found = peers.load(
        folder, port=port, file=payload, rate=args.rate, seconds=args.seconds, drain=5, dump=dump, **topics
    )
    thread.join()
    when, late = np.fromfile(dump, np.int64).reshape(-1, 2).T
    late = np.where(late < 0, np.iinfo(np.int64).max, late) / 1e6
    begun, ended = taken
    parts = {
        "before": when < begun - 1e9,
        "first second": (when >= ended) & (when < ended + 1e9),
        "later": when >= ended + 1e9,
    }
    return {**{name: float(np.median(late[part])) for name, part in parts.items()}, "missing": found.get("missing")}


def measure(folder: Path, args: argparse.Namespace) -> dict[str, list[peers.Figures]]:
    loaded = bundle.read(tinymodel.write_add_bundle(folder / "tiny", 16))
    models.payload(loaded, folder / "payload")
    with ExitStack() as stack:
        broker = stack.enter_context(EmbeddedBroker("mosquitto"))
        config = {"models": [{"name": "m", "bundle": str(loaded.path), "deadline_ms": 10_000}]}
        daemon = stack.enter_context(DaemonProcess(folder / "d", broker.port, config))
        daemon.ready(60)
        model = folder / "script.tflite"
        model.write_bytes(loaded.files[MODEL])
        command = peers.python("script.py", tflite_runtime.installed()[0].name, model, "raw", broker.port, "script", 0)
        script = stack.enter_context(peers.running(command))
        time.sleep(1.5)
        edged = {"request": f"edged/v1/dev/{DEVICE}/req/m/c/bench", "reply": "edged/v1/resp/bench/1"}
        plain = {"request": "script/in", "reply": "script/out", "v5": 0}
        cells = {
            "edged": lambda: stalled(folder, broker.port, daemon.process.pid, edged, args),
            "script": lambda: stalled(folder, broker.port, script.pid, plain, args),
        }
        return peers.interleaved(cells, args.repeats)


def main() -> int:
    parser = report.options(__doc__, repeats=5, seconds=20.0, rate=100.0)
    args = parser.parse_args()
    if args.seconds < LEAST_S:
        parser.error(f"--seconds must be {LEAST_S:g} or more, for a second before the stall and two after it")
    report.needs("gcc", "mosquitto")
    facts = report.facts()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        peers.build(folder)
        found = measure(folder, args)
    report.tell(args, facts, {"runs": found}, lambda: show(found))
    return 0


def show(found: dict[str, list[peers.Figures]]) -> None:
    print(f"{'P50 ms':10}{'before':>22}{'first second after':>24}{'later':>22}{'missing':>9}")
    for name, runs in found.items():
        cells = [peers.spread(runs, key, 2) for key in ("before", "first second", "later")]
        print(f"{name:10}{cells[0]:>22}{cells[1]:>24}{cells[2]:>22}{sum(run['missing'] for run in runs):>9}")
    ratio = statistics.median(run["later"] / run["before"] for run in found["edged"])
    print(f"  edged, later / before: {ratio:.2f}: {report.verdict(ratio, BACK)}")


if __name__ == "__main__":
    report.run(main)

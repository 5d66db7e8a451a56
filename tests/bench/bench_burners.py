"""The tail beside two processes that burn CPU: with the priorities that edged takes where it may, and without.

python tests/bench/bench_burners.py [--json] [--repeats 5] [--seconds 12] [--rate 200] [--model tiny|mobilenet]

An open loop at a constant rate from a C requester, latency from the intended time of sending, at the requester. It
and the broker are put before the burners (SCHED_FIFO), so that only the responder competes with them; that, and the
priorities themselves, need root. `nice` and `fifo` are the model's and the network thread's `realtime`, `off` is what
is left without permission. Figures are of all repeats pooled (repeats x seconds), in turns; the script that everyone
writes stands beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import models  # noqa: E402
import peers  # noqa: E402
import report  # noqa: E402
from support import tinymodel  # noqa: E402
from support.daemons import DaemonProcess  # noqa: E402

from edged import bundle  # noqa: E402
from edged.broker import EmbeddedBroker  # noqa: E402
from edged.bundle import MODEL, Bundle  # noqa: E402
from edged.engines import tflite_runtime  # noqa: E402

FIRST = ("chrt", "-f", "80")
MODES = ("auto", "nice", "fifo", "off")
P99, P999 = 1.2, 1.5


@contextlib.contextmanager
def burners() -> Iterator[None]:
    """Two processes that never sleep, each in a session of its own, as other services are."""
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(peers.running([sys.executable, "-c", "while True: pass"], start_new_session=True))
        time.sleep(0.3)
        yield


def asked(
    folder: Path, payload: Path, args: argparse.Namespace, port: int, topics: dict[str, Any], *, burn: bool
) -> Any:
    """Latencies in ns of one repeat; a request without an answer counts as infinitely late."""
    dump = folder / "dump"
    with burners() if burn else contextlib.nullcontext():
        found = peers.load(
            folder, prefix=FIRST, port=port, file=payload, rate=args.rate, seconds=args.seconds, dump=dump, **topics
        )
    latencies = np.fromfile(dump, np.int64).reshape(-1, 2)[:, 1].astype(float)
    found["latencies"] = np.where(latencies < 0, np.inf, latencies)
    return found


def measure(folder: Path, loaded: Bundle, args: argparse.Namespace) -> dict[str, Any]:
    payload = models.payload(loaded, folder / "payload")
    with ExitStack() as stack:
        broker = stack.enter_context(EmbeddedBroker("mosquitto"))
        subprocess.run([*FIRST[:1], "-a", "-f", "-p", "80", str(broker.pid)], check=True)
        cells: dict[str, Callable[[], peers.Figures]] = {}
        for mode in MODES:
            config: dict[str, Any] = {
                "device": f"bench-{mode}", "models": [{"name": "m", "bundle": str(loaded.path), "realtime": mode}],
                "network": {"realtime": mode}, "metrics": {"interval_s": 10},
            }  # fmt: skip
            daemon = stack.enter_context(DaemonProcess(folder / mode, broker.port, config, leads=True))
            daemon.ready(120)
            topics = {"request": f"edged/v1/dev/bench-{mode}/req/m/c/bench", "reply": "edged/v1/resp/bench/1"}
            for burn in (False, True):
                name = f"edged, {mode}{', burners' if burn else ''}"
                cells[name] = partial(asked, folder, payload, args, broker.port, topics, burn=burn)
        model = folder / "script.tflite"
        model.write_bytes(loaded.files[MODEL])
        command = peers.python("script.py", tflite_runtime.installed()[0].name, model, "raw", broker.port, "script", 0)
        stack.enter_context(peers.running(command, start_new_session=True))
        for burn in (False, True):
            topics = {"request": "script/in", "reply": "script/out", "v5": 0}
            cells[f"script{', burners' if burn else ''}"] = partial(
                asked, folder, payload, args, broker.port, topics, burn=burn
            )
        time.sleep(2)
        return peers.interleaved(cells, args.repeats)


def figures(runs: list[peers.Figures]) -> dict[str, float]:
    """Milliseconds at P50, P99, P99.9 and at most, of all repeats together."""
    pooled = np.sort(np.concatenate([run["latencies"] for run in runs])) / 1e6
    at = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    found = {name: float(pooled[min(int(len(pooled) * share), len(pooled) - 1)]) for name, share in at.items()}
    return {**found, "max": float(pooled[-1]), "count": len(pooled), "missing": int(np.isinf(pooled).sum())}


def show(found: dict[str, dict[str, float]]) -> None:
    print(f"{'':24}{'P50 ms':>10}{'P99':>10}{'P99.9':>10}{'max':>10}{'n':>9}{'missing':>9}   P99, P99.9 of idle")
    for name, row in found.items():
        idle = found[name.removesuffix(", burners")]
        ratios = (row["p99"] / idle["p99"], row["p999"] / idle["p999"])
        told = f"   {ratios[0]:.2f}, {ratios[1]:.2f}" if name.endswith("burners") else ""
        if name.startswith(("edged, auto", "edged, nice", "edged, fifo")) and told:
            told += f"  {report.verdict(ratios[0], P99)}, {report.verdict(ratios[1], P999)}"
        cells = "".join(f"{row[key]:>10.3f}" for key in ("p50", "p99", "p999", "max"))
        print(f"{name:24}{cells}{row['count']:>9}{row['missing']:>9}{told}")


def main() -> int:
    parser = report.options(__doc__, repeats=5, seconds=12.0, rate=200.0)
    parser.add_argument("--model", choices=("tiny", "mobilenet"), default="tiny")
    args = parser.parse_args()
    report.needs("gcc", "chrt", "mosquitto", root=True)
    facts = report.facts()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        peers.build(folder)
        tiny = args.model == "tiny"
        loaded = bundle.read(tinymodel.write_add_bundle(folder / "tiny", 16)) if tiny else models.needed(folder)
        found = {name: figures(runs) for name, runs in measure(folder, loaded, args).items()}
    report.tell(args, facts, {"figures": found}, lambda: show(found))
    return 0


if __name__ == "__main__":
    report.run(main)

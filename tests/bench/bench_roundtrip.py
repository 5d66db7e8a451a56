"""Round trip of a 64-byte request through stock mosquitto, with and without TCP_NODELAY and TCP_QUICKACK.

python tests/bench/bench_roundtrip.py [--json] [--repeats 5] [--requests 200]

One request in flight at QoS 1, our client and our daemon, the broker's own set_tcp_nodelay at its default (off).
Variants run interleaved; each figure is the median over the repeats of that repeat's percentile, with the range.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import report  # noqa: E402
from support import tinymodel  # noqa: E402

from edged.broker import EmbeddedBroker  # noqa: E402
from edged.client import Client  # noqa: E402

DEVICE = "bench"
ELEMENTS = 16  # 64 bytes of float32
STOCK = ("set_tcp_nodelay false",)
VARIANTS = {"without": False, "with NODELAY + QUICKACK": True}

# The daemon as `edged run` makes it, but for the two switches, which no user has a reason to turn off.
DAEMON = """
import sys
from pathlib import Path
from edged import config
from edged.daemon import Daemon
from edged.transports.mqtt import MqttSettings, MqttTransport
found = config.load(Path(sys.argv[1]))
quick = sys.argv[2] == "True"
address = found.broker.address
settings = MqttSettings(address.host, address.port, found.client_id, nodelay=quick, quickack=quick, resume=True)
Daemon(found, MqttTransport(settings)).run()
"""


@contextmanager
def daemon(directory: Path, broker: EmbeddedBroker, *, quick: bool) -> Iterator[None]:
    """A daemon process with the switches as said; yields once it answers."""
    models = [{"name": "echo", "bundle": str(directory / "echo")}]
    path = directory / "edged.yaml"
    path.write_text(json.dumps({
        "device": DEVICE, "broker": {"url": broker.url_v5}, "models": models, "state_dir": str(directory / "state"),
    }))  # fmt: skip
    with subprocess.Popen([sys.executable, "-c", DAEMON, str(path), str(quick)], stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def round_trips(broker: EmbeddedBroker, requests: int, *, quick: bool) -> list[float]:
    """Milliseconds of each request, one after the other."""
    inputs = np.linspace(-1, 1, ELEMENTS, dtype=np.float32)[None]
    client = Client(broker.url_v5, user="bench", protocol="5", nodelay=quick, quickack=quick)
    with client:
        client.connect(10)
        client.infer(DEVICE, "echo", inputs, deadline_ms=60_000, codec="raw")  # the daemon may still be starting
        taken = []
        for _ in range(requests):
            started = time.perf_counter()
            client.infer(DEVICE, "echo", inputs, deadline_ms=10_000, codec="raw")
            taken.append((time.perf_counter() - started) * 1000)
        return taken


def measure(repeats: int, requests: int) -> dict[str, list[dict[str, float]]]:
    """P50 and P99 of each repeat, by variant."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
    with tempfile.TemporaryDirectory() as directory, EmbeddedBroker("mosquitto", lines=STOCK) as broker:
        tinymodel.write_add_bundle(Path(directory) / "echo", ELEMENTS)
        for _ in range(repeats):
            for name, quick in VARIANTS.items():
                with daemon(Path(directory), broker, quick=quick):
                    p50, p99 = np.percentile(round_trips(broker, requests, quick=quick), [50, 99])
                found[name].append({"p50_ms": float(p50), "p99_ms": float(p99)})
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--requests", type=int, default=200)
    args = parser.parse_args()
    facts, found = report.facts(), measure(args.repeats, args.requests)
    if args.json:
        print(json.dumps({"host": facts, "runs": found}))
        return 0
    print(report.line(facts))
    print(f"{'64 B, QoS 1, one in flight':28}{'P50 ms (range)':>24}{'P99 ms (range)':>24}")
    for name, runs in found.items():
        cells = [[run[key] for run in runs] for key in ("p50_ms", "p99_ms")]
        told = [f"{statistics.median(c):.2f} ({min(c):.2f}-{max(c):.2f})" for c in cells]
        print(f"{name:28}{told[0]:>24}{told[1]:>24}")
    return 0


if __name__ == "__main__":
    report.run(main)

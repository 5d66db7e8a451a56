"""From exec to `ready` with a known bundle, and idle memory, beside a bare script that does the least.

python tests/bench/bench_startup.py [--json] [--repeats 7]

The bare script imports the same runtime, numpy, paho and yaml, loads the same model, invokes it once and connects; it
is up when its own retained message is on the broker. Interleaved; medians with the range. Bytecode is kept, as that of
an installed package is, whatever PYTHONDONTWRITEBYTECODE says: compiling takes a third of the time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import report  # noqa: E402
from support import barescript, tinymodel  # noqa: E402
from support.memory import rss_kib  # noqa: E402
from support.watcher import Watcher  # noqa: E402

from edged.broker import EmbeddedBroker  # noqa: E402
from edged.engines import tflite_runtime  # noqa: E402

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def until_ready(command: list[str], watcher: Watcher, cwd: Path) -> tuple[float, int]:
    """Start the command; return the seconds until a `ready`, and resident KiB half a second later."""
    while not watcher.messages.empty():
        watcher.messages.get()
    started = time.perf_counter()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=cwd, env=ENVIRONMENT, **quiet) as process:
        watcher.get(lambda m: not m.retain and json.loads(m.payload)["state"] == "ready", timeout=30)
        seconds = time.perf_counter() - started
        time.sleep(0.5)
        memory = rss_kib(process.pid)
        process.terminate()
        process.wait(10)
    return seconds, memory


def measure(runtime: tflite_runtime.Runtime, repeats: int) -> dict[str, list[tuple[float, int]]]:
    """Seconds and KiB of each repeat, by who."""
    found: dict[str, list[tuple[float, int]]] = {"bare script": [], "edged run": []}
    with tempfile.TemporaryDirectory() as name, EmbeddedBroker("mosquitto") as broker:
        directory = Path(name)
        model = tinymodel.write_dense_bundle(directory / "dense") / "model.tflite"
        config = directory / "edged.yaml"
        models = [{"name": "dense", "bundle": "dense", "runtime": runtime.name}]
        body = {"device": "box", "broker": {"url": broker.url_v5}, "models": models, "state_dir": "state"}
        config.write_text(json.dumps(body))
        commands = {
            "bare script": barescript.command(runtime, config, model, broker.port),
            "edged run": [sys.executable, "-m", "edged", "run", "-c", str(config)],
        }
        with Watcher(broker.port, "edged/v1/dev/+/status") as watcher:
            until_ready(commands["edged run"], watcher, directory)  # the first start tries the bundle
            for _ in range(repeats):
                for who, command in commands.items():
                    found[who].append(until_ready(command, watcher, directory))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    found = {runtime.name: measure(runtime, args.repeats) for runtime in tflite_runtime.installed()}
    if args.json:
        print(json.dumps({"host": report.facts(), "runs": found}))
        return 0
    print(report.line(report.facts()))
    print(f"{'':30}{'ready after s (range)':>26}{'idle memory MiB (range)':>28}")
    for name, runs in found.items():
        for who, cells in runs.items():
            seconds, memory = [c[0] for c in cells], [c[1] / 1024 for c in cells]
            first = f"{statistics.median(seconds):.2f} ({min(seconds):.2f}-{max(seconds):.2f})"
            second = f"{statistics.median(memory):.1f} ({min(memory):.1f}-{max(memory):.1f})"
            print(f"{name + ', ' + who:30}{first:>26}{second:>28}")
    return 0


if __name__ == "__main__":
    report.run(main)

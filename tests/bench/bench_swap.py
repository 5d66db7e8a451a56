"""What a hot swap costs the requests around it, and whether memory stays what it was.

python tests/bench/bench_swap.py [--json] [--swaps 100] [--rate 200] [--every 4] [--qos 0] [--model tiny|mobilenetv2]

Open loop at a constant rate from a requester in C; latency counts from the intended time of sending. Two versions of
the same model take turns. Pooled over all swaps: the P99 of requests that were due within a second of the switch,
against those of the rest of the same run. Each request must be answered once.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import models  # noqa: E402
import peers  # noqa: E402
import report  # noqa: E402
from support import tinymodel  # noqa: E402
from support.watcher import Watcher  # noqa: E402

from edged import bundle  # noqa: E402
from edged.broker import EmbeddedBroker  # noqa: E402
from edged.memory import resident  # noqa: E402

DEVICE = "bench"
BASE = f"edged/v1/dev/{DEVICE}"
WINDOW_NS = 1_000_000_000
# Swaps before memory is looked at for the first time: what the first ones import stays.
SETTLED = 4
SWAP_S = 2.0  # what a swap and the look at memory take at most


def versions(folder: Path, name: str) -> list[Path]:
    """Three bundles of one model that differ in their version alone; the first is the configured one."""
    if name == "tiny":
        return [
            tinymodel.write_dense_bundle(folder / f"{version}.tar", name="m", version=version) for version in (1, 2, 3)
        ]
    loaded = models.needed(folder)
    paths = [folder / f"{version}.tar" for version in (1, 2, 3)]
    for version, path in enumerate(paths, 1):
        bundle.write(path, dataclasses.replace(loaded.manifest, name="m", version=version), loaded.files)
    return paths


@contextlib.contextmanager
def daemon(folder: Path, broker: EmbeddedBroker, configured: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon that serves `m`."""
    path = folder / "edged.yaml"
    model = {"name": "m", "bundle": str(configured), "delegates": ["cpu"], "runtime": "ai-edge-litert"}
    body = {"device": DEVICE, "broker": {"url": broker.url_v5}, "models": [model], "state_dir": str(folder / "state")}
    body["replies"] = {"memory_s": 1}  # else memory grows for two minutes, whatever is swapped
    path.write_text(json.dumps(body))
    with peers.running([sys.executable, "-m", "edged", "run", "-c", path]) as process:
        with Watcher(broker.port, f"{BASE}/status") as watcher:
            watcher.get(lambda message: json.loads(message.payload)["state"] == "ready", timeout=60)
        yield process


def swap(watcher: Watcher, rev: int, path: Path) -> int:
    """Have a bundle served; returns when it was reported (monotonic ns). Ends the benchmark when it is not."""
    wish = {"name": "m", "url": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    body = json.dumps({"rev": rev, "models": [wish]})
    watcher.publish(f"{BASE}/desired/models", body.encode(), retain=True)
    found: dict[str, Any] = {}

    def over(message: Any) -> bool:
        found.update(json.loads(message.payload)["models"]["m"])
        return found["rev"] == rev and found["state"] in ("READY", "FAILED")

    watcher.get(over, timeout=60)
    if found["state"] != "READY" or found["error"]:
        sys.exit(f"bench: a swap failed: {found}")
    return time.monotonic_ns()


def run(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One run; returns its figures."""
    paths = versions(folder, args.model)
    loaded = bundle.read(paths[0])
    given = models.payload(loaded, folder / "payload")
    peers.build(folder)
    times, sizes = [], []
    with EmbeddedBroker("mosquitto") as broker, daemon(folder, broker, paths[0]) as process:
        options = {
            "port": broker.port, "request": f"{BASE}/req/m/c/bench", "reply": "edged/v1/resp/bench/x", "v5": 1,
            "file": given, "qos": args.qos, "rate": args.rate, "seconds": (args.swaps + 2) * (args.every + SWAP_S),
            "dump": folder / "dump", "drain": 5, "longest": 1e9,
        }  # fmt: skip
        command = [str(folder / "load"), *(f"{name}={value}" for name, value in options.items())]
        with (
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as load,
            Watcher(broker.port, f"{BASE}/reported/models") as watcher,
        ):
            for number in range(args.swaps):
                time.sleep(args.every)
                times.append(swap(watcher, number + 1, paths[1 + number % 2]))
                if number >= SETTLED - 1:
                    time.sleep(1.2)
                    sizes.append(resident(process.pid) or 0)
            told = json.loads(load.communicate()[0])
    return figures(np.fromfile(folder / "dump", np.int64).reshape(-1, 2), np.array(times), sizes, told)


def figures(requests: Any, times: Any, sizes: list[int], told: dict[str, Any]) -> dict[str, Any]:
    """Split the requests into those near a swap and the rest."""
    due, latency = requests[:, 0], requests[:, 1]
    distance = np.abs(due[:, None] - times[None, :]).min(axis=1)
    near = distance <= WINDOW_NS
    answered = latency >= 0
    found: dict[str, Any] = {"swaps": len(times), "requests": len(due), "unanswered": int((~answered).sum())}
    for name, which in (("steady", ~near & answered), ("near", near & answered)):
        percentiles = np.percentile(latency[which] / 1000, [50, 99, 99.9, 100])
        found[name] = {
            "n": int(which.sum()),
            **dict(zip(("p50_us", "p99_us", "p999_us", "max_us"), percentiles, strict=True)),
        }
    found["ratio_p99"] = found["near"]["p99_us"] / found["steady"]["p99_us"]
    found["rss_kib"] = [size // 1024 for size in (sizes[0], max(sizes), sizes[-1])]
    found["rss_growth_kib"] = (sizes[-1] - sizes[0]) // 1024
    return {**found, "load": told}


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--swaps", type=int, default=100)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--every", type=float, default=4, help="seconds between two swaps")
    parser.add_argument("--qos", type=int, default=0, choices=(0, 1))
    parser.add_argument("--model", default="tiny", choices=("tiny", "mobilenetv2"))
    args = parser.parse_args()
    if args.swaps < SETTLED:
        parser.error(f"--swaps must be {SETTLED} or more: memory is looked at from there on")
    with tempfile.TemporaryDirectory() as folder:
        found = {"host": report.facts(), **run(args, Path(folder))}
    if args.json:
        print(json.dumps(found, indent=2))
        return 0
    print(report.line(found["host"]))
    for name in ("steady", "near"):
        row = found[name]
        print(f"{name:8}{row['n']:8} requests  " + "  ".join(f"{key[:-3]} {row[key]:9.0f} µs" for key in list(row)[1:]))
    print(
        f"P99 near a swap / steady: {found['ratio_p99']:.2f}; unanswered {found['unanswered']} of {found['requests']}"
    )
    print(f"RSS after {SETTLED} swaps, most, after {found['swaps']}: {found['rss_kib']} KiB")
    return 0


if __name__ == "__main__":
    report.run(main)

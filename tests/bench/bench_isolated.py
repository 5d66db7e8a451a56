"""What a process of its own costs an inference: the isolated engine beside the one in this process, on the CPU.

python tests/bench/bench_isolated.py [--json] [--repeats 5] [--seconds 1] [--without-mobilenet]

The two run in turns of a twentieth of a second, so that both meet what else the machine does; a figure is the median
over the repeats of that repeat's percentile. The asking thread and the process are pinned to one CPU, as `cpus: [1]`
does, or left to the scheduler, which often takes two CPUs and wakes an idle one for each question and each answer.
Payloads go in before the clock starts. `copies` is what one copy of the inputs and one of the outputs take here: an
isolated engine must not add more than that as payloads grow.
MobileNetV2 (int8, random weights) is converted by TensorFlow, once, and kept in the temporary directory.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import models  # noqa: E402
import report  # noqa: E402
from support import tinymodel  # noqa: E402

from edged import bundle  # noqa: E402
from edged.affinity import ThreadPolicy  # noqa: E402
from edged.bundle import Bundle  # noqa: E402
from edged.engines import opening, tflite_runtime  # noqa: E402
from edged.engines.base import Engine  # noqa: E402
from edged.engines.candidate import Candidate  # noqa: E402
from edged.engines.isolated import IsolatedEngine  # noqa: E402

BYTES = (64, 1024, 16_384, 150_528, 602_112)
EVERYWHERE = os.sched_getaffinity(0)
PLACES = {"one CPU": ThreadPolicy((max(EVERYWHERE),)), "scheduler": ThreadPolicy()}
TURN_S, LEAST, WARM = 0.05, 4, 2  # of a turn; at least so many inferences, of which the first ones do not count


def bundles(folder: Path, *, without_mobilenet: bool) -> Iterator[tuple[str, Bundle]]:
    yield "dense, 12 B", bundle.read(tinymodel.write_dense_bundle(folder / "dense"))
    if not without_mobilenet:
        yield "MobileNetV2 int8, 150528 B", models.needed(folder)
    for size in BYTES:
        yield f"add, {size} B", bundle.read(tinymodel.write_add_bundle(folder / f"add{size}", size // 4))


def copies_us(loaded: Bundle) -> float:
    """The least that a copy of all inputs and one of all outputs take."""
    pairs = [
        (np.zeros(spec.shape, spec.wire_dtype), np.ones(spec.shape, spec.wire_dtype))
        for spec in (*loaded.manifest.inputs, *loaded.manifest.outputs)
    ]
    taken = []
    for _ in range(200):
        started = time.perf_counter_ns()
        for to, source in pairs:
            np.copyto(to, source)
        taken.append(time.perf_counter_ns() - started)
    return min(taken) / 1000


def turn(engine: Engine) -> list[int]:
    """Nanoseconds of each inference of one turn."""
    payloads = [np.random.default_rng(n).integers(0, 9, a.shape).astype(a.dtype) for n, a in enumerate(engine.inputs)]
    taken: list[int] = []
    end = time.perf_counter() + TURN_S
    while len(taken) < LEAST or time.perf_counter() < end:
        for array, payload in zip(engine.inputs, payloads, strict=True):
            np.copyto(array, payload)
        started = time.perf_counter_ns()
        engine.invoke()
        taken.append(time.perf_counter_ns() - started)
    return taken[WARM:]


def repeat(engines: dict[str, Engine], seconds: float) -> dict[str, dict[str, float]]:
    """P50 and P99 in µs of that many seconds of each engine, and how many inferences there were."""
    taken: dict[str, list[int]] = {name: [] for name in engines}
    end = time.perf_counter() + len(engines) * seconds
    while time.perf_counter() < end:
        for name, engine in engines.items():
            taken[name] += turn(engine)
    percentiles = {name: np.percentile(each, [50, 99]) / 1000 for name, each in taken.items()}
    return {
        name: {"p50": float(p50), "p99": float(p99), "count": len(taken[name])}
        for name, (p50, p99) in percentiles.items()
    }


def compared(loaded: Bundle, runtime: str, policy: ThreadPolicy, repeats: int, seconds: float) -> dict[str, Any]:
    """What each of the two takes, and what the process adds: µs."""
    candidate = Candidate(runtime)
    os.sched_setaffinity(0, policy.cpus or EVERYWHERE)
    with ExitStack() as stack:
        engines: dict[str, Engine] = {
            "here": stack.enter_context(closing(opening.open_here(loaded, candidate))),
            "isolated": stack.enter_context(closing(IsolatedEngine(loaded, candidate, policy))),
        }
        runs = [repeat(engines, seconds) for _ in range(repeats)]
    found = {
        name: {key: statistics.median(run[name][key] for run in runs) for key in ("p50", "p99", "count")}
        for name in engines
    }
    found["added"] = {key: found["isolated"][key] - found["here"][key] for key in ("p50", "p99")}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each engine in each repeat")
    parser.add_argument("--without-mobilenet", action="store_true", help="do not ask TensorFlow for it")
    args = parser.parse_args()
    facts, rows = report.facts(), []
    if not args.json:
        print(report.line(facts))
        head = f"{'here P50':>10}{'P99':>10}{'isolated P50':>14}{'P99':>10}{'added P50':>11}{'P99':>9}{'copies':>8}"
        print(f"{'µs an inference':62}{head}")
    with tempfile.TemporaryDirectory() as folder:
        for title, loaded in list(bundles(Path(folder), without_mobilenet=args.without_mobilenet)):
            copies = copies_us(loaded)
            for runtime in tflite_runtime.installed():
                for place, policy in PLACES.items():
                    found = compared(loaded, runtime.name, policy, args.repeats, args.seconds)
                    rows.append({"model": title, "runtime": runtime.name, "on": place, "copies_us": copies, **found})
                    if not args.json:
                        _print(rows[-1])
    if args.json:
        print(json.dumps({"host": facts, "rows": rows}))
    return 0


def _print(row: dict[str, Any]) -> None:
    here, isolated, added = (row[key] for key in ("here", "isolated", "added"))
    title = f"{row['model']}, {row['runtime']}, {row['on']}"
    print(
        f"{title:62}{here['p50']:10.1f}{here['p99']:10.1f}{isolated['p50']:14.1f}{isolated['p99']:10.1f}"
        f"{added['p50']:11.1f}{added['p99']:9.1f}{row['copies_us']:8.1f}",
        flush=True,
    )


if __name__ == "__main__":
    report.run(main)

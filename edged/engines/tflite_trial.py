"""The first load of a file that has not run here before, in a process of its own.

`python -m edged.engines.tflite_trial BUNDLE SHA256 RUNTIME DELEGATE THREADS` prints one JSON line: a `Verdict`.
A damaged or hostile model can kill the process that loads it; here that costs one child. The parent is
`edged.trial`, which keeps the verdict so that a later start with the same bundle pays nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from delegates import registry
from edged import bundle
from edged.bundle import Bundle
from edged.clock import NS_PER_S, now_ns
from edged.engines import golden, tflite_runtime
from edged.engines.base import Engine
from edged.engines.tflite import TfliteEngine
from edged.errors import EdgedError

MIN_INVOKES, MAX_INVOKES, BUDGET_S = 3, 200, 1.0


def measure(engine: Engine) -> tuple[float, float]:
    """Return P50 and P99 of `invoke` in µs over 3 to 200 calls or about a second, after one warm-up call."""
    engine.invoke()
    end_ns = now_ns() + int(BUDGET_S * NS_PER_S)
    taken: list[int] = []
    while len(taken) < MIN_INVOKES or (len(taken) < MAX_INVOKES and now_ns() < end_ns):
        started = now_ns()
        engine.invoke()
        taken.append(now_ns() - started)
    p50, p99 = np.percentile(taken, [50, 99]) / 1000
    return float(p50), float(p99)


def trial(loaded: Bundle, runtime: str, delegate: str, threads: int) -> dict[str, object]:
    """Open, check the golden samples, measure. The answer has `ok`, and `reason` when it is false."""
    started = now_ns()
    engine = TfliteEngine(loaded, tflite_runtime.by_name(runtime), registry.create(delegate), threads)
    load_ms = (now_ns() - started) / 1e6
    samples = loaded.golden()
    wrong = None if samples is None else golden.disagreement(engine, loaded, samples)
    if wrong is not None:
        return {"ok": False, "reason": wrong}
    p50, p99 = measure(engine)
    return {"ok": True, "reason": "", "p50_us": round(p50, 1), "p99_us": round(p99, 1), "load_ms": round(load_ms, 1)}


def main(argv: list[str]) -> int:
    """Run one trial; the verdict goes to standard output, also when the model or the runtime refuses."""
    path, sha256, runtime, delegate, threads = argv
    try:
        loaded = bundle.read(Path(path))
        if loaded.model_sha256 != sha256:
            verdict: dict[str, object] = {"ok": False, "reason": "the bundle changed while it was being tried"}
        else:
            verdict = trial(loaded, runtime, delegate, int(threads))
    except (EdgedError, RuntimeError, ValueError, OSError, MemoryError, SystemError) as exc:
        verdict = {"ok": False, "reason": str(exc) or type(exc).__name__}
    sys.stdout.write(json.dumps(verdict) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

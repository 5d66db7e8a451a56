"""A failover engine with everything around it scripted, and the ways its delegate can fail."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
from support import tinymodel
from support.engines import Reopener, ScriptedDelegate, ScriptedEngine

from edged import bundle
from edged.bundle import Bundle, Golden
from edged.config import FailoverConfig
from edged.engines.base import PROBED
from edged.engines.failover import FailoverEngine

RULES = FailoverConfig(hang_floor_ms=20, recheck_s=0, probes=3, backoff_s=0.1, backoff_max_s=0.4)
X = np.array([[1.5, -2.0, 0.25]], np.float32)


def write(path: Path, *, golden: bool = True) -> Bundle:
    """A bundle of y = 2x, with four golden samples by numpy."""
    manifest = bundle.Manifest(
        1, "m", 4, {}, "serving_default", (tinymodel.spec("x", (1, 3)),), (tinymodel.spec("y", (1, 3)),)
    )
    x = np.arange(1, 13, dtype=np.float32).reshape(4, 1, 3)
    files = {bundle.MODEL: b"not loaded here"}
    if golden:
        files[bundle.GOLDEN] = Golden({"x": x}, {"y": 2 * x}, {"y": 2 * x}, {"y": 1e-6}).to_bytes()
    bundle.write(path, manifest, files)
    return bundle.read(path)


class Served:
    """A failover engine with everything scripted around it; calls are made as the worker makes them."""

    def __init__(self, directory: Path, *, golden: bool = True, rules: FailoverConfig = RULES) -> None:
        self.bundle, self.rules = write(directory / "b", golden=golden), rules
        self.npu, self.cpu, self.reopen = ScriptedDelegate(), ScriptedEngine(), Reopener()
        self.changes = threading.Semaphore(0)
        self.engine: FailoverEngine | None = None

    def open(
        self, *, primary: bool = True, stand_in: bool = True, why: str = "", p99_us: float | None = 100.0,
        first_ms: float | None = None,
    ) -> FailoverEngine:  # fmt: skip
        self.engine = FailoverEngine(
            self.npu if primary else None, self.cpu if stand_in else None, self.reopen, self.bundle, self.rules,
            self.changes.release, "external:libnpu.so", why, p99_us=p99_us,
            first_ms=first_ms,
        )  # fmt: skip
        return self.engine

    def ask(self, x: np.ndarray = X) -> np.ndarray:
        assert self.engine is not None
        self.engine.inputs[0][...] = x
        self.engine.invoke()
        return self.engine.outputs[0].copy()

    def news(self) -> str:
        """Wait for what the next probe finds; return what is told of it."""
        assert self.engine is not None
        before = self.engine.info
        while self.engine.info is before or self.engine.info.degraded.endswith(PROBED):
            assert self.changes.acquire(timeout=10), self.engine.info.degraded
            self.engine.idle()
        return self.engine.info.degraded

    def back(self) -> None:
        """Wait until the delegate serves again."""
        assert self.engine is not None
        while self.engine.info.degraded:
            assert self.changes.acquire(timeout=10), self.engine.info.degraded
            self.engine.idle()


def lose(engine: ScriptedDelegate) -> None:
    engine.lost = "was killed by SIGSEGV"


def refuse(engine: ScriptedDelegate) -> None:
    engine.raises = RuntimeError("Node 4 failed to invoke")


def answer_nan(engine: ScriptedDelegate) -> None:
    engine.nan_at = 1


def hang(engine: ScriptedDelegate) -> None:
    engine.hang.clear()


FAILURES: dict[str, tuple[Callable[[ScriptedDelegate], None], str]] = {
    "crash": (lose, ": was killed by SIGSEGV; "),
    "error": (refuse, ": Node 4 failed to invoke"),
    "NaN": (answer_nan, ": output 'y': 1 of 3 values are not finite"),
    "hang": (hang, ": gave no answer within "),
}

"""What the fault tests share: requests by the hundred, each with its own right answer, and what a process holds."""

from __future__ import annotations

import concurrent.futures
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
from support.daemons import DEVICE, DaemonProcess
from support.tinymodel import dense_expected
from support.watcher import Watcher

from edged.client import Client, Result
from edged.errors import RequestError

LONG_MS = 60_000
DENSE = {"name": "dense", "bundle": "dense", "queue": {"max_requests": 2000}}
WIDE = {"name": "wide", "bundle": "wide", "queue": {"max_requests": 2000}, "deadline_ms": LONG_MS}
# Daemons as `edged run` makes them, but for one thing each.
AS_USUAL = """
import signal, sys, time
from pathlib import Path
from edged import config
from edged.daemon import Daemon
from edged.engines.tflite import TfliteEngine
from edged.transports import open_transport
loaded, options = config.load(Path(sys.argv[1])), {{}}
{change}
daemon = Daemon(loaded, open_transport(loaded.broker.url, client_id=loaded.client_id, **options))
signal.signal(signal.SIGTERM, lambda *_: daemon.request_stop())
sys.exit(0 if daemon.run() else 1)
"""

# One for all daemons here: what a model runs best on is found out once.
STATE = tempfile.TemporaryDirectory(prefix="edged-faults-")


def serving(*models: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A configuration with these models on the CPU."""
    chosen = [{"delegates": ["cpu"], **model} for model in models]
    return {"models": chosen, "state_dir": STATE.name, **more}


class ChangedDaemon(DaemonProcess):
    """See `AS_USUAL`."""

    def __init__(self, directory: Path, port: int, change: str, model: dict[str, Any] = DENSE) -> None:
        self._change = change
        super().__init__(directory, port, serving({**model, "warmup": 0}))

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", AS_USUAL.format(change=self._change), str(self.config)]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=self.config.parent)


class Asked:
    """Many requests of one client, not waited for. `dense`: each has an input of its own, so that answers cannot be
    taken for another's; any other model is sent the same three bytes of a float."""

    def __init__(
        self, client: Client, count: int, *, model: str = "dense", device: str = DEVICE, first: int = 0
    ) -> None:
        self.inputs = [np.array([[n, -n / 2, 1 / (n + 1)]], np.float32) for n in range(first, first + count)]
        wide = np.array([3.0], np.float32)
        self.model = model
        self.futures: list[Future[Result]] = [
            client.infer_async(device, model, x if model == "dense" else wide, deadline_ms=LONG_MS, codec="raw")
            for x in self.inputs
        ]

    def done(self) -> int:
        """How many have ended."""
        return sum(future.done() for future in self.futures)

    def outcome(self, timeout_s: float = 60.0) -> Counter[str]:
        """Wait for all; returns how many were answered rightly (`ok`), wrongly, or with which error."""
        concurrent.futures.wait(self.futures, timeout_s)
        return Counter(self._one(number) for number in range(len(self.futures)))

    def _one(self, number: int) -> str:
        future = self.futures[number]
        if not future.done():
            return "open"
        error = future.exception()
        if isinstance(error, RequestError):
            return error.code.value
        result = future.result()
        y = result.outputs["y"] if "y" in result.outputs else np.frombuffer(result.payload, np.float32)  # MQTT 3.1.1
        expected = dense_expected(self.inputs[number]) if self.model == "dense" else np.full(y.shape, 3.0, np.float32)
        return "ok" if np.allclose(y.ravel(), expected.ravel(), rtol=1e-6) else "wrong"


def metrics(port: int, device: str = DEVICE, *, after: float = 0.0) -> dict[str, Any]:
    """The next metrics message; after: seconds to let pass first, so that what just happened is in it."""
    time.sleep(after)
    with Watcher(port, f"edged/v1/dev/{device}/metrics") as watcher:
        found: dict[str, Any] = json.loads(watcher.get().payload)
        return found


def held(pid: int) -> tuple[int, int]:
    """How many threads and descriptors a process has."""
    return len(list(Path(f"/proc/{pid}/task").iterdir())), len(list(Path(f"/proc/{pid}/fd").iterdir()))


def answered_once(client: Client, count: int) -> bool:
    """Whether the client counts `count` answers and nothing open, lost or cancelled."""
    stats = client.stats()
    return stats["answered"] == count and not any(stats[name] for name in ("lost", "cancelled", "refused"))

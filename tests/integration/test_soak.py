"""A minute under steady load: nothing is lost, and nothing grows."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from support import tinymodel
from support.brokers import mosquitto
from support.daemons import DEVICE, DaemonProcess

RATE, SECONDS = 150, 60
SETTLED_S = 20.0  # the reply memory is full by then, and the heap as large as it gets
MIB = 1 << 20


def measured(port: int, pid: int) -> dict[str, Any]:
    """What `edged bench` says of one run against the device."""
    command = [sys.executable, "-m", "edged", "bench", "--broker", f"mqtt://127.0.0.1:{port}", "--device", DEVICE]
    command += ["--model", "m", "--rate", str(RATE), "--duration", f"{SECONDS}s", "--qos", "1", "--pid", str(pid)]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False, timeout=150)
    assert done.returncode == 0, done.stderr
    run: dict[str, Any] = json.loads(done.stdout)["runs"][0]
    return run


def test_a_minute_of_load_leaves_nothing_behind(tmp_path: Path) -> None:
    """Of 9,000 requests each is answered once, within its deadline; memory, threads and descriptors stay."""
    config = {
        "models": [{"name": "m", "bundle": str(tinymodel.write_add_bundle(tmp_path / "m", 16))}],
        "replies": {"memory_bytes": MIB},
    }
    with mosquitto() as broker, DaemonProcess(tmp_path / "d", broker.port, config) as daemon:
        daemon.ready()
        run = measured(broker.port, daemon.process.pid)
    lost = {name: run[name] for name in ("errors", "missing", "unsent", "doubled", "unfinished")}
    assert lost == {"errors": {}, "missing": 0, "unsent": 0, "doubled": 0, "unfinished": 0}
    assert run["ok"] == RATE * SECONDS
    seen = [sample for sample in run["process"]["samples"] if sample["at_s"] >= SETTLED_S]
    assert len(seen) > SECONDS / 2
    half = len(seen) // 2
    early, late = (statistics.median(s["rss_bytes"] for s in part) for part in (seen[:half], seen[half:]))
    assert late - early < MIB
    assert {(sample["threads"], sample["descriptors"]) for sample in seen[-5:]} == {
        (sample["threads"], sample["descriptors"]) for sample in seen[:5]
    }
    # Of seconds, not of requests: a busy machine spoils some of them, a drift all of the later ones.
    p50 = [second["p50_ms"] for second in run["timeline"] if second["n"]]
    assert statistics.median(p50[-20:]) < 2 * statistics.median(p50[:20])

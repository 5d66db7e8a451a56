"""What the daemon costs before the first request: no module it does not need, little more memory than a bare script."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import barescript, tinymodel
from support.daemons import DaemonProcess
from support.memory import rss_kib
from support.watcher import Watcher

from edged.broker import EmbeddedBroker
from edged.engines.tflite_runtime import Runtime

UNWANTED = ("tensorflow", "keras", "asyncio", "starlette", "uvicorn", "fastapi", "flask", "importlib.metadata", "PIL")
MOST_TIMES_THE_MEMORY = 1.15


@pytest.fixture
def daemon(
    mosquitto: EmbeddedBroker, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DaemonProcess]:
    """A daemon whose bundle is known here and whose bytecode is kept, as an installed one's is: it was started once."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    tinymodel.write_dense_bundle(tmp_path / "dense")
    models = [{"name": "dense", "bundle": "dense", "runtime": runtime.name}]
    with DaemonProcess(tmp_path, mosquitto.port, {"models": models}) as daemon:
        daemon.ready()
        daemon.stop()
        yield daemon


def test_idle_memory_is_near_a_bare_scripts(daemon: DaemonProcess, runtime: Runtime) -> None:
    """Resident memory side by side, children counted, medians of three interleaved pairs."""
    ratios = []
    model = daemon.config.parent / "dense" / "model.tflite"
    script = barescript.command(runtime, daemon.config, model, daemon.port)
    for _ in range(3):
        daemon.restart()
        daemon.ready()
        with Watcher(daemon.port, barescript.TOPIC) as watcher, subprocess.Popen(script) as bare:
            watcher.get(timeout=30)
            time.sleep(0.5)
            ratios.append(rss_kib(daemon.process.pid) / rss_kib(bare.pid))
            bare.kill()
        daemon.stop()
    print(f"idle memory on {runtime.name}: {statistics.median(ratios):.3f} times the bare script's", file=sys.stderr)
    assert statistics.median(ratios) <= MOST_TIMES_THE_MEMORY


def test_the_daemon_imports_nothing_it_does_not_need(daemon: DaemonProcess) -> None:
    """`-X importtime` lists every module imported until ready and after a stop."""
    command = [sys.executable, "-X", "importtime", "-m", "edged", "run", "-c", str(daemon.config)]
    with daemon.log.open("wb") as log:
        daemon.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=daemon.config.parent)
    daemon.ready()
    assert daemon.stop() == 0
    lines = daemon.log.read_text(errors="replace").splitlines()
    modules = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    assert "edged.daemon" in modules
    # An editable install brings importlib.metadata's neighbours in before us; a module of ours never does.
    found = {name for name in modules if name.split(".")[0] in UNWANTED or name in UNWANTED}
    assert not found

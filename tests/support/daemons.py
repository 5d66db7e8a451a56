"""A real daemon: `edged run` as its own process on a generated configuration."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from support.watcher import Watcher

DEVICE = "box"


class DaemonProcess:
    """Starts `python -m edged run`; `ready()` waits for the retained status. Ends it on exit.

    leads: it leads a session of its own, as one started by init does.
    """

    def __init__(self, directory: Path, port: int, config: dict[str, Any], *, leads: bool = False) -> None:
        self.leads = leads
        directory.mkdir(parents=True, exist_ok=True)
        self.device = config.get("device", DEVICE)
        broker = {"url": f"mqtt://127.0.0.1:{port}", **config.pop("broker", {})}
        body = {"device": DEVICE, "broker": broker, "metrics": {"interval_s": 0.5}, "state_dir": "state", **config}
        self.config, self.port = directory / "edged.yaml", port
        self.config.write_text(json.dumps(body))  # JSON is YAML
        self.log = directory / "daemon.log"
        self.process = self._spawn()

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "edged", "run", "-c", str(self.config)]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.config.parent, start_new_session=self.leads
            )

    def restart(self) -> None:
        """Start another process on the same configuration."""
        self.process = self._spawn()

    def ready(self, timeout: float = 30.0) -> dict[str, Any]:
        """Wait for `ready`; returns the status message."""
        return self.state("ready", timeout)

    def state(self, state: str, timeout: float = 30.0) -> dict[str, Any]:
        """Wait until the retained status says `state`."""
        end, seen = time.monotonic() + timeout, "nothing"
        while time.monotonic() < end:
            with Watcher(self.port, f"edged/v1/dev/{self.device}/status") as watcher:
                while time.monotonic() < end:
                    try:
                        body: dict[str, Any] = json.loads(watcher.get(timeout=1).payload)
                    except Exception:  # noqa: BLE001  # nothing yet: ask again
                        break
                    seen = body["state"]
                    if seen == state:
                        return body
        raise AssertionError(f"state is {seen}, not {state}; log:\n{self.log.read_text()}")

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(10)

    def stop(self, timeout: float = 15.0) -> int:
        """SIGTERM; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def __enter__(self) -> DaemonProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()

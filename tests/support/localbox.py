"""A daemon in a process of its own with local producers alone: no broker, so that nothing else moves."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from support import tinymodel

_SCRIPT = """
import logging, signal, sys
from pathlib import Path
from edged import config
from edged.daemon import Daemon
from edged.errors import EdgedError
from edged.transports import open_transport
signal.signal(signal.SIGHUP, signal.SIG_IGN)
logging.basicConfig(level="INFO")
try:
    daemon = Daemon(config.load(Path(sys.argv[1])), open_transport("loopback://box"))
    signal.signal(signal.SIGTERM, lambda *_: daemon.request_stop())
    daemon.run()
except EdgedError as exc:
    sys.exit(f"{exc}")
"""


class LocalBox:
    """Starts it at once; a request made meanwhile waits. Models: `dense` (numpy checks it) and those that are given.

    The directory is a short one: the path of a Unix socket has 107 bytes. What is measured of the models is kept where
    $XDG_STATE_HOME says, for the next daemon.
    """

    def __init__(self, models: dict[str, Path] | None = None, **local: Any) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="edged", dir="/tmp"))
        self.socket, self.log = self.directory / "edged.sock", self.directory / "log"
        found = {"dense": tinymodel.write_dense_bundle(self.directory / "dense"), **(models or {})}
        body = {
            "device": "box", "broker": {"url": "mqtt://nowhere"},
            "models": [{"name": name, "bundle": str(path), "delegates": ["cpu"]} for name, path in found.items()],
            "local": {"socket": "edged.sock", **local},
        }  # fmt: skip
        self.config = self.directory / "edged.yaml"
        self.config.write_text(json.dumps(body))  # JSON is YAML
        self.process = self.spawn()

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start another process on the same configuration."""
        with self.log.open("ab") as log:
            return subprocess.Popen([sys.executable, "-c", _SCRIPT, str(self.config)], stdout=log, stderr=log)

    def restart(self) -> None:
        """Start it again."""
        self.process = self.spawn()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(15)

    def __enter__(self) -> LocalBox:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.directory)

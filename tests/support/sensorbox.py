"""A daemon whose sensor is on the box itself, so that windows fill while there is no network.

`SensorBox` starts it as a process (this module as a program). Each order on its standard input is `first last`: these
samples are fed; the answer, once all of them are answered, is the daemon's counters as a line of JSON.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

TOPIC, WIDTH = "sensors/a/pair", 2


def sample(number: int) -> list[float]:
    """The values of one sample; the model answers with the double."""
    return [float(number), -0.5 * number]


class SensorBox:
    """A model `add` (1 x 2 values, doubled), and a stream `pair` of windows of one sample, kept in the outbox."""

    def __init__(self, directory: Path, port: int, *, file_limit: int = 0, **outbox: Any) -> None:
        stream = {
            "name": "pair", "topic": "sensors/+/pair", "key_level": 1, "decode": "raw", "fields": ["a", "b"],
            "window": {"length": 1, "hop": 1}, "model": "add", "store": True, "deadline_ms": 60_000,
        }  # fmt: skip
        body = {
            "device": "box", "broker": {"url": f"mqtt://127.0.0.1:{port}"}, "state_dir": "state",
            "models": [{"name": "add", "bundle": "add", "delegates": ["cpu"], "deadline_ms": 60_000}],
            "streams": [stream], "outbox": outbox, "metrics": {"interval_s": 0.5},
        }  # fmt: skip
        self._command = [sys.executable, "-m", "support.sensorbox", str(directory / "edged.yaml"), str(file_limit)]
        self._environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        (directory / "edged.yaml").write_text(json.dumps(body))
        self.log = directory / "daemon.log"
        self.start()

    def start(self) -> None:
        """Start it, again after a kill."""
        pipe, folder = subprocess.PIPE, self.log.parent
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=pipe, stdout=pipe, stderr=log, text=True, cwd=folder, env=self._environment
            )

    def feed(self, first: int, last: int) -> dict[str, Any]:
        """Feed the samples from `first` to `last` - 1; returns the outbox's counters once all are answered."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(first, last, file=self._process.stdin, flush=True)
        said = self._process.stdout.readline()
        assert said, self.log.read_text()
        counters: dict[str, Any] = json.loads(said)
        return counters

    def outbox(self) -> dict[str, Any]:
        """The outbox's counters of now."""
        return self.feed(0, 0)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._close()

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(20)
        self._close()
        return self._process.returncode

    def _close(self) -> None:
        self._process.wait(20)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> SensorBox:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._close()


def main(path: str, file_limit: int) -> None:
    """Run the daemon until SIGTERM."""
    import numpy as np  # of the child alone, as the rest

    from edged import config as configuration
    from edged.clock import now_ns
    from edged.daemon import Daemon
    from edged.transports.base import Message
    from edged.transports.mqtt import open_url

    if file_limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, resource.RLIM_INFINITY))
    config = configuration.load(Path(path))
    # The proxy that stands for a dead network accepts and closes: an automatic choice takes that for a 3.1.1 broker.
    transport = open_url(
        config.broker.url, client_id=config.client_id, protocol="5", reconnect_min_s=0.05, reconnect_max_s=0.1
    )
    daemon = Daemon(config, transport)
    worker, stream = daemon._parts.workers["add"], daemon._parts.streams[0]

    def feed() -> None:
        for order in sys.stdin:
            first, last = map(int, order.split())
            for number in range(first, last):
                while worker.admission.requests > 30:  # of the 64 that may wait
                    time.sleep(0.0002)
                payload = np.array(sample(number), "<f4").tobytes()
                daemon._on_message(Message(TOPIC, payload, received_ns=now_ns()))
            while (told := stream.stats())["answered"] + told["failed"] < told["windows"]:
                time.sleep(0.001)
            outbox = daemon._storing.facts()["outbox"]
            print(json.dumps({**outbox, **{f"stream_{k}": v for k, v in told.items()}}), flush=True)  # type: ignore[dict-item]

    threading.Thread(target=feed, daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: daemon.request_stop())
    daemon.run()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

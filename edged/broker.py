"""A real broker in a child process, on loopback, for the demo, tests and benchmarks.

`mosquitto` where it is installed, else rumqttd out of the `iotcore` wheel. Nothing is left behind: configuration
and log live in a temporary directory.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from edged import broker_iotcore
from edged.clock import NS_PER_S, now_ns
from edged.errors import UnavailableError, UsageError

KINDS = ("auto", "mosquitto", "iotcore")
_START_S = 15.0
_STOP_S = 3.0
_POLL_S = 0.02
_PORTS = (15_000, 32_000)
_TRIES = 3  # a free port may be taken between looking and listening
_MOSQUITTO = ("listener {port} 127.0.0.1", "allow_anonymous true", "set_tcp_nodelay true", "persistence false")
_INSTALL = "apt-get install mosquitto, or: pip install 'edged[broker]'"


def find_mosquitto() -> str | None:
    """Return the path of the mosquitto broker; Debian keeps it where a user's PATH does not look."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


class EmbeddedBroker:
    """A broker that runs inside a `with` block.

    kind: "auto", "mosquitto" or "iotcore". lines: mosquitto configuration lines. One that names an option of
    `_MOSQUITTO` replaces that option, except for a listener, which is added to the one on loopback.
    max_payload_bytes: iotcore's limit for one message.

    iotcore has a port for each version, and its 3.1.1 side (rumqttd 0.20) cuts off a client to which it should deliver
    a message with MQTT 5 properties: publish without them what 3.1.1 clients are to hear.

    Attributes once started: `kind`, `version`, `pid`, `url_v5` and `url_v3` (the same for mosquitto), `port` (of
    `url_v5`), `log` (a file).
    """

    def __init__(
        self, kind: str = "auto", *, lines: Sequence[str] = (), max_payload_bytes: int = 16 * 1024 * 1024
    ) -> None:
        if kind not in KINDS:
            raise UsageError("broker", f"unknown kind {kind!r}", f"one of {', '.join(KINDS)}")
        self.kind, self._lines, self._max_payload = kind, tuple(lines), max_payload_bytes
        self.version = ""
        self.port = self._port_v3 = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._directory = Path()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> EmbeddedBroker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url_v5(self) -> str:
        """The URL for MQTT 5 clients."""
        return f"mqtt://127.0.0.1:{self.port}"

    @property
    def url_v3(self) -> str:
        """The URL for MQTT 3.1.1 clients."""
        return f"mqtt://127.0.0.1:{self._port_v3}"

    @property
    def pid(self) -> int:
        """The process id of the broker."""
        return self._running().pid

    @property
    def log(self) -> Path:
        """The broker's standard output and error."""
        return self._directory / "broker.log"

    def start(self) -> EmbeddedBroker:
        """Start it and return when it accepts connections.

        Raises UnavailableError when there is no broker to start, or it does not come up.
        """
        self._choose()
        self._directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="edged-broker-")))
        for left in reversed(range(_TRIES)):
            self.port, self._port_v3 = _free_ports()
            if self.kind == "mosquitto":
                self._port_v3 = self.port
            if self._launch():
                return self
            if left and "in use" in self._log_tail():
                continue
            tail = self._log_tail()
            self.stop()
            raise UnavailableError("broker", f"{self.kind} did not start: {tail or 'no output'}")
        raise AssertionError  # pragma: no cover (the loop returns or raises)

    def stop(self) -> None:
        """End the broker and remove its files; a second call does nothing."""
        self._end(signal.SIGTERM)
        self._stack.close()

    def kill(self) -> None:
        """End it at once, as a crash would (SIGKILL); `restart` brings it back."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop it, if it runs, and start it again on the same ports. Retained messages and sessions are lost."""
        self._end(signal.SIGTERM)
        if not self._launch():
            raise UnavailableError("broker", f"{self.kind} did not come back: {self._log_tail()}")

    def suspend(self) -> None:
        """Stall it: connections stay open and nothing is read (SIGSTOP)."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a suspended broker go on (SIGCONT)."""
        self._running().send_signal(signal.SIGCONT)

    def _choose(self) -> None:
        mosquitto, wheel = find_mosquitto(), find_spec("iotcore") is not None
        if self.kind == "auto":
            self.kind = "mosquitto" if mosquitto else "iotcore"
        if not (mosquitto if self.kind == "mosquitto" else wheel):
            raise UnavailableError("broker", f"no {self.kind} here", _INSTALL)
        self.version = _mosquitto_version(mosquitto) if self.kind == "mosquitto" and mosquitto else _wheel_version()

    def _launch(self) -> bool:
        """Start the process; False when it ended or does not listen in time."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.PIPE, stdout=log, stderr=log, env=_environment()
            )
        deadline = now_ns() + int(_START_S * NS_PER_S)
        while self._process.poll() is None and now_ns() < deadline:
            if all(_listens(port) for port in {self.port, self._port_v3}):
                return True
            time.sleep(_POLL_S)
        self._end(signal.SIGKILL)
        return False

    def _command(self) -> list[str]:
        if self.kind == "mosquitto":
            path = self._directory / "mosquitto.conf"
            path.write_text("\n".join(self._mosquitto_lines()) + "\n")
            return [find_mosquitto() or "mosquitto", "-c", str(path)]
        path = self._directory / "rumqttd.toml"
        path.write_text(broker_iotcore.config(self._port_v3, self.port, self._max_payload))
        return [sys.executable, "-m", "edged.broker_iotcore", str(path)]

    def _mosquitto_lines(self) -> Iterator[str]:
        given = {line.split()[0] for line in self._lines if line.strip()}
        yield from (line.format(port=self.port) for line in _MOSQUITTO if line.split()[0] not in given - {"listener"})
        if os.geteuid() == 0 and "user" not in given:
            yield "user root"  # else it becomes `mosquitto`, which may not read our temporary files
        yield from self._lines

    def _end(self, signal_number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal_number)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise UnavailableError("broker", "it is not running")
        return self._process

    def _log_tail(self) -> str:
        return " | ".join(self.log.read_text(errors="replace").splitlines()[-3:]) if self.log.exists() else ""


def _free_ports() -> tuple[int, int]:
    """Return two ports nobody listens on, below those that the kernel gives to outgoing connections.

    One of those may be taken while the broker is down between `kill` and `restart`, even by a client that tries to
    reach the broker on it.
    """
    free: list[int] = []
    while len(free) < 2:  # noqa: PLR2004 (one a version)
        port = random.randrange(*_PORTS)  # noqa: S311 (no secret)
        if port not in free and _bindable(port):
            free.append(port)
    return free[0], free[1]


def _bindable(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=0.5):
            return True
    except OSError:
        return False


def _environment() -> dict[str, str]:
    """Return our environment with this package importable for the child, wherever it was started from."""
    home = str(Path(__file__).parent.parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH", ""))))}


def _mosquitto_version(path: str) -> str:
    # `mosquitto -h` exits with 3 and begins "mosquitto version 2.0.11".
    said = subprocess.run([path, "-h"], capture_output=True, text=True, check=False)
    words = said.stdout.split()
    return words[2] if words[1:2] == ["version"] else "unknown"


def _wheel_version() -> str:
    from importlib.metadata import version  # noqa: PLC0415 (slow, and only this broker needs it)

    return version("iotcore")

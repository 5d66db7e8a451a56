"""Real brokers, a TCP proxy that breaks connections, and short waits, for tests that cross a socket."""

from __future__ import annotations

import contextlib
import selectors
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import require

from edged.broker import EmbeddedBroker, find_mosquitto


def require_mosquitto(*tools: str) -> None:
    """Skip (in CI: fail) without mosquitto and the named client tools, such as `mosquitto_sub`."""
    if find_mosquitto() is None:
        require.missing("mosquitto")
    require.programs(*tools)


def require_iotcore() -> None:
    """Skip (in CI: fail) without the iotcore wheel."""
    require.packages("iotcore")


@contextlib.contextmanager
def mosquitto(*lines: str, tools: tuple[str, ...] = ()) -> Iterator[EmbeddedBroker]:
    """A running mosquitto with extra configuration lines."""
    require_mosquitto(*tools)
    with EmbeddedBroker("mosquitto", lines=lines) as broker:
        yield broker


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def tls_files(directory: Path) -> dict[str, Path]:
    """Make a CA and certificates for the server (127.0.0.1) and one client, `press-07`; skip without openssl."""
    require.programs("openssl")
    usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
    _openssl(
        directory, "req", "-x509", *_NEW_KEY, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test-ca", *usage
    )
    issue(directory, "server", "broker", "subjectAltName=IP:127.0.0.1")
    issue(directory, "client", "press-07")
    return {path.name: path for path in directory.iterdir()}


def issue(directory: Path, name: str, subject: str, extension: str = "extendedKeyUsage=clientAuth") -> None:
    """Make `<name>.pem` and `<name>.key`, signed by the directory's CA."""
    (directory / f"{name}.ext").write_text(f"authorityKeyIdentifier=keyid\n{extension}\n")
    own = ("-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={subject}")
    _openssl(directory, "req", "-new", *_NEW_KEY, *own)
    sign = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", f"{name}.ext")
    _openssl(directory, "x509", "-req", "-in", f"{name}.csr", *sign, "-out", f"{name}.pem", "-days", "2")


def _openssl(directory: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)


def eventually(check: Callable[[], object], what: str, timeout_s: float = 10.0) -> None:
    """Wait until `check()` is true; fails with `what` when it never is."""
    deadline = time.monotonic() + timeout_s
    while not check():
        if time.monotonic() > deadline:
            pytest.fail(f"never happened: {what}")
        time.sleep(0.01)


def heard(
    broker: EmbeddedBroker, filter_: str, format_: str = "%p", *, count: int = 1, version: str = "5"
) -> list[str]:
    """Return what mosquitto_sub, an independent client, hears (also retained messages), one line a message."""
    command = ["mosquitto_sub", "-V", version, "-p", str(broker.port), "-q", "1", "-t", filter_]
    command += ["-C", str(count), "-W", "5", "-F", format_]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


class FaultProxy:
    """A TCP proxy on loopback that can cut connections, refuse new ones, or pass nothing on while they stay open.

    alter: what is done to the bytes of the one who connected before they are passed on. accepted: connections so far.
    """

    def __init__(self, target_port: int, alter: Callable[[], Callable[[bytes], bytes]] | None = None) -> None:
        self._target, self._alter = target_port, alter or (lambda: lambda data: data)
        self.accepted = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._flowing = threading.Event()
        self._flowing.set()
        self._stranded = set[socket.socket]()
        self._refusing = self._closed = False
        threading.Thread(target=self._accept, name="fault-proxy", daemon=True).start()

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._closed = True
        self.unblock()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Close every connection now, both ways; new ones are accepted."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def refuse(self, *, refusing: bool = True) -> None:
        """Close new connections as soon as they come, or no longer."""
        self._refusing = refusing

    def blackhole(self) -> None:
        """Pass nothing on: both sides believe in a connection that is dead (half open)."""
        self._flowing.clear()

    def strand(self) -> None:
        """Leave the connections there are half open for good; new ones work."""
        with self._lock:
            self._stranded.update(end for pair in self._pairs for end in pair)

    def unblock(self) -> None:
        """Pass on again, also what was held back."""
        self._flowing.set()

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _address = self._listener.accept()
            except OSError:
                return
            if self._refusing or self._closed:
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            with self._lock:
                self._pairs.append((near, far))
                self.accepted += 1
            threading.Thread(target=self._pump, args=(near, far), daemon=True).start()

    def _pump(self, near: socket.socket, far: socket.socket) -> None:
        with near, far, selectors.DefaultSelector() as selector:
            selector.register(near, selectors.EVENT_READ, (far, self._alter()))
            selector.register(far, selectors.EVENT_READ, (near, lambda data: data))
            with contextlib.suppress(OSError):
                while self._pass_on(selector):
                    pass

    def _pass_on(self, selector: selectors.BaseSelector) -> bool:
        for key, _events in selector.select(timeout=1.0):
            self._flowing.wait()
            if key.fileobj in self._stranded:
                time.sleep(0.05)
                continue
            data = key.fileobj.recv(65536)  # type: ignore[union-attr]  # registered sockets only
            if not data:
                return False
            other, alter = key.data
            other.sendall(alter(data))
        return not self._closed


class OneShotServer:
    """A server that answers each connection's first bytes with fixed bytes (or none), then closes it."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.seen: list[bytes] = []
        threading.Thread(target=self._serve, name="one-shot-server", daemon=True).start()

    def __enter__(self) -> OneShotServer:
        return self

    def __exit__(self, *_exception: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _address = self._listener.accept()
            except OSError:
                return
            with connection:
                self.seen.append(connection.recv(65536))
                connection.sendall(self._answer(self.seen[-1]))

"""One page over HTTP, on one thread, whatever connects: each connection has a few seconds and a few kilobytes for its
request, and one that comes while all places are taken gets that of the oldest. It is closed after one answer.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import selectors
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from edged.clock import NS_PER_S, now_ns
from edged.errors import UnavailableError
from edged.prometheus.exposition import CONTENT_TYPE

log = logging.getLogger(__name__)

PATH = "/metrics"
PLACES = 16  # connections at a time
MAX_HEAD = 8192  # bytes of a request
PATIENCE_NS = 5 * NS_PER_S  # for a request to come and its answer to go
_CHUNK = 65_536
_WAITING = 128  # connections that the kernel holds until they are accepted
_PAUSE_NS = NS_PER_S // 2  # after a connection that could not be taken: too many descriptors are open


@dataclass(eq=False)
class _Connection:
    """One scraper: what came of its request, and what is left of the answer (empty until there is one)."""

    socket: socket.socket
    end_ns: int
    came: bytearray = field(default_factory=bytearray)
    left: memoryview = field(default_factory=lambda: memoryview(b""))


class Endpoint:
    """Serves what `page` returns, called on its thread. Listens from the beginning, answers from `start` on.

    Raises UnavailableError when the address cannot be had.
    """

    def __init__(self, host: str, port: int, page: Callable[[], bytes]) -> None:
        self._page = page
        self._listener = _listening(host, port)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._wake, self._woken = socket.socketpair()
        self._connections: list[_Connection] = []
        self._pause_end_ns = 0  # 0: it listens
        self._thread = threading.Thread(target=self._run, name="edged-metrics", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Close everything and end the thread."""
        self._wake.close()
        if self._thread.ident is not None:
            self._thread.join()
        self._listener.close()
        self._woken.close()

    def _run(self) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(self._woken, selectors.EVENT_READ)
            ready.register(self._listener, selectors.EVENT_READ)
            while True:
                events = ready.select(1.0 if self._connections or self._pause_end_ns else None)
                if any(key.fileobj is self._woken for key, _ in events):
                    break
                for key, _ in events:
                    self._turn(ready, key.data)
                self._drop_late(ready)
                self._listen_again(ready)
            for connection in list(self._connections):
                self._close(ready, connection)

    def _turn(self, ready: selectors.BaseSelector, connection: _Connection | None) -> None:
        try:
            if connection is None:
                self._accept(ready)
            elif connection in self._connections and not self._go_on(ready, connection):
                self._close(ready, connection)
        except OSError:  # it went away
            if connection is not None:
                self._close(ready, connection)

    def _accept(self, ready: selectors.BaseSelector) -> None:
        try:
            accepted, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):  # it went away
            return
        except OSError:  # the connection still waits and would wake the thread at once, again and again
            ready.unregister(self._listener)
            self._pause_end_ns = now_ns() + _PAUSE_NS
            return
        accepted.setblocking(False)  # noqa: FBT003  # the library's
        if len(self._connections) >= PLACES:
            self._close(ready, self._connections[0])
        connection = _Connection(accepted, now_ns() + PATIENCE_NS)
        self._connections.append(connection)
        ready.register(accepted, selectors.EVENT_READ, connection)

    def _go_on(self, ready: selectors.BaseSelector, connection: _Connection) -> bool:
        """Read or write as far as it goes; returns whether there is more to come."""
        if not connection.left:
            data = connection.socket.recv(MAX_HEAD)
            connection.came += data
            complete = b"\r\n\r\n" in connection.came or len(connection.came) > MAX_HEAD
            if not data or not complete:
                return bool(data)
            connection.left = memoryview(self._answer(bytes(connection.came)))
            ready.modify(connection.socket, selectors.EVENT_WRITE, connection)
        with contextlib.suppress(BlockingIOError):
            connection.left = connection.left[connection.socket.send(connection.left[:_CHUNK]) :]
        return bool(connection.left)

    def _answer(self, head: bytes) -> bytes:
        if len(head) > MAX_HEAD:
            return _response("431 Request Header Fields Too Large")
        method, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
        target, _, version = rest.partition(" ")
        if not version.startswith("HTTP/1."):
            return _response("400 Bad Request")
        if target.partition("?")[0] != PATH:
            return _response("404 Not Found", f"the figures are at {PATH}\n".encode(), body=method != "HEAD")
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", headers="Allow: GET, HEAD\r\n")
        try:
            page = self._page()
        except Exception:  # top of a request
            log.exception("the figures could not be told")
            return _response("500 Internal Server Error")
        return _response("200 OK", page, CONTENT_TYPE, body=method == "GET")

    def _drop_late(self, ready: selectors.BaseSelector) -> None:
        now = now_ns()
        for connection in [one for one in self._connections if one.end_ns <= now]:
            self._close(ready, connection)

    def _listen_again(self, ready: selectors.BaseSelector) -> None:
        if self._pause_end_ns and now_ns() >= self._pause_end_ns:
            self._pause_end_ns = 0
            ready.register(self._listener, selectors.EVENT_READ)

    def _close(self, ready: selectors.BaseSelector, connection: _Connection) -> None:
        self._connections.remove(connection)
        ready.unregister(connection.socket)
        connection.socket.close()


def is_free(host: str, port: int) -> bool:
    """Whether nobody listens there now; nobody is kept from it meanwhile, and nothing can connect.

    Raises UnavailableError when the address could not be had though nobody did.
    """
    try:
        _bound(host, port).close()
    except UnavailableError as exc:
        if isinstance(exc.__cause__, OSError) and exc.__cause__.errno == errno.EADDRINUSE:
            return False
        raise
    return True


def _listening(host: str, port: int) -> socket.socket:
    made = _bound(host, port)
    try:
        made.listen(_WAITING)
        made.setblocking(False)  # noqa: FBT003  # the library's
    except OSError as exc:
        made.close()
        raise UnavailableError("metrics.prometheus", f"cannot listen on {host}:{port}: {exc.strerror}") from exc
    return made


def _bound(host: str, port: int) -> socket.socket:
    where = f"{host}:{port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
    except OSError as exc:
        raise UnavailableError("metrics.prometheus", f"no address {where}: {exc.strerror}") from exc
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as exc:
        made.close()
        raise UnavailableError("metrics.prometheus", f"cannot listen on {where}: {exc.strerror}") from exc
    return made


def _response(
    status: str, content: bytes = b"", kind: str = "text/plain; charset=utf-8", headers: str = "", *, body: bool = True
) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n{headers}"
    return f"{head}Connection: close\r\n\r\n".encode() + (content if body else b"")

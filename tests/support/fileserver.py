"""An HTTP server on loopback that hands out bytes, well or badly, and remembers what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class FileServer:
    """What it does with the next requests.

    data: the file. statuses: answered first, one a request, instead of it. cut_at: the connection ends after so many
    bytes, once. hang: nothing is answered. leads_to: a Location; endless: with a body that does not end. ranges:
    whether it knows Range. kind: Content-Type. pause_s: between pieces of 1 KiB.
    """

    data: bytes = b""
    statuses: list[int] = field(default_factory=list)
    cut_at: int | None = None
    hang: bool = False
    leads_to: str = ""
    endless: bool = False
    ranges: bool = True
    kind: str = "application/x-tar"
    pause_s: float = 0.0
    asked: list[str] = field(default_factory=list)
    url: str = ""
    released: threading.Event = field(default_factory=threading.Event)


@contextmanager
def file_server(**how: Any) -> Iterator[FileServer]:
    """A server on a free port of 127.0.0.1; `url` leads to its one file."""
    server = FileServer(**how)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:  # http.server's name
            _answer(server, self)
            self.close_connection = True

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    thread = threading.Thread(target=httpd.serve_forever, args=(0.02,))
    thread.start()
    server.url = f"http://127.0.0.1:{httpd.server_address[1]}/har.tar"
    try:
        yield server
    finally:
        server.released.set()
        httpd.shutdown()
        thread.join()
        httpd.server_close()


def _answer(server: FileServer, handler: BaseHTTPRequestHandler) -> None:
    asked = handler.headers.get("Range", "")
    server.asked.append(asked)
    if server.hang:
        server.released.wait(30)
        return
    if server.statuses:
        handler.send_response(server.statuses.pop(0))
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return
    if server.leads_to:
        handler.send_response(302)
        handler.send_header("Location", server.leads_to)
        if not server.endless:
            handler.send_header("Content-Length", "0")
        handler.end_headers()
        if server.endless:
            _send_on(server, handler)
        return
    start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and server.ranges else 0
    _send(server, handler, start)


def _send_on(server: FileServer, handler: BaseHTTPRequestHandler) -> None:
    try:
        while not server.released.is_set():
            handler.wfile.write(b"x" * 65_536)
    except OSError:  # whoever asked is gone
        return


def _send(server: FileServer, handler: BaseHTTPRequestHandler, start: int) -> None:
    rest = server.data[start:]
    handler.send_response(206 if start else 200)
    handler.send_header("Content-Type", server.kind)
    handler.send_header("Content-Length", str(len(rest)))
    handler.end_headers()
    if server.cut_at is not None:
        rest, server.cut_at = rest[: server.cut_at], None
    try:
        if not server.pause_s:
            handler.wfile.write(rest)
            return
        for place in range(0, len(rest), 1024):
            handler.wfile.write(rest[place : place + 1024])
            if server.released.wait(server.pause_s):
                return
    except OSError:  # whoever asked is gone
        return

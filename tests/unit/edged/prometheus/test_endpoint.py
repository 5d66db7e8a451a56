"""The HTTP side: answers over real sockets, and whoever hangs, floods or vanishes holds up nobody else."""

from __future__ import annotations

import errno
import http.client
import re
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from support.brokers import eventually

from edged.clock import now_ns
from edged.errors import ExitCode, UnavailableError
from edged.prometheus import endpoint as module
from edged.prometheus.endpoint import MAX_HEAD, PLACES, Endpoint

PAGE = b"edged_build_info 1\n" * 40_000  # more than a socket holds


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint("127.0.0.1", 0, lambda: PAGE)
    endpoint.start()
    yield endpoint
    endpoint.stop()


def ask(endpoint: Endpoint, method: str = "GET", path: str = "/metrics") -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection(*endpoint.address, timeout=10)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read(), dict(response.getheaders())
    finally:
        connection.close()


def raw(endpoint: Endpoint, data: bytes = b"") -> socket.socket:
    made = socket.create_connection(endpoint.address, timeout=10)
    made.sendall(data)
    return made


def test_the_page_comes_whole_with_its_type(endpoint: Endpoint) -> None:
    """An ordinary client gets every byte, the content type of the text format, and a closed connection."""
    status, body, headers = ask(endpoint)
    assert (status, body) == (200, PAGE)
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert headers["Connection"] == "close"
    assert ask(endpoint, path="/metrics?name=x")[0] == 200


def test_an_address_is_tried_without_taking_it(endpoint: Endpoint) -> None:
    """In use where somebody listens, who goes on; free where nobody does, and still so afterwards; else an error."""
    assert not module.is_free(*endpoint.address)
    assert ask(endpoint)[0] == 200
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert module.is_free("127.0.0.1", port)
    Endpoint("127.0.0.1", port, lambda: PAGE).stop()
    with pytest.raises(UnavailableError, match=r"cannot listen on 203\.0\.113\.7:1024"):
        module.is_free("203.0.113.7", 1024)


def test_head_has_no_body(endpoint: Endpoint) -> None:
    """HEAD tells the length of what GET would send."""
    status, body, headers = ask(endpoint, "HEAD")
    assert (status, body, headers["Content-Length"]) == (200, b"", str(len(PAGE)))


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/", 404), ("GET", "/x", 404), ("POST", "/metrics", 405)]
)
def test_what_is_not_there(endpoint: Endpoint, method: str, path: str, status: int) -> None:
    """Another path is a plain 404, another method a 405."""
    assert ask(endpoint, method, path)[0] == status


@pytest.mark.parametrize(
    "data", [b"nonsense\r\n\r\n", b"\r\n\r\n", b"GET /metrics\r\n\r\n", b"\xff\xfe \x00 x\r\n\r\n"]
)
def test_no_http_is_refused(endpoint: Endpoint, data: bytes) -> None:
    """Anything that is no request of HTTP/1 gets 400, and the next one is served."""
    with raw(endpoint, data) as client:
        assert client.recv(100).startswith(b"HTTP/1.1 400")
    assert ask(endpoint)[0] == 200


def pour(client: socket.socket, data: bytes, pause_s: float = 0.0) -> None:
    """Send it again and again, for ten seconds at most; raises OSError once the other side is gone."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        client.sendall(data)
        time.sleep(pause_s)


GONE = re.compile("reset|Broken pipe", re.IGNORECASE)


def test_a_huge_request_is_cut_off(endpoint: Endpoint) -> None:
    """A header without an end costs no more than `MAX_HEAD` bytes; the connection is closed."""
    with raw(endpoint) as client, pytest.raises(OSError, match=GONE):
        pour(client, b"x: " + b"y" * MAX_HEAD)
    assert ask(endpoint)[0] == 200


def test_hanging_connections_hold_up_nobody(endpoint: Endpoint) -> None:
    """Ten times the places, none of which says a word or reads its answer: a scraper is answered at once."""
    hanging = [raw(endpoint, (b"", b"GET /me", b"GET /metrics HTTP/1.1\r\n\r\n")[n % 3]) for n in range(10 * PLACES)]
    started = time.monotonic()
    assert ask(endpoint)[1] == PAGE
    assert time.monotonic() - started < module.PATIENCE_NS / 1e9
    assert len(endpoint._connections) <= PLACES
    for client in hanging:
        client.close()


def test_a_connection_that_says_nothing_is_closed(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that sends a byte now and then: the time is for the request as a whole."""
    monkeypatch.setattr(module, "PATIENCE_NS", 300_000_000)
    with raw(endpoint) as silent, raw(endpoint) as slow:
        with pytest.raises(OSError, match=GONE):
            pour(slow, b"G", 0.05)
        assert silent.recv(1) == b""
    eventually(lambda: not endpoint._connections, "all are closed")


def test_no_descriptor_left_is_waited_for(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread does not try without pause what cannot succeed, and who waited is served once there is one again."""
    tries = 0

    def full(_listener: socket.socket) -> None:
        nonlocal tries
        tries += 1
        raise OSError(errno.EMFILE, "Too many open files")

    begun_ns = now_ns()
    with monkeypatch.context() as patched:
        patched.setattr(socket.socket, "accept", full)
        with raw(endpoint, b"GET /metrics HTTP/1.1\r\n\r\n") as client:
            eventually(lambda: tries >= 2, "it is tried again")
            assert now_ns() - begun_ns >= module._PAUSE_NS
            assert tries == 2
            patched.undo()
            assert client.recv(100).startswith(b"HTTP/1.1 200")


def test_many_scrapers_at_a_time(endpoint: Endpoint) -> None:
    """As many threads as there are places, ten scrapes each: all whole."""
    found: list[bytes] = []

    def scrape() -> None:
        found.extend(ask(endpoint)[1] for _ in range(10))

    threads = [threading.Thread(target=scrape) for _ in range(PLACES // 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [PAGE] * 10 * len(threads)


def test_a_page_that_fails_is_a_500(caplog: pytest.LogCaptureFixture) -> None:
    """A fault of ours is logged and answered, and the thread goes on."""
    pages: list[object] = [RuntimeError("boom"), PAGE]

    def page() -> bytes:
        made = pages.pop(0)
        if isinstance(made, Exception):
            raise made
        assert isinstance(made, bytes)
        return made

    endpoint = Endpoint("127.0.0.1", 0, page)
    endpoint.start()
    try:
        assert [ask(endpoint)[0], ask(endpoint)[0]] == [500, 200]
    finally:
        endpoint.stop()
    assert "boom" in caplog.text


def test_an_address_in_use_is_told(endpoint: Endpoint) -> None:
    """One line that names the address, with the exit code of something that is not there."""
    port = endpoint.address[1]
    with pytest.raises(UnavailableError, match=f"metrics.prometheus: cannot listen on 127.0.0.1:{port}") as caught:
        Endpoint("127.0.0.1", port, lambda: b"")
    assert caught.value.exit_code == ExitCode.UNAVAILABLE


def test_no_such_host_is_told() -> None:
    """A name that nobody knows is told as such."""
    with pytest.raises(UnavailableError, match=r"no address nowhere\.invalid:1"):
        Endpoint("nowhere.invalid", 1, lambda: b"")


def test_stopped_before_it_was_started() -> None:
    """A daemon that fails while it starts closes it all the same."""
    Endpoint("127.0.0.1", 0, lambda: b"").stop()

"""sd_notify words, read from a real datagram socket."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edged.sdnotify import Notifier


@pytest.fixture(params=["path", "abstract"])
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """$NOTIFY_SOCKET's value and the service manager's end of it, for both kinds of address."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        name = f"edged-test-{os.getpid()}"
        address, value = ("\0" + name, "@" + name) if request.param == "abstract" else (str(tmp_path / "n"),) * 2
        sock.bind(address)
        sock.settimeout(5)
        yield value, sock


def test_each_word_is_one_datagram(listener: tuple[str, socket.socket]) -> None:
    """The words are those of sd_notify(3); a status is one line whatever the text."""
    value, sock = listener
    notifier = Notifier({"NOTIFY_SOCKET": value})
    said = [
        (notifier.ready("serving 2\nmodels"), b"READY=1\nSTATUS=serving 2 models"),
        (notifier.ready(), b"READY=1"),
        (notifier.stopping("degraded: é"), "STOPPING=1\nSTATUS=degraded: é".encode()),
        (notifier.stopping(), b"STOPPING=1"),
        (notifier.watchdog(), b"WATCHDOG=1"),
        (notifier.status("degraded chip:\n gone"), b"STATUS=degraded chip: gone"),
        (notifier.extend(720.0), b"EXTEND_TIMEOUT_USEC=720000000"),
    ]
    assert [(delivered, sock.recv(4096)) for delivered, _ in said] == [(True, words) for _, words in said]


def test_reloading_carries_the_monotonic_time(listener: tuple[str, socket.socket]) -> None:
    """systemd refuses RELOADING=1 without CLOCK_MONOTONIC in microseconds."""
    value, sock = listener
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    Notifier({"NOTIFY_SOCKET": value}).reloading()
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    first, second = sock.recv(4096).decode().split("\n")
    assert first == "RELOADING=1"
    name, _, stamp = second.partition("=")
    assert name == "MONOTONIC_USEC"
    assert before <= int(stamp) <= after


@pytest.mark.parametrize("value", ["", "vsock:2:1234", "relative/path"])
def test_without_a_socket_nothing_happens(value: str) -> None:
    """No variable, or an address that is none for us: every call is False and silent."""
    for environ in ({"NOTIFY_SOCKET": value}, {}):
        notifier = Notifier(environ)
        assert not notifier.enabled
        words = (notifier.ready, notifier.reloading, notifier.stopping, notifier.watchdog)
        assert [word() for word in words] == [False] * 4


def test_a_service_manager_that_is_gone_does_no_harm(tmp_path: Path) -> None:
    """A socket nobody listens on, or a name too long for one, makes a word undelivered, never an error."""
    for path in (tmp_path / "gone", tmp_path / ("x" * 300)):
        assert Notifier({"NOTIFY_SOCKET": str(path)}).ready("x") is False


def test_a_full_socket_does_not_hang(tmp_path: Path) -> None:
    """When nobody reads, words are lost after a moment; the caller goes on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "n"))
        notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "n")})
        assert any(notifier.ready(f"{count}") is False for count in range(5_000))


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": str(os.getpid())}, 0.5),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getppid())}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_interval_is_for_this_process_only(environ: dict[str, str], expected: float | None) -> None:
    """The interval is in seconds; none when it is another process's, or no number."""
    assert Notifier({"NOTIFY_SOCKET": "@x"} | environ).watchdog_s == expected
    assert Notifier(environ).watchdog_s is None

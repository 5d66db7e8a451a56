"""Fetching as the daemon does it: a child for each try, watched, tried again, and given up when nobody wants it."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from pathlib import Path

import pytest
from support.fileserver import file_server

from edged import childprocess, fetch
from edged.errors import UnavailableError
from edged.fetch import Order, StoppedError, fetched, shown

DATA = bytes(range(256)) * 256
SHA = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "FIRST_PAUSE_S", 0.05)
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def order(folder: Path, url: str, idle_s: float = 5.0) -> Order:
    return Order(url, SHA, folder / "bundles", 1 << 20, idle_s)


def test_failures_that_pass_are_survived(tmp_path: Path) -> None:
    """Two refusals and a connection that ends in the middle: the fourth try has it, and each failure was told."""
    told: list[str] = []
    with file_server(data=DATA, statuses=[503, 429], cut_at=1000) as server:
        path = fetched(order(tmp_path, server.url), 30, lambda: True, lambda _, text: told.append(text))
        assert server.asked == ["", "", "", "bytes=1000-"]
    assert path.read_bytes() == DATA
    assert [text.split(":")[0] for text in dict.fromkeys(told)] == [
        "", "the server answers 503 Service Unavailable", "the server answers 429 Too Many Requests",
        "the server ended after 1000 of 65536 bytes",
    ]  # fmt: skip


def test_a_refusal_that_stays_ends_it_at_once(tmp_path: Path) -> None:
    """One request, and the address in the error has no secret in it."""
    with file_server(statuses=[404, 404]) as server:
        with pytest.raises(UnavailableError) as caught:
            fetched(order(tmp_path, f"{server.url}?token=hush"), 30, lambda: True, lambda *_: None)
        assert len(server.asked) == 1
    assert str(caught.value) == f"{server.url}: the server answers 404 Not Found"


def test_time_is_bounded_over_all_tries(tmp_path: Path) -> None:
    """A server that drips is ended in the middle; the last failure is told where there was one."""
    with file_server(data=DATA, pause_s=0.2) as server, pytest.raises(UnavailableError, match="not done in time"):
        fetched(order(tmp_path, server.url), 0.6, lambda: True, lambda *_: None)
    with file_server(statuses=[503] * 100) as server, pytest.raises(UnavailableError, match="answers 503"):
        fetched(order(tmp_path, server.url), 0.6, lambda: True, lambda *_: None)


def test_nobody_wants_it_any_more(tmp_path: Path) -> None:
    """It ends in the middle of a download, and takes what was got with it."""
    wanted = [True]
    counts: list[int] = []

    def progress(count: int, _: str) -> None:
        counts.append(count)
        wanted[0] = count == 0

    with file_server(data=DATA, pause_s=0.1) as server, pytest.raises(StoppedError):
        fetched(order(tmp_path, server.url), 30, lambda: wanted[0], progress)
    assert counts[-1] > 0
    assert list((tmp_path / "bundles").iterdir()) == []


def test_a_child_that_is_killed_is_started_again(tmp_path: Path) -> None:
    """The kernel takes it for its memory: that is no verdict on the bundle."""
    killed: list[str] = []

    def progress(count: int, _: str) -> None:
        if count and not killed:
            for child in Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split():
                killed.append(child)
                os.kill(int(child), signal.SIGKILL)

    with file_server(data=DATA, pause_s=0.01) as server:
        assert fetched(order(tmp_path, server.url), 30, lambda: True, progress).read_bytes() == DATA
    assert len(killed) == 1


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("https://ann:hush@host:8443/a/b.tar?sig=hush#hush", "https://host:8443/a/b.tar"),
        ("https://host?sig=hush", "https://host"),
        ("/srv/bundles/har.tar", "/srv/bundles/har.tar"),
    ],
)  # fmt: skip
def test_what_is_shown_of_an_address(url: str, safe: str) -> None:
    """No login, no query, no fragment."""
    assert shown(url) == safe


def test_what_can_never_be_fetched_is_not_tried_again(tmp_path: Path) -> None:
    """An address that nothing can follow: told once, in one sentence."""
    for url in ("/srv/\0x", f"http://{'a' * 70}.example/x.tar", "http://[::1/x"):
        told: list[str] = []
        with pytest.raises(UnavailableError, match="cannot be fetched: ") as caught:
            fetched(order(tmp_path, url), 30, lambda: True, lambda _, text, told=told: told.append(text))  # type: ignore[misc]
        assert "the process" not in str(caught.value)
        assert set(told) <= {""}


def test_a_child_that_ends_by_itself_is_not_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of ours would come again; of one that a signal ends the failures are not told within each other."""
    tries: list[int] = []

    def ends(code: int, *_: object) -> dict[str, object]:
        tries.append(code)
        raise childprocess.NoAnswerError(childprocess.ended(code), code)

    for code in (1, -9):
        monkeypatch.setattr(childprocess, "guarded_answer", lambda child, *_, code=code: (child.kill(), ends(code)))
        with pytest.raises(UnavailableError) as caught:
            fetched(order(tmp_path, "/srv/x"), 0.5, lambda: True, lambda *_: None)
        assert str(caught.value).count("the process that fetched it") == 1
    assert tries.count(1) == 1
    assert tries.count(-9) > 1


def test_a_redirect_without_an_end_fills_no_memory(tmp_path: Path) -> None:
    """A server that sends a body for ever with its redirect: the redirect is followed, the body is not read."""
    with file_server(data=DATA) as there, file_server(leads_to=there.url, endless=True) as server:
        path = fetched(order(tmp_path, server.url), 30, lambda: True, lambda *_: None)
    assert path.read_bytes() == DATA


def test_the_childs_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever takes it: the child is ended, and not started again."""
    monkeypatch.setattr(fetch, "MOST_MEMORY", 1 << 20)
    with file_server(data=DATA, pause_s=0.1) as server:
        with pytest.raises(UnavailableError, match=r"held .* of memory, at most 1\.0 MiB"):
            fetched(order(tmp_path, server.url), 30, lambda: True, lambda *_: None)
        assert len(server.asked) <= 1


def test_it_can_be_given_up_between_two_tries(tmp_path: Path) -> None:
    """While it waits to try again nobody may want it any more."""
    wanted = [True]

    def progress(_count: int, text: str) -> None:
        wanted[0] = not text

    with file_server(statuses=[503] * 100) as server:
        with pytest.raises(StoppedError):
            fetched(order(tmp_path, server.url), 60, lambda: wanted[0], progress)
        assert len(server.asked) == 1

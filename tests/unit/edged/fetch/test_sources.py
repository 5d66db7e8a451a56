"""One try to fetch: what is whole and as asked gets its name, everything else leaves nothing behind that would."""

from __future__ import annotations

import hashlib
import io
import json
import os
import resource
import shutil
import urllib.request
from collections import namedtuple
from email.message import Message
from pathlib import Path

import pytest
from support import tinymodel
from support.fileserver import file_server

from edged.fetch import Order
from edged.fetch.http import _Redirects
from edged.fetch.sources import FetchError, fetch

DATA = bytes(range(256)) * 4096  # 1 MiB
SHA = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def order(folder: Path, source: str, sha: str = SHA, most: int = 1 << 30, idle_s: float = 5.0) -> Order:
    return Order(source, sha, folder / "bundles", most, idle_s)


def refused(given: Order) -> FetchError:
    """The error of a try that must fail and leave nothing of the name behind."""
    with pytest.raises(FetchError) as caught:
        fetch(given)
    assert not (given.into / f"{given.sha256}.tar").exists()
    return caught.value


def test_a_file_is_copied_under_the_name_of_its_hash(tmp_path: Path) -> None:
    """By path and over http: the same bytes, and no part is left."""
    (tmp_path / "har.tar").write_bytes(DATA)
    with file_server(data=DATA) as server:
        for source in (str(tmp_path / "har.tar"), server.url):
            given = order(tmp_path, source)
            assert fetch(given) == f"{SHA}.tar"
            assert (given.into / f"{SHA}.tar").read_bytes() == DATA
            assert not given.part.exists()
            shutil.rmtree(given.into)


def test_other_content_is_refused_with_both_hashes(tmp_path: Path) -> None:
    """A wrong sha256 is final; what came, and as what, is told: often it is a page for a browser."""
    page = b"<html>log in</html>"
    with file_server(data=page, kind="text/html") as server:
        error = refused(order(tmp_path, server.url))
    assert str(error) == f"its sha256 is {hashlib.sha256(page).hexdigest()}, not {SHA} (19 B of text/html)"
    assert not error.again
    assert not order(tmp_path, "").part.exists()


@pytest.mark.parametrize(("status", "again"), [(404, False), (403, False), (503, True), (429, True), (500, True)])
def test_a_server_that_refuses(tmp_path: Path, status: int, again: bool) -> None:
    """What may pass is tried again, what will not is not."""
    with file_server(statuses=[status]) as server:
        error = refused(order(tmp_path, server.url))
    assert (error.again, str(error).split()[3]) == (again, str(status))


def test_a_download_goes_on_where_it_was_cut_off(tmp_path: Path) -> None:
    """The second try asks for the rest alone, and the whole has the right hash."""
    with file_server(data=DATA, cut_at=300_000) as server:
        error = refused(order(tmp_path, server.url))
        assert (error.again, str(error)) == (True, f"the server ended after 300000 of {len(DATA)} bytes")
        assert fetch(order(tmp_path, server.url)) == f"{SHA}.tar"
        assert server.asked == ["", "bytes=300000-"]


def test_a_server_that_knows_no_ranges_sends_everything_again(tmp_path: Path) -> None:
    """A 200 in answer to a Range begins from nothing."""
    with file_server(data=DATA, cut_at=300_000, ranges=False) as server:
        refused(order(tmp_path, server.url))
        assert fetch(order(tmp_path, server.url)) == f"{SHA}.tar"


def test_a_file_that_changed_between_two_tries_is_fetched_anew(tmp_path: Path) -> None:
    """The first half of another file fits no second half: it is thrown away, and the next try may do better."""
    given = order(tmp_path, "")
    given.into.mkdir()
    given.part.write_bytes(b"x" * 1000)
    with file_server(data=DATA) as server:
        assert refused(order(tmp_path, server.url)).again
        assert fetch(order(tmp_path, server.url)) == f"{SHA}.tar"


def test_too_large_is_refused_before_and_while_it_is_read(tmp_path: Path) -> None:
    """By what the server says at once, and by what comes where it says nothing; not tried again."""
    with file_server(data=DATA) as server:
        error = refused(order(tmp_path, server.url, most=1000))
    assert (error.again, str(error)) == (False, "too large: 1.0 MiB, at most 1000 B (updates.max_bytes)")
    (tmp_path / "har.tar").write_bytes(DATA)
    assert "too large" in str(refused(order(tmp_path, str(tmp_path / "har.tar"), most=1000)))
    assert not order(tmp_path, "").part.exists()


def test_a_server_that_says_nothing_is_left(tmp_path: Path) -> None:
    """After `idle_s`, with another try to come."""
    with file_server(hang=True) as server:
        error = refused(order(tmp_path, server.url, idle_s=0.2))
    assert error.again
    assert "nothing came for too long" in str(error)


def test_nobody_there(tmp_path: Path) -> None:
    """A refused connection and an unknown name may pass."""
    with file_server() as server:
        url = server.url
    error = refused(order(tmp_path, url))
    assert (error.again, str(error)) == (True, "cannot be reached: Connection refused")


def test_redirects_are_few_and_lead_to_http_only(tmp_path: Path) -> None:
    """One is followed; a circle ends; a file of the box is not where a server may lead."""
    with file_server(data=DATA) as there:
        with file_server(leads_to=there.url) as server:
            assert fetch(order(tmp_path, server.url)) == f"{SHA}.tar"
        shutil.rmtree(tmp_path / "bundles")
    with file_server() as server:
        server.leads_to = server.url
        assert not refused(order(tmp_path, server.url)).again
        assert len(server.asked) <= 6
    with file_server(leads_to="file:///etc/hostname") as server:
        refused(order(tmp_path, server.url))


def test_no_way_leads_from_https_to_http() -> None:
    """What a certificate vouched for does not come over a connection that nobody vouches for."""
    asked = urllib.request.Request("https://host/har.tar")
    with pytest.raises(FetchError, match="from https to http"):
        _Redirects().redirect_request(asked, io.BytesIO(), 302, "", Message(), "http://host/har.tar")
    again = _Redirects().redirect_request(asked, io.BytesIO(), 302, "", Message(), "https://other/har.tar")
    assert again is not None
    assert again.full_url == "https://other/har.tar"


def test_a_full_disk_is_told_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told before a byte is written; and when the disk fills up while it is."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1 << 30, 1 << 30, 1 << 20))
    with file_server(data=DATA) as server:
        error = refused(order(tmp_path, server.url))
        assert (error.again, str(error)[:37]) == (False, "no room on the disk: 1.0 MiB are want")
        monkeypatch.undo()
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
        try:
            error = refused(order(tmp_path, server.url))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (error.again, str(error)) == (False, "File too large")
    assert not order(tmp_path, "").part.exists()


def test_a_directory_is_copied_with_what_its_manifest_names(tmp_path: Path) -> None:
    """By the sha256 of bundle.json; a file beside it that nobody names stays behind."""
    source = tinymodel.write_dense_bundle(tmp_path / "dense")
    (source / "notes.txt").write_text("mine")
    sha = hashlib.sha256((source / "bundle.json").read_bytes()).hexdigest()
    given = order(tmp_path, str(source), sha)
    assert fetch(given) == sha
    copied = given.into / sha
    assert {path.name for path in copied.iterdir()} == {"bundle.json", "model.tflite", "golden.npz"}
    assert all(path.read_bytes() == (source / path.name).read_bytes() for path in copied.iterdir())


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "", ".", "a\0b", "bundle.json"])
def test_a_manifest_that_names_files_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    """Nothing but files of the directory itself is copied."""
    source = tmp_path / "evil"
    source.mkdir()
    manifest = json.dumps({"files": {name: {}}}).encode()
    (source / "bundle.json").write_bytes(manifest)
    error = refused(order(tmp_path, str(source), hashlib.sha256(manifest).hexdigest()))
    assert "names the file" in str(error)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """A named pipe; a path that leads nowhere."""
    os.mkfifo(tmp_path / "pipe")
    assert str(refused(order(tmp_path, str(tmp_path / "pipe")))) == "pipe is neither a file nor a directory"
    assert "No such file" in str(refused(order(tmp_path, str(tmp_path / "gone.tar"))))

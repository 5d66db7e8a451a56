"""Everything that can go wrong with a bundle that is sent: the old one serves on, says why, and nothing is left."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import tinymodel
from support.brokers import eventually, mosquitto
from support.daemons import DEVICE, DaemonProcess
from support.fileserver import file_server
from support.operators import KEPT, Operator, sha256_of, wish

from edged import bundle
from edged.broker import EmbeddedBroker
from edged.client import Client

pytestmark = pytest.mark.broker

X = np.array([[0.5, -1.25, 3.0]], np.float32)
Y = tinymodel.dense_expected(X)
LARGE = 400_000  # bytes of a bundle that is larger than what may be written


class Box:
    """A daemon that serves version 1 of `dense`, whoever runs it, and one who asks."""

    def __init__(self, folder: Path, broker: EmbeddedBroker, daemon: DaemonProcess, operator: Operator) -> None:
        self.folder, self.broker, self.daemon, self.operator = folder, broker, daemon, operator

    def ask(self) -> int:
        """The version that answers, with the right numbers."""
        with Client(self.broker.url_v5) as client:
            result = client.infer(DEVICE, "dense", {"x": X}, deadline_ms=20_000)
        assert np.allclose(result.outputs["y"], Y)
        return result.meta.version

    def fails(self, **given: Any) -> str:
        """Send a wish that must fail; returns the reason. Version 1 serves on, and nothing lies in the folder."""
        row = self.operator.ended(self.operator.desire(given))
        assert (row["state"], row["active"]["version"]) == ("FAILED", 1)
        assert self.lying() == []
        assert self.ask() == 1
        return str(row["error"])

    def lying(self) -> list[str]:
        folder = self.folder / KEPT / "bundles"
        return [path.name for path in folder.iterdir()] if folder.exists() else []


@contextmanager
def serving(folder: Path, model: dict[str, Any] | None = None, **more: Any) -> Iterator[Box]:
    """A box with a broker of its own."""
    config = {"name": "dense", "bundle": "one", "delegates": ["cpu"], **(model or {})}
    with (
        mosquitto() as broker,
        DaemonProcess(folder, broker.port, {"models": [config], **more}) as daemon,
        Operator(broker.port) as operator,
    ):
        daemon.ready()
        yield Box(folder, broker, daemon, operator)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Version 1 as a directory; 2 and 3 as files; one that is large."""
    folder = tmp_path_factory.mktemp("swap")
    tinymodel.write_dense_bundle(folder / "one")
    tinymodel.write_dense_bundle(folder / "two.tar", version=2)
    tinymodel.write_dense_bundle(folder / "three.tar", version=3)
    found = bundle.read(folder / "two.tar")
    bundle.write(folder / "large.tar", found.manifest, {**found.files, bundle.REPORT: os.urandom(LARGE)})
    return folder


@pytest.fixture(scope="module")
def box(folder: Path) -> Iterator[Box]:
    """One daemon for all wishes that fail, since each leaves it as it was."""
    with serving(folder, updates={"timeout_s": 2, "max_bytes": 1 << 20}) as box:
        yield box
        assert box.ask() == 1
        assert box.daemon.stop() == 0


def test_a_server_that_is_not_there(box: Box) -> None:
    """Tried again until the time is over, and told meanwhile."""
    with file_server() as server:
        url = server.url
    assert box.fails(**wish(box.folder / "two.tar", url=url)) == f"{url}: cannot be reached: Connection refused"
    assert any("refused" in report["models"]["dense"].get("text", "") for report in box.operator.reports)


def test_a_file_that_is_not_there(box: Box) -> None:
    """By http, and by path."""
    with file_server(statuses=[404]) as server:
        assert "answers 404 Not Found" in box.fails(**wish(box.folder / "two.tar", url=f"{server.url}?key=hush"))
    assert "hush" not in box.daemon.log.read_text()
    assert "No such file" in box.fails(**wish(box.folder / "two.tar", url="/srv/none.tar"))


def test_a_wrong_hash(box: Box) -> None:
    """A page for a browser in place of the bundle."""
    with file_server(data=b"<html>", kind="text/html") as server:
        assert "(6 B of text/html)" in box.fails(**wish(box.folder / "two.tar", url=server.url))


def test_a_bundle_that_is_too_large(box: Box) -> None:
    """More than updates.max_bytes."""
    with file_server(data=b"x" * (2 << 20)) as server:
        assert "at most 1.0 MiB (updates.max_bytes)" in box.fails(**wish(box.folder / "two.tar", url=server.url))


def test_a_connection_that_always_ends_in_the_middle(box: Box) -> None:
    """A server without ranges whose answers are short: the time ends it."""
    data = (box.folder / "two.tar").read_bytes()
    with file_server(data=data, cut_at=5000, ranges=False) as server:
        stopped = threading.Event()

        def cut_again() -> None:
            while not stopped.wait(0.01):
                server.cut_at = 5000

        thread = threading.Thread(target=cut_again)
        thread.start()
        error = box.fails(**wish(box.folder / "two.tar", url=server.url))
        stopped.set()
        thread.join()
    assert "the server ended after 5000 of" in error


def test_a_server_that_says_nothing(box: Box) -> None:
    """Within updates.timeout_s."""
    with file_server(hang=True) as server:
        error = box.fails(**wish(box.folder / "two.tar", url=server.url))
    assert "not done in time" in error or "nothing came for too long" in error


def test_golden_samples_that_are_not_reproduced(box: Box, tmp_path: Path) -> None:
    """The model opens, and its numbers are wrong."""
    wrong = tinymodel.write_dense_bundle(tmp_path / "wrong.tar", version=9, wrong_golden=True)
    assert "output 'y': off by 1, tolerance 1e-05" in box.fails(**wish(wrong))


def test_what_is_no_bundle(box: Box, tmp_path: Path) -> None:
    """The hash is right, the content is not."""
    (tmp_path / "junk.tar").write_bytes(b"junk" * 1000)
    assert "cannot be read" in box.fails(**wish(tmp_path / "junk.tar"))
    damaged = tinymodel.write_dense_bundle(tmp_path / "damaged", version=7)
    (damaged / "model.tflite").write_bytes(b"x")
    assert "model.tflite has 1 bytes" in box.fails(**wish(damaged))


def test_a_disk_that_is_full(folder: Path, tmp_path: Path) -> None:
    """While the bundle is written; and when only the memory of it can no longer be, it serves and says so."""
    tinymodel.write_dense_bundle(tmp_path / "one")
    with serving(tmp_path) as box:
        limits = resource.prlimit(box.daemon.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(box.daemon.process.pid, resource.RLIMIT_FSIZE, (LARGE // 2, limits[1]))
        assert "File too large" in box.fails(**wish(folder / "large.tar"))
        resource.prlimit(box.daemon.process.pid, resource.RLIMIT_FSIZE, limits)
        (tmp_path / KEPT / "deployed.json").mkdir()
        row = box.operator.ended(box.operator.desire(wish(folder / "two.tar")))
        assert (row["state"], row["active"]["version"]) == ("READY", 2)
        assert "serves until the next start only" in row["error"]
        assert box.ask() == 2
        assert box.daemon.stop() == 0


def test_a_bundle_that_crashes_the_runtime(tmp_path: Path) -> None:
    """It dies in a process of its own; the device serves on and is not slowed down by it."""
    tinymodel.require_runtime("tflite-runtime")
    good = bundle.read(tinymodel.write_dense_bundle(tmp_path / "one"))
    half = good.model[: len(good.model) // 2]
    bundle.write(tmp_path / "half.tar", good.manifest, {**good.files, bundle.MODEL: half})
    with serving(tmp_path, {"runtime": "tflite-runtime"}) as box:
        assert "was killed by SIG" in box.fails(**wish(tmp_path / "half.tar"))
        assert box.daemon.process.poll() is None
        assert box.daemon.stop() == 0


STEPS = ("DOWNLOADING", "VERIFYING", "LOADING", "WARMING", "SWITCHING", "READY")


def test_kill_9_in_each_step(folder: Path, tmp_path: Path) -> None:
    """After each the device comes back with one bundle or the other, whole, and then does what is desired; nothing
    half fetched is left."""
    tinymodel.write_dense_bundle(tmp_path / "one")
    data = {name: (folder / name).read_bytes() for name in ("two.tar", "three.tar")}
    with serving(tmp_path, {"warmup": 50_000}) as box, file_server() as server:
        for number, step in enumerate(STEPS):
            name = ("two.tar", "three.tar")[number % 2]
            server.data, server.pause_s = data[name], 0.02
            rev = box.operator.desire(wish(folder / name, url=server.url))
            box.operator.wait(lambda said, rev=rev, step=step: _at(said, rev) >= STEPS.index(step))  # type: ignore[misc]
            box.daemon.kill()
            box.daemon.restart()
            assert box.daemon.ready()["models"]["dense"]["version"] in (1, 2, 3)
            row = box.operator.ended(rev)
            assert (row["active"]["version"], row["error"]) == (2 + number % 2, "")
            assert box.ask() == 2 + number % 2
            eventually(lambda: not any(one.endswith(".part") for one in box.lying()), "nothing half fetched is left")
        assert sorted(box.lying()) == sorted(f"{sha256_of(folder / one)}.tar" for one in data)
        assert box.daemon.stop() == 0


def _at(said: dict[str, Any], rev: int) -> int:
    row = said["models"]["dense"]
    return STEPS.index(row["state"]) if row["rev"] == said["rev"] == rev and row["state"] in STEPS else -1


def test_wishes_that_flap(folder: Path, tmp_path: Path) -> None:
    """Twenty in a row, faster than one can be done: the last one serves, each request is answered, nothing is left."""
    tinymodel.write_dense_bundle(tmp_path / "one")
    data = (folder / "three.tar").read_bytes()
    with (
        serving(tmp_path) as box,
        file_server(data=data, pause_s=0.02) as server,
        Client(box.broker.url_v5) as client,
    ):
        rev = 0
        for number in range(20):
            here, there = wish(folder / "two.tar"), wish(folder / "three.tar", url=server.url)
            rev = box.operator.desire(here if number % 2 else there)
            answers = [client.infer_async(DEVICE, "dense", {"x": X}, deadline_ms=20_000) for _ in range(5)]
            assert all(np.allclose(answer.result(30).outputs["y"], Y) for answer in answers)
        row = box.operator.ended(rev)
        assert (row["state"], row["active"]["version"]) == ("READY", 2)
        eventually(lambda: not any(name.endswith(".part") for name in box.lying()), "no half fetched file is left")
        assert len(box.lying()) <= 2
        assert box.daemon.stop() == 0


def test_a_wish_is_superseded_while_it_is_fetched(folder: Path, tmp_path: Path) -> None:
    """The download ends at once, though the server would go on for minutes; a wish that is cleared ends too."""
    tinymodel.write_dense_bundle(tmp_path / "one")
    with serving(tmp_path) as box, file_server(data=b"x" * (1 << 20), pause_s=1) as server:
        slow = wish(folder / "two.tar", url=server.url)
        rev = box.operator.desire(slow)
        box.operator.wait(lambda said: _at(said, rev) == 0)
        box.operator.ended(box.operator.desire(wish(folder / "three.tar")))
        assert box.ask() == 3
        rev = box.operator.desire(slow)
        box.operator.wait(lambda said: _at(said, rev) == 0)
        box.operator.forget()
        said = box.operator.wait(lambda said: said["state"] == "NONE" and said["models"]["dense"]["state"] == "READY")
        assert (said["rev"], said["models"]["dense"]["active"]["version"]) == (None, 3)
        assert box.lying() == [f"{sha256_of(folder / 'three.tar')}.tar"]
        # A command need not wait for it either.
        rev = box.operator.desire(slow)
        box.operator.wait(lambda said: _at(said, rev) == 0)
        assert box.operator.command("reload", "now")[-1]["state"] == "SUCCEEDED"
        assert box.daemon.stop() == 0

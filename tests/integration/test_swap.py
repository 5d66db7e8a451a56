"""Desired models and commands on a real daemon and a real broker: each step told, every request answered, all kept
over restarts."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import tinymodel
from support.brokers import eventually
from support.daemons import DEVICE, DaemonProcess
from support.deployments import daemon
from support.fileserver import file_server
from support.memory import rss_kib
from support.operators import BASE, KEPT, Operator, sha256_of, wish
from support.watcher import StatusBoard, Watcher

from edged import bundle
from edged.broker import EmbeddedBroker
from edged.client import Client
from edged.errors import RequestError

pytestmark = pytest.mark.broker

X = np.array([[0.5, -1.25, 3.0]], np.float32)
Y = tinymodel.dense_expected(X)
SWAPS = 12
LARGE = 8 << 20


def answering(client: Client) -> int:
    """The version that answers a request now, with the right numbers."""
    result = client.infer(DEVICE, "dense", {"x": X}, deadline_ms=20_000)
    assert np.allclose(result.outputs["y"], Y)
    return result.meta.version


def test_a_bundle_takes_over_step_by_step(alone: EmbeddedBroker, folder: Path) -> None:
    """By path, by http, as a directory: each step is told; the version in replies, status and metrics follows."""
    with daemon(folder, alone) as box, Operator(alone.port) as operator, Client(alone.url_v5) as client:
        box.ready()
        assert answering(client) == 1
        row = operator.ended(operator.desire(wish(folder / "two.tar", version=2)))
        assert operator.steps(1) == ["QUEUED", "DOWNLOADING", "VERIFYING", "LOADING", "WARMING", "SWITCHING", "READY"]
        assert row["active"] == {"version": 2, "sha256": sha256_of(folder / "two.tar")}
        assert row["previous"] == {"version": 1, "sha256": sha256_of(folder / "one")}
        assert answering(client) == 2
        with file_server(data=(folder / "three.tar").read_bytes()) as server:
            operator.ended(operator.desire(wish(folder / "three.tar", url=server.url)))
        assert answering(client) == 3
        row = operator.ended(operator.desire(wish(folder / "four", url=f"file://{folder}/four")))
        assert (row["active"]["version"], row["previous"]["version"]) == (4, 3)
        assert answering(client) == 4
        with StatusBoard(alone.port, DEVICE) as board, Watcher(alone.port, f"{BASE}/metrics") as metrics:
            board.wait(lambda said: said["models"]["dense"]["version"] == 4)
            told = json.loads(metrics.get().payload)["models"]["dense"]
            assert (told["version"], told["since_start"]["ok"]) == (4, 4)
        # The one that serves and the one before are kept.
        kept = {path.name for path in (folder / KEPT / "bundles").iterdir()}
        assert kept == {sha256_of(folder / "three.tar") + ".tar", sha256_of(folder / "four")}
        assert box.stop() == 0


def test_every_request_is_answered_once_while_bundles_change(alone: EmbeddedBroker, folder: Path) -> None:
    """Requests without a pause from two threads, a dozen swaps: no error, no wrong number, versions never go back for
    longer than one answer takes; memory and threads are what they were."""
    versions: list[list[int]] = [[], []]
    going = threading.Event()
    going.set()

    def ask(place: int) -> None:
        with Client(alone.url_v5, user=f"u{place}") as client:
            while going.is_set():
                versions[place].append(answering(client))

    # The memory of replies would grow for two minutes, whatever is swapped.
    with daemon(folder, alone, replies={"memory_bytes": "64KiB"}) as box, Operator(alone.port) as operator:
        box.ready()
        threads = [threading.Thread(target=ask, args=(place,)) for place in range(2)]
        for thread in threads:
            thread.start()
        try:
            for number in range(SWAPS):
                rev = operator.desire(wish(folder / ("two.tar", "three.tar")[number % 2]))
                assert operator.ended(rev)["error"] == ""
                if number == 3:
                    before = _size(box)
            eventually(lambda: _size(box)[1] <= before[1], "threads are those of before")
            eventually(lambda: _size(box)[2] <= before[2], "descriptors are those of before")
            grown = _size(box)[0] - before[0]
        finally:
            going.clear()
            for thread in threads:
                thread.join()
        assert grown < 2048, f"{grown} KiB more after {SWAPS - 4} swaps"
        for seen in versions:
            changes = [after for one, after in itertools.pairwise(seen) if one != after]
            assert len(changes) <= SWAPS
            assert set(seen) == {1, 2, 3}
        assert box.stop() == 0


def _size(box: DaemonProcess) -> tuple[int, int, int]:
    process = Path(f"/proc/{box.process.pid}")
    return rss_kib(box.process.pid), len(list((process / "task").iterdir())), len(list((process / "fd").iterdir()))


def test_nothing_keeps_what_was_replaced(alone: EmbeddedBroker, folder: Path) -> None:
    """Bundles of 8 MiB: after the first swap, and after some more, one of them is in memory, as before."""
    for version in (5, 6, 7):
        found = bundle.read(tinymodel.write_dense_bundle(folder / "small", version=version))
        bundle.write(folder / f"{version}.tar", found.manifest, {**found.files, bundle.REPORT: os.urandom(LARGE)})
        shutil.rmtree(folder / "small")
    with daemon(folder, alone, model={"bundle": "5.tar"}) as box, Operator(alone.port) as operator:
        box.ready()
        before = _size(box)[0]
        for name in ("6.tar", "7.tar", "6.tar"):
            assert operator.ended(operator.desire(wish(folder / name)))["error"] == ""
            eventually(lambda: _size(box)[0] < before + LARGE // 2048, f"memory is given back after {name}")


def test_the_same_wish_again_does_nothing(alone: EmbeddedBroker, folder: Path) -> None:
    """Again with another rev, at a reconnect and after a restart: nothing is fetched, and nothing is opened."""
    data = (folder / "two.tar").read_bytes()
    with daemon(folder, alone) as box, Operator(alone.port) as operator, file_server(data=data) as server:
        box.ready()
        two = wish(folder / "two.tar", url=server.url)
        operator.ended(operator.desire(two))
        assert operator.ended(operator.desire(two))["active"]["version"] == 2
        assert operator.steps(2) == ["READY"]
        operator.desire(two, rev=2)
        assert box.stop() == 0
        stopped_s = operator.reports[-1]["ts"]
        box.restart()
        assert box.ready()["models"]["dense"]["version"] == 2
        operator.wait(lambda report: report["ts"] > stopped_s and report["rev"] == 2)
        assert operator.ended(2)["state"] == "READY"
        assert operator.ended(operator.desire(wish(folder / "one")))["state"] == "READY"
        assert len(server.asked) == 1
        assert box.stop() == 0


def test_the_configured_bundle_by_its_own_hash_is_not_fetched(alone: EmbeddedBroker, folder: Path) -> None:
    """It serves already."""
    with daemon(folder, alone) as box, Operator(alone.port) as operator:
        box.ready()
        row = operator.ended(operator.desire(wish(folder / "one", url="http://127.0.0.1:9/none")))
        assert (row["state"], row["active"]["version"], operator.steps(1)) == ("READY", 1, ["READY"])


def test_a_restart_serves_what_was_sent_without_the_broker(alone: EmbeddedBroker, folder: Path) -> None:
    """The bundle is kept, its source is gone, and so is the retained message."""
    with daemon(folder, alone) as box, Operator(alone.port) as operator:
        box.ready()
        operator.ended(operator.desire(wish(folder / "two.tar")))
        operator.forget()
        (folder / "two.tar").unlink()
        assert box.stop() == 0
        box.restart()
        assert box.ready()["models"]["dense"]["version"] == 2
        box.kill()
        box.restart()
        assert box.ready()["models"]["dense"]["version"] == 2


def test_a_changed_configuration_is_the_later_word(alone: EmbeddedBroker, folder: Path) -> None:
    """It serves also when the old wishes are heard again, which then need another rev."""
    with daemon(folder, alone) as box, Operator(alone.port) as operator:
        box.ready()
        operator.ended(operator.desire(wish(folder / "two.tar")))
        assert box.stop() == 0
        body = json.loads(box.config.read_text())
        body["models"][0]["bundle"] = "four"
        box.config.write_text(json.dumps(body))
        box.restart()
        assert box.ready()["models"]["dense"]["version"] == 4
        operator.wait(lambda report: report["models"]["dense"]["state"] == "FAILED")
        assert "the configuration was changed after this was applied" in operator.ended(1)["error"]
        assert operator.ended(operator.desire(wish(folder / "two.tar")))["active"]["version"] == 2


def test_a_kept_bundle_that_is_damaged_is_fetched_again(alone: EmbeddedBroker, folder: Path) -> None:
    """The configured one serves meanwhile, and it is told."""
    with daemon(folder, alone) as box, Operator(alone.port) as operator:
        box.ready()
        operator.ended(operator.desire(wish(folder / "two.tar")))
        assert box.stop() == 0
        (kept,) = (folder / KEPT / "bundles").iterdir()
        kept.write_bytes(kept.read_bytes()[:4000])
        operator.forget()
        box.restart()
        assert box.ready()["models"]["dense"]["version"] == 1
        assert "the configured bundle serves" in box.log.read_text()
        operator.desire(wish(folder / "two.tar"), rev=1)
        operator.wait(lambda report: "the configured bundle serves" in report["models"]["dense"]["error"])
        operator.wait(lambda report: report["models"]["dense"]["active"]["version"] == 2)


def test_bundles_that_do_not_fit(alone: EmbeddedBroker, folder: Path) -> None:
    """Another model, another version than was said, other inputs where a stream feeds the model: the old one serves."""
    tinymodel.write_dense_bundle(folder / "other.tar", name="other")
    _wider(folder / "wider.tar")
    stream = {"name": "imu", "topic": "s/x", "fields": ["a"], "model": "dense", "window": {"length": 3, "hop": 3}}
    with daemon(folder, alone, streams=[stream]) as box, Operator(alone.port) as operator:
        box.ready()
        for name, more, said in (
            ("other.tar", {}, "it is of a model 'other', not 'dense'"),
            ("two.tar", {"version": 3}, "it is version 2, not 3 as desired"),
            ("wider.tar", {}, "its inputs are others, and the stream imu feeds the model"),
        ):
            row = operator.ended(operator.desire(wish(folder / name, **more)))
            assert (row["state"], row["active"]["version"]) == ("FAILED", 1)
            assert said in row["error"]
        assert list((folder / KEPT / "bundles").iterdir()) == []


def _wider(path: Path) -> None:
    """Version 5 of the model, with other inputs."""
    manifest = tinymodel._manifest("dense", 5, (tinymodel.spec("x", (1, 4)),), (tinymodel.spec("y", (1, 4)),))
    bundle.write(path, manifest, {bundle.MODEL: tinymodel.add_model(4)})


def test_another_signature_serves_where_no_stream_is_tied_to_it(alone: EmbeddedBroker, folder: Path) -> None:
    """Requests of the new form are answered, those of the old one are told what is wrong with them."""
    _wider(folder / "wider.tar")
    with daemon(folder, alone) as box, Operator(alone.port) as operator, Client(alone.url_v5) as client:
        box.ready()
        assert operator.ended(operator.desire(wish(folder / "wider.tar")))["active"]["version"] == 5
        wide = np.array([[1, 2, 3, 4]], np.float32)
        assert np.array_equal(client.infer(DEVICE, "dense", {"x": wide}).outputs["y"], wide + wide)
        with pytest.raises(RequestError, match="INVALID_ARGUMENT"):
            answering(client)


def test_wishes_that_make_no_sense_are_rejected(alone: EmbeddedBroker, folder: Path) -> None:
    """The report says where, what is served stays, and the next message is read."""
    with daemon(folder, alone) as box, Operator(alone.port) as operator:
        box.ready()
        operator.publish(f"{BASE}/desired/models", b"{", retain=True)
        operator.wait(lambda report: report["state"] == "REJECTED" and "not JSON" in report["error"])
        operator.desire({"name": "dense", "url": "x", "sha256": "y"}, rev=4)
        said = operator.wait(lambda report: "models[0].url" in report["error"])
        assert (said["rev"], said["models"]["dense"]["active"]["version"]) == (4, 1)
        assert operator.ended(operator.desire(wish(folder / "two.tar")))["active"]["version"] == 2
        with Watcher(alone.port, f"{BASE}/metrics") as metrics:
            metrics.get()
            assert json.loads(metrics.get().payload)["transport"]["control"]["desired_rejected"] == 2


def test_desired_models_can_be_turned_off(alone: EmbeddedBroker, folder: Path) -> None:
    """Then nobody hears of them; commands are still heard."""
    with daemon(folder, alone, updates={"accept": False}) as box, Operator(alone.port) as operator:
        box.ready()
        operator.desire(wish(folder / "two.tar"))
        assert operator.command("reload", "1")[-1]["state"] == "SUCCEEDED"
        assert operator.reports == []


def test_commands(alone: EmbeddedBroker, folder: Path) -> None:
    """reload, drain and back, reset of a model without state, remeasure; one that comes twice runs once."""
    with daemon(folder, alone) as box, Operator(alone.port) as operator, Client(alone.url_v5) as client:
        box.ready()
        body = json.loads(box.config.read_text())
        box.config.write_text(json.dumps({**body, "drain_timeout_s": 3}))
        events = operator.command("reload", "a")
        assert [event["state"] for event in events] == ["QUEUED", "IN_PROGRESS", "SUCCEEDED"]
        assert events[-1]["result"] == {"changes": ["drain_timeout_s: 2.0 → 3.0"]}
        assert operator.command("reload", "a") == events[-1:]
        box.config.write_text("device: 5")
        assert "device" in operator.command("reload", "b")[-1]["error"]
        with StatusBoard(alone.port, DEVICE) as board:
            assert operator.command("drain", "c")[-1]["state"] == "SUCCEEDED"
            board.wait(lambda said: said["state"] == "draining" and "operator" in said["reason"])
            assert operator.command("drain", "d", resume=True)[-1]["state"] == "SUCCEEDED"
            board.wait(lambda said: said["state"] == "ready")
        assert answering(client) == 1
        assert operator.command("reset", "e", model="dense")[-1]["state"] == "REJECTED"
        found = operator.command("remeasure", "f", model="dense")[-1]
        assert (found["state"], found["result"]["models"]["dense"]["chosen"][:7]) == ("SUCCEEDED", "cpu on ")
        assert answering(client) == 1
        assert "no model is called 'x'" in operator.command("remeasure", "g", model="x")[-1]["error"]
        assert box.stop() == 0


def test_a_drained_device_answers_what_it_has_and_refuses_the_rest(alone: EmbeddedBroker, folder: Path) -> None:
    """A slow model: what was admitted is answered; what comes later is told to try again."""
    tinymodel.write_slow_bundle(folder / "slow", 600, 4)
    request, reply = f"{BASE}/req/slow/c/ann", "edged/v1/resp/ann"
    config: dict[str, Any] = {"model": {"name": "slow", "bundle": "slow", "warmup": 0}, "drain_timeout_s": 20}
    with daemon(folder, alone, **config) as box, Operator(alone.port) as operator:
        box.ready()
        with Watcher(alone.port, f"{reply}/#") as ann:
            for number in range(3):
                ann.publish(request, b"\0" * 4, ResponseTopic=f"{reply}/{number}", CorrelationData=b"c")
            time.sleep(0.05)
            assert operator.command("drain", "a")[-1]["state"] == "SUCCEEDED"
            ann.publish(request, b"\0" * 4, ResponseTopic=f"{reply}/late", CorrelationData=b"c")
            told = {}
            while len(told) < 4:
                message = ann.get()
                told[message.topic.rpartition("/")[2]] = message.payload
        late = json.loads(told.pop("late"))["error"]
        assert (late["code"], late["retryable"]) == ("UNAVAILABLE", True)
        assert {len(payload) for payload in told.values()} == {4}
        assert box.stop() == 0

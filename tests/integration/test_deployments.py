"""What a device keeps and tells of what it was asked for: over restarts, after failures, beside other processes."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from support import tinymodel
from support.daemons import DEVICE
from support.deployments import daemon
from support.fileserver import file_server
from support.operators import BASE, KEPT, Operator, sha256_of, wish
from support.watcher import StatusBoard, Watcher

from edged.bench.inprocess import InProcess, from_file
from edged.broker import EmbeddedBroker

pytestmark = pytest.mark.broker

OTHER = "edged/v1/dev/other/"


def test_the_report_is_put_right_at_a_start(alone: EmbeddedBroker, folder: Path) -> None:
    """Without a wish and without a message: what is retained of an earlier start is not what serves now."""
    with daemon(folder, alone) as box, Operator(alone.port) as operator:
        box.ready()
        operator.ended(operator.desire(wish(folder / "two.tar", version=2)))
        operator.forget()
        operator.wait(lambda report: report["state"] == "NONE")
        assert box.stop() == 0
        (folder / KEPT / "deployed.json").write_text("{")
        box.restart()
        assert box.ready()["models"]["dense"]["version"] == 1
        report = operator.wait(lambda report: report["models"]["dense"]["active"]["version"] == 1)
        assert (report["state"], report["models"]["dense"]["active"]["sha256"]) == ("NONE", sha256_of(folder / "one"))
        # The bundle that the file spoke of, perhaps, is still there.
        assert len(list((folder / KEPT / "bundles").iterdir())) == 1


def test_a_report_of_a_download_is_put_right_at_a_start(alone: EmbeddedBroker, folder: Path) -> None:
    """A device that was killed in its first update, and then is told nothing: it is at nothing now."""
    with daemon(folder, alone) as box, Operator(alone.port) as operator, file_server(hang=True) as server:
        box.ready()
        operator.desire(wish(folder / "two.tar", url=server.url))
        operator.wait(lambda report: report["models"]["dense"]["state"] == "DOWNLOADING")
        box.kill()
        operator.forget()
        box.restart()
        box.ready()
        operator.wait(lambda report: report["state"] == "NONE" and report["models"]["dense"]["state"] == "READY")
        assert box.stop() == 0


def test_a_failed_model_is_told_and_opened_anew(alone: EmbeddedBroker, folder: Path) -> None:
    """A wish for what it is configured to serve does not make it READY; it is tried again, and another one serves."""
    tinymodel.write_dense_bundle(folder / "wrong", wrong_golden=True)
    with daemon(folder, alone, model={"bundle": "wrong"}) as box, Operator(alone.port) as operator:
        with StatusBoard(alone.port, DEVICE) as board:
            board.wait(lambda said: said["models"]["dense"]["state"] == "failed")
        row = operator.ended(operator.desire(wish(folder / "wrong")))
        assert row["state"] == "FAILED"
        assert "tolerance" in row["error"]
        assert "LOADING" in operator.steps(1)
        row = operator.ended(operator.desire(wish(folder / "two.tar")))
        assert (row["state"], row["active"]["version"], row["error"]) == ("READY", 2, "")
        assert box.stop() == 0


def test_daemons_that_share_a_state_directory(alone: EmbeddedBroker, folder: Path) -> None:
    """Two devices, each updated, each serves its own after a restart; a measurement beside them disturbs nothing."""
    state = {"state_dir": str(folder / "shared")}
    tinymodel.write_dense_bundle(folder / "other" / "one")
    box, other = daemon(folder, alone, **state), daemon(folder / "other", alone, device="other", **state)
    with box, other, Operator(alone.port) as operator, Watcher(alone.port, OTHER + "reported/models") as watcher:
        box.ready()
        other.ready()
        operator.ended(operator.desire(wish(folder / "two.tar")))
        body = {"rev": 1, "models": [wish(folder / "three.tar")]}
        watcher.publish(OTHER + "desired/models", json.dumps(body).encode())
        while (row := json.loads(watcher.get(timeout=30).payload)["models"]["dense"])["state"] != "READY":
            assert row["state"] != "FAILED", row
        with InProcess(from_file(box.config)):
            pass
        operator.forget()
        for one, version in ((box, 2), (other, 3)):
            assert one.stop() == 0
            one.restart()
            assert one.ready()["models"]["dense"]["version"] == version


def test_a_measurement_beside_a_daemon_leaves_its_download_alone(alone: EmbeddedBroker, folder: Path) -> None:
    """It serves what is deployed and removes nothing, whatever lies there."""
    data = (folder / "two.tar").read_bytes()
    with (
        daemon(folder, alone) as box,
        Operator(alone.port) as operator,
        file_server(data=data, pause_s=0.2) as server,
    ):
        box.ready()
        operator.desire(wish(folder / "two.tar", url=server.url))
        operator.wait(lambda report: report["models"]["dense"].get("bytes", 0) > 0)
        before = list((folder / KEPT / "bundles").iterdir())
        with InProcess(from_file(box.config)):
            pass
        assert [path.name for path in before] == [path.name for path in (folder / KEPT / "bundles").iterdir()]
        server.pause_s = 0.0
        assert operator.ended(1)["active"]["version"] == 2
        # Nor where no daemon runs that keeps them.
        assert box.stop() == 0
        left = folder / KEPT / "bundles" / ("a" * 64 + ".part")
        left.write_bytes(b"x")
        with InProcess(from_file(box.config)):
            pass
        assert left.exists()


def test_a_pipe_in_place_of_the_configured_bundle(alone: EmbeddedBroker, folder: Path) -> None:
    """Nobody waits for it: the next update is done, and the next start is."""
    with daemon(folder, alone) as box, Operator(alone.port) as operator:
        box.ready()
        operator.ended(operator.desire(wish(folder / "two.tar")))
        shutil.rmtree(folder / "one")
        os.mkfifo(folder / "one")
        assert operator.ended(operator.desire(wish(folder / "three.tar")))["active"]["version"] == 3
        operator.forget()
        assert box.stop() == 0
        box.restart()
        assert box.ready()["models"]["dense"]["version"] == 3


def test_a_flood_of_commands_is_answered(alone: EmbeddedBroker, folder: Path) -> None:
    """Each of three hundred: done, or rejected with the reason."""
    with daemon(folder, alone) as box, Operator(alone.port) as operator:
        box.ready()
        for number in range(300):
            operator.publish(f"{BASE}/cmd/drain", json.dumps({"id": str(number), "resume": True}).encode())
        ended: dict[str, str] = {}
        while len(ended) < 300:
            _, event = operator.events.get(timeout=30)
            if event["state"] in ("SUCCEEDED", "REJECTED"):
                ended[event["id"]] = event["state"]
        assert set(ended) == set(map(str, range(300)))
        assert box.stop() == 0


def test_drain_heeds_a_configuration_that_was_read_again(alone: EmbeddedBroker, folder: Path) -> None:
    """A longer `drain_timeout_s` holds for the next drain."""
    tinymodel.write_slow_bundle(folder / "slow", 1000, 12)
    config: dict[str, Any] = {"model": {"name": "slow", "bundle": "slow", "warmup": 0}, "drain_timeout_s": 0.05}
    with daemon(folder, alone, **config) as box, Operator(alone.port) as operator:
        box.ready()
        body = json.loads(box.config.read_text())
        box.config.write_text(json.dumps({**body, "drain_timeout_s": 60}))
        # With the first command control begins, and knows the configuration of then.
        assert operator.command("drain", "a", resume=True)[-1]["state"] == "SUCCEEDED"
        assert operator.command("reload", "b")[-1]["state"] == "SUCCEEDED"
        for number in range(6):
            operator.publish(f"{BASE}/req/slow/c/ann/{number}/raw", b"\0" * 4)
        time.sleep(0.05)
        assert operator.command("drain", "c")[-1]["state"] == "SUCCEEDED"


def test_a_measurement_leaves_no_descriptor(tmp_path: Path) -> None:
    """Each daemon in this process hands back what it had opened, also the pipe that wakes it."""
    tinymodel.write_dense_bundle(tmp_path / "dense")
    path = tmp_path / "edged.yaml"
    body = {"device": "box", "broker": {"url": "mqtt://127.0.0.1"}, "state_dir": "state"}
    path.write_text(json.dumps({**body, "models": [{"name": "dense", "bundle": "dense"}]}))
    counts = []
    for _ in range(3):
        with InProcess(from_file(path)):
            pass
        counts.append(sum(1 for _ in Path("/proc/self/fd").iterdir()))
    assert counts[1:] == [counts[0]] * 2


def test_who_takes_the_interpreters_lock_does_not_wait_for_a_cpu(alone: EmbeddedBroker, folder: Path) -> None:
    """The main thread of a daemon is raised as the others are; the one that starts processes for updates is not."""
    with daemon(folder, alone) as box, Operator(alone.port) as operator:
        status = box.ready()
        if status["main_scheduling"].startswith("nice -20 not"):
            pytest.skip("nice -20 is not permitted here")
        own = os.getpriority(os.PRIO_PROCESS, 0)
        threads = Path(f"/proc/{box.process.pid}/task")

        def ordinary() -> set[str]:
            return {one.name for one in threads.iterdir() if os.getpriority(os.PRIO_PROCESS, int(one.name)) == own}

        before = ordinary()  # of a library
        assert str(box.process.pid) not in before
        operator.command("reset", "1")  # what it is for does not matter: it starts the thread
        assert len(ordinary() - before) == 1
        assert box.stop() == 0

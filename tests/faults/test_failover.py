"""A real daemon whose accelerator fails in every way that one can: every request is answered, and it says what it does.

One daemon has a model for each failure, all on the test delegate, which plays it while a file of that name exists.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import delegates
from support.brokers import eventually, mosquitto
from support.daemons import DEVICE, DaemonProcess
from support.watcher import StatusBoard, Watcher

from edged.broker import EmbeddedBroker
from edged.client import Client, Result

RUNTIME = "ai-edge-litert"
FAILOVER = {"hang_floor_ms": 50, "recheck_s": 0, "probes": 3, "backoff_s": 0.2, "backoff_max_s": 0.5}
DEADLINE_MS = 30_000
X = np.random.default_rng(5).uniform(-2, 2, (1, delegates.SIZE)).astype(np.float32)

# What the model's reason must say; the runtimes' own words end each.
AT_RUN_TIME = {
    "invoke": ": testdelegate: device lost",
    "nan": ": output 'y': 8 of 8 values are not finite",
    "burst": ": output 'y': 8 of 8 values are not finite",
    "hang": ": gave no answer within ",
    "segfault": ": was killed by SIGSEGV",
    "abort": ": was killed by SIGABRT",
    "exit": ": ended with 3",
    "unplugged": ": testdelegate: device lost",
}
AT_THE_START: dict[str, dict[str, str]] = {
    "create": {"fail": "create"},
    "prepare": {"fail": "prepare"},
    "kernel_init": {"fail": "kernel_init"},
    "kernel_prepare": {"fail": "kernel_prepare"},
    "claims_nothing": {"max_nodes": "0"},
    "nan": {"fail": "nan"},
    "wrong": {"fail": "wrong"},
    "segfault": {"fail": "segfault"},
}


def model(name: str, library: Path, options: dict[str, str], **failover: float) -> dict[str, Any]:
    delegate = {"external": {"library": str(library), "options": options}}
    return {
        "name": name, "bundle": "adder", "runtime": RUNTIME, "delegates": delegate, "warmup": 2,
        "deadline_ms": DEADLINE_MS, "failover": {**FAILOVER, **failover},
    }  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with mosquitto() as broker:
        yield broker


@pytest.fixture(scope="module")
def client(broker: EmbeddedBroker) -> Iterator[Client]:
    with Client(broker.url_v5, user="tester") as client:
        client.connect(10)
        yield client


@pytest.fixture(scope="module")
def board(broker: EmbeddedBroker) -> Iterator[StatusBoard]:
    with StatusBoard(broker.port, DEVICE) as board:
        yield board


@pytest.fixture(scope="module")
def daemon(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A model for each failure; each fails while a file of its name exists beside the configuration."""
    directory = tmp_path_factory.mktemp("failover")
    delegates.adder_bundle(directory / "adder")
    library = delegates.library()
    models = [model(name, library, {"fail": name, "when": str(directory / name)}) for name in AT_RUN_TIME]
    models.append(model("wrong", library, {"fail": "wrong", "when": str(directory / "wrong")}, recheck_s=0.2))
    with DaemonProcess(directory, broker.port, {"models": models}) as daemon:
        daemon.ready(120)
        yield daemon
        assert daemon.stop() == 0


def served(client: Client, name: str, count: int = 5) -> set[str]:
    """Who answered `count` requests; every answer is numpy's."""
    told = set()
    for _ in range(count):
        result = client.infer(DEVICE, name, X, deadline_ms=DEADLINE_MS, codec="raw")
        np.testing.assert_allclose(result.outputs["y"], delegates.adder_expected(X), rtol=1e-6)
        told.add(result.meta.delegate)
    return told


def accelerator() -> str:
    return f"external:{delegates.library().name}"


@pytest.mark.broker
@pytest.mark.parametrize("name", AT_RUN_TIME)
def test_a_failure_at_run_time(daemon: DaemonProcess, client: Client, board: StatusBoard, name: str) -> None:
    """The request at hand is answered by the CPU, the status says why; the accelerator serves again when it can."""
    fault = daemon.config.parent / name
    board.wait(lambda said: said["models"][name]["degraded"] == "")
    before = board.model(name)
    assert served(client, name) == {accelerator()}
    fault.touch()
    assert served(client, name) == {"cpu"}
    board.wait(lambda said: said["state"] == "degraded" and bool(said["models"][name]["degraded"]))
    said = board.model(name)
    assert said["degraded"].startswith(f"{accelerator()}{AT_RUN_TIME[name]}")
    assert "; cpu serves; " in said["degraded"]
    assert said["degraded"] in board.said["reason"]
    assert (said["state"], said["delegate"], said["failovers"]) == ("ready", "cpu", before["failovers"] + 1)
    assert said["pid"] is None
    fault.unlink()
    board.wait(lambda said: not said["models"][name]["degraded"])
    assert served(client, name) == {accelerator()}
    assert board.model(name)["returns"] == before["returns"] + 1
    assert daemon.process.poll() is None


@pytest.mark.broker
@pytest.mark.parametrize("name", ["segfault", "hang"])
def test_no_request_of_many_is_lost_or_answered_twice(
    daemon: DaemonProcess, client: Client, board: StatusBoard, broker: EmbeddedBroker, name: str
) -> None:
    """Forty under way at once, a new one for each that is answered, over the failure and the return."""
    fault = daemon.config.parent / name
    answers: list[Result] = []
    lock, enough, going = threading.Lock(), threading.Semaphore(0), threading.Event()
    going.set()

    def ask() -> None:
        client.infer_async(DEVICE, name, X, deadline_ms=DEADLINE_MS, codec="raw").add_done_callback(done)

    def done(future: Future[Result]) -> None:
        with lock:
            answers.append(future.result())
        if going.is_set():
            ask()
        else:
            enough.release()

    with Watcher(broker.port, "edged/v1/resp/tester/#") as wire:
        for _ in range(40):
            ask()
        eventually(lambda: len(answers) > 100, "it serves")
        fault.touch()
        board.wait(lambda said: bool(said["models"][name]["degraded"]))
        fault.unlink()
        board.wait(lambda said: not said["models"][name]["degraded"])
        going.clear()
        assert all(enough.acquire(timeout=30) for _ in range(40))
        assert {answer.payload for answer in answers} == {delegates.adder_expected(X).tobytes()}
        assert {answer.meta.delegate for answer in answers} == {accelerator(), "cpu"}
        replies = [wire.get() for _ in answers]
    # What was sent again is answered again from memory, so a repeat on the wire must be the client's.
    correlations = [reply.properties.CorrelationData for reply in replies]
    repeats = sum(answer.resends for answer in answers)
    assert len(answers) - repeats <= len(set(correlations)) <= len(answers)


@pytest.mark.broker
def test_what_stays_unplugged_is_asked_for_again(daemon: DaemonProcess, client: Client, board: StatusBoard) -> None:
    """Each try that fails is counted and told, with the library's own reason, while the CPU goes on answering."""
    fault = daemon.config.parent / "unplugged"
    fault.touch()
    served(client, "unplugged", 1)
    board.wait(lambda said: "2 probes failed, the last: " in said["models"]["unplugged"]["degraded"])
    assert "no such device" in board.model("unplugged")["degraded"]
    assert served(client, "unplugged") == {"cpu"}
    fault.unlink()
    board.wait(lambda said: not said["models"]["unplugged"]["degraded"])


@pytest.mark.broker
def test_wrong_numbers_are_found_by_the_golden_samples(
    daemon: DaemonProcess, client: Client, board: StatusBoard
) -> None:
    """No error, no NaN: the next check of a golden sample tells, without a request."""
    assert served(client, "wrong") == {accelerator()}
    (daemon.config.parent / "wrong").touch()
    board.wait(lambda said: bool(said["models"]["wrong"]["degraded"]))
    assert f"{accelerator()}: wrong numbers: golden sample " in board.model("wrong")["degraded"]
    assert served(client, "wrong") == {"cpu"}
    (daemon.config.parent / "wrong").unlink()
    board.wait(lambda said: not said["models"]["wrong"]["degraded"])
    assert served(client, "wrong") == {accelerator()}


@pytest.mark.broker
def test_a_process_killed_from_outside_is_noticed(daemon: DaemonProcess, client: Client, board: StatusBoard) -> None:
    """The OOM killer does as much: the next request is answered by the CPU."""
    board.wait(lambda said: said["models"]["invoke"]["pid"] is not None)
    os.kill(board.model("invoke")["pid"], signal.SIGKILL)
    assert "cpu" in served(client, "invoke", 1)
    board.wait(lambda said: said["models"]["invoke"]["degraded"].startswith(f"{accelerator()}: was killed by SIGKILL"))
    board.wait(lambda said: not said["models"]["invoke"]["degraded"])


@pytest.mark.broker
def test_nobody_asks_it_anything(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Its process ends: the status says so by itself, though nothing is kept warm here and nothing checked again. Then
    it is stopped, and so never closes: it is ended by force, and the end of the daemon is in order."""
    delegates.adder_bundle(tmp_path / "adder")
    config = {"models": [model("idle", delegates.library(), {})], "device": "quiet"}
    with DaemonProcess(tmp_path, broker.port, config) as daemon, StatusBoard(broker.port, "quiet") as board:
        board.wait(lambda said: said["state"] == "ready", 60)
        os.kill(board.model("idle")["pid"], signal.SIGKILL)
        board.wait(lambda said: said["models"]["idle"]["failovers"] == 1)
        board.wait(lambda said: said["models"]["idle"]["returns"] == 1)
        os.kill(board.model("idle")["pid"], signal.SIGSTOP)
        assert daemon.stop(30) == 0
    told = daemon.log.read_text()
    assert "did not close its engine" in told
    assert "an inference did not return" not in told


@pytest.mark.broker
def test_a_service_manager_hears_of_it(broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its status line follows the state: what was true at the start does not stand there while the CPU serves."""
    delegates.adder_bundle(tmp_path / "adder")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    config = {"models": [model("told", delegates.library(), {})], "device": "managed"}
    heard: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(60)

        def hear(what: str) -> None:
            while not heard or what not in heard[-1]:
                heard.append(sock.recv(4096).decode())

        with DaemonProcess(tmp_path, broker.port, config) as daemon, StatusBoard(broker.port, "managed") as board:
            hear("READY=1\nSTATUS=ready")
            board.wait(lambda said: said["state"] == "ready", 60)
            os.kill(board.model("told")["pid"], signal.SIGKILL)
            hear(f"STATUS=degraded told: {accelerator()}: was killed by SIGKILL")
            hear("STATUS=ready")
            assert daemon.stop() == 0
            hear("STOPPING=1\nSTATUS=draining")
    assert any(line.startswith("STATUS=starting told: trying ") for line in heard)


@pytest.mark.broker
def test_a_hang_at_the_start_is_left_to_the_background(broker: EmbeddedBroker, client: Client, tmp_path: Path) -> None:
    """Known from an earlier start, and stuck at this one: the CPU serves after what is little beside a minute or two,
    and it is tried on."""
    delegates.adder_bundle(tmp_path / "adder")
    stuck = tmp_path / "stuck"
    options = {"fail": "hang", "when": str(stuck)}
    config = {"models": [model("known", delegates.library(), options)], "device": "again"}
    for start in range(2):
        with DaemonProcess(tmp_path, broker.port, config) as daemon, StatusBoard(broker.port, "again") as board:
            state = "degraded" if start else "ready"
            board.wait(lambda said, state=state: said["state"] == state, 30)
            result = client.infer("again", "known", X, deadline_ms=DEADLINE_MS, codec="raw")
            np.testing.assert_allclose(result.outputs["y"], delegates.adder_expected(X), rtol=1e-6)
            assert result.meta.delegate == ("cpu" if start else accelerator())
            if start:
                assert "gave no answer within " in board.model("known")["degraded"]
                stuck.unlink()
                board.wait(lambda said: said["state"] == "ready", 30)
            else:
                stuck.touch()
            assert daemon.stop(30) == 0


@pytest.mark.broker
def test_no_thread_is_to_be_had(broker: EmbeddedBroker, client: Client, tmp_path: Path) -> None:
    """A limit on threads when the accelerator fails: requests are answered, and it is taken back once there are."""
    delegates.adder_bundle(tmp_path / "adder")
    config = {"models": [model("few", delegates.library(), {})], "device": "few"}
    with DaemonProcess(tmp_path, broker.port, config) as daemon, StatusBoard(broker.port, "few") as board:
        board.wait(lambda said: said["state"] == "ready", 60)
        pid = daemon.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_AS)
        size = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
        resource.prlimit(pid, resource.RLIMIT_AS, (size + (2 << 20), before[1]))  # a thread's stack takes 8 MiB
        os.kill(board.model("few")["pid"], signal.SIGKILL)
        for _ in range(3):
            result = client.infer("few", "few", X, deadline_ms=DEADLINE_MS, codec="raw")
            np.testing.assert_allclose(result.outputs["y"], delegates.adder_expected(X), rtol=1e-6)
            assert result.meta.delegate == "cpu"
        board.wait(
            lambda said: "cpu serves; not probed yet: can't start new thread" in said["models"]["few"]["degraded"]
        )
        resource.prlimit(pid, resource.RLIMIT_AS, before)
        board.wait(lambda said: said["models"]["few"]["returns"] == 1)
        assert daemon.stop() == 0


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.broker
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_no_process_outlives_the_daemon(broker: EmbeddedBroker, tmp_path: Path, how: str) -> None:
    """Neither one that was opened at the start nor one that was opened again by the probing."""
    delegates.adder_bundle(tmp_path / "adder")
    options = {"fail": "segfault", "when": str(tmp_path / "crash")}
    models = [model(name, delegates.library(), options) for name in ("one", "two")]
    name = f"orphan-{how}"
    config = {"models": models, "device": name}
    with (
        DaemonProcess(tmp_path, broker.port, config) as daemon,
        StatusBoard(broker.port, name) as board,
        Client(broker.url_v5, user="tester") as client,
    ):
        board.wait(lambda said: said["state"] == "ready", 60)
        (tmp_path / "crash").touch()
        client.infer(name, "two", X, deadline_ms=DEADLINE_MS, codec="raw")
        (tmp_path / "crash").unlink()
        board.wait(lambda said: said["models"]["two"].get("returns") == 1)
        pids = [board.model(which)["pid"] for which in ("one", "two")]
        assert all(map(alive, pids))
        daemon.kill() if how == "killed" else daemon.stop()
        eventually(lambda: not any(map(alive, pids)), "their processes end")


@pytest.mark.broker
def test_a_delegate_that_cannot_serve_at_the_start(broker: EmbeddedBroker, client: Client, tmp_path: Path) -> None:
    """Whatever it is, the CPU serves, and the status and each reply say so."""
    delegates.adder_bundle(tmp_path / "adder")
    models = [model(name, delegates.library(), options) for name, options in AT_THE_START.items()]
    models.append(model("missing", tmp_path / "libmissing.so", {}))
    models.append(model("not_a_delegate", delegates.not_a_delegate(), {}))
    config = {"models": models, "device": "start"}
    with DaemonProcess(tmp_path, broker.port, config) as daemon, StatusBoard(broker.port, "start") as board:
        board.wait(lambda said: said["state"] == "degraded", 120)
        for which in models:
            name = which["name"]
            result = client.infer("start", name, X, deadline_ms=DEADLINE_MS, codec="raw")
            np.testing.assert_allclose(result.outputs["y"], delegates.adder_expected(X), rtol=1e-6)
            said = board.model(name)
            assert (result.meta.delegate, said["delegate"], said["state"]) == ("cpu", "cpu", "ready"), name
            assert said["degraded"].startswith("external:"), said
            assert "cpu serves" in said["degraded"]
            assert f"{name}: external:" in board.said["reason"]
        assert daemon.process.poll() is None
        assert daemon.stop() == 0

"""The daemon's figures over HTTP, beside those of the metrics topic."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import promtext, tinymodel
from support.daemons import DEVICE, DaemonProcess
from support.watcher import Watcher

import edged
from edged import Client, RequestError
from edged.broker import EmbeddedBroker
from edged.errors import ExitCode
from edged.request import STAGES

REQUESTS = 20


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def scrape(port: int) -> dict[str, promtext.Family]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        return promtext.parse(response.read().decode())


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    tinymodel.write_dense_bundle(tmp_path / "dense")
    return {"models": [{"name": "dense", "bundle": "dense"}], "metrics": {"interval_s": 0.5, "prometheus": free_port()}}


@pytest.fixture
def told(
    mosquitto: EmbeddedBroker, config: dict[str, Any], tmp_path: Path
) -> tuple[dict[str, Any], dict[str, promtext.Family], dict[str, Any]]:
    """A metrics message, a scrape and the next message of a daemon that answered requests before, one with an error."""
    with DaemonProcess(tmp_path, mosquitto.port, config) as daemon:
        (spec,) = daemon.ready()["models"]["dense"]["inputs"]
        with Client(mosquitto.url_v5, user="u") as client:
            for _ in range(REQUESTS):
                client.infer(DEVICE, "dense", np.zeros(spec["shape"], spec["dtype"]))
            with pytest.raises(RequestError):
                client.infer(DEVICE, "dense", b"12", codec="raw")
        with Watcher(mosquitto.port, f"edged/v1/dev/{DEVICE}/metrics") as watcher:
            watcher.get(timeout=10)
            before = json.loads(watcher.get(timeout=10).payload)
            found = scrape(config["metrics"]["prometheus"])
            return before, found, json.loads(watcher.get(timeout=10).payload)


Told = tuple[dict[str, Any], dict[str, promtext.Family], dict[str, Any]]


def test_a_models_figures_are_those_of_the_metrics_topic(told: Told) -> None:
    """Requests, answers by code, and how many were timed in each stage."""
    before, found, _ = told
    mine = before["models"]["dense"]
    total = mine["since_start"]
    assert promtext.value(found, "edged_requests_total", model="dense") == total["requests"] == REQUESTS + 1
    assert promtext.value(found, "edged_replies_total", code="OK") == total["ok"] == REQUESTS
    assert total["errors"] == {"INVALID_ARGUMENT": 1}
    assert promtext.value(found, "edged_replies_total", code="INVALID_ARGUMENT") == 1
    assert promtext.value(found, "edged_request_duration_seconds_count") == total["latency"]["total"]["n"] == REQUESTS
    for stage in STAGES:
        timed = promtext.value(found, "edged_request_stage_duration_seconds_count", stage=stage)
        assert timed == total["latency"][stage]["n"] == REQUESTS
    assert promtext.value(found, "edged_model_info", version=str(mine["version"]), delegate=mine["delegate"]) == 1
    assert promtext.value(found, "edged_model_ready", model="dense", device=DEVICE) == 1


def test_the_median_lies_in_its_bucket(told: Told) -> None:
    """Half of the requests lie below the bound above the median that the metrics message tells, in seconds."""
    before, found, _ = told
    median_s = before["models"]["dense"]["since_start"]["latency"]["total"]["p50_us"] / 1e6
    buckets = {
        float(dict(labels)["le"]): count
        for (name, labels), count in found["edged_request_duration_seconds"].samples.items()
        if name.endswith("_bucket")
    }
    above = min(bound for bound in buckets if bound >= median_s * 1.01)
    below = max(bound for bound in buckets if bound <= median_s * 0.99)
    assert buckets[above] >= REQUESTS / 2 >= buckets[below]


def test_the_rest_is_that_of_the_metrics_topic_too(told: Told) -> None:
    """Counters of the transport and the intake, and the process; a scrape takes nothing from the topic's interval."""
    before, found, after = told
    for name in ("received", "connects", "dropped_too_large"):
        value = promtext.value(found, f"edged_transport_{name}_total")
        assert before["transport"][name] <= value <= after["transport"][name]
    taken = promtext.value(found, "edged_transport_intake_requests_total")
    assert taken == before["transport"]["intake"]["requests"]
    assert promtext.value(found, "edged_build_info", version=edged.__version__) == 1
    assert promtext.value(found, "process_resident_memory_bytes") > 10 << 20
    assert promtext.value(found, "edged_cpu_seconds_total") >= before["process"]["cpu_s"]
    assert after["models"]["dense"]["interval"]["requests"] == 0


def test_every_metric_says_what_it_is(told: Told) -> None:
    """In a sentence of its own, none by its name alone."""
    _, found, _ = told
    unclear = [name for name, family in found.items() if not family.about or "(edged" in family.about]
    assert unclear == []
    assert found["edged_transport_outgoing_bytes"].about == "Bytes that wait to be sent or acknowledged now."


def test_it_listens_on_loopback_alone(mosquitto: EmbeddedBroker, config: dict[str, Any], tmp_path: Path) -> None:
    """A bare port is one of 127.0.0.1: another loopback address of this box is refused."""
    port = config["metrics"]["prometheus"]
    with DaemonProcess(tmp_path, mosquitto.port, config) as daemon:
        daemon.ready()
        assert scrape(port)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=5)
        assert daemon.stop() == 0


def test_a_port_in_use_ends_the_start(mosquitto: EmbeddedBroker, config: dict[str, Any], tmp_path: Path) -> None:
    """One line that names the address, and the exit code of something that is not there."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        config["metrics"]["prometheus"] = f"127.0.0.1:{other.getsockname()[1]}"
        path = tmp_path / "edged.yaml"
        broker = {"url": f"mqtt://127.0.0.1:{mosquitto.port}"}
        path.write_text(json.dumps({"device": DEVICE, "broker": broker, "state_dir": "state", **config}))
        command = [sys.executable, "-m", "edged", "run", "-c", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path)
    assert done.returncode == ExitCode.UNAVAILABLE
    assert "metrics.prometheus: cannot listen on 127.0.0.1:" in done.stderr
    assert "Traceback" not in done.stderr

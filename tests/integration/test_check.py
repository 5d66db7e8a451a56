"""`edged check`: it refuses what `edged run` refuses, tells every feature, and names what has no effect."""

from __future__ import annotations

import json
import os
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import brokers, promtext, tinymodel
from support.commands import edged
from support.daemons import DaemonProcess
from support.places import short_directory

from edged import bundle
from edged.broker import EmbeddedBroker
from edged.commands import _check_threads
from edged.commands._check_notes import notes
from edged.commands._check_threads import Tried
from edged.config import Config, loads
from edged.fitting import fit

CPU = min(os.sched_getaffinity(0))
MODEL: dict[str, Any] = {"name": "dense", "bundle": "dense"}
STREAM: dict[str, Any] = {
    "name": "s", "topic": "sensors/+/x", "key_level": 1, "fields": ["a"], "model": "dense",
    "window": {"length": 3, "hop": 1},
}  # fmt: skip


def body(**more: Any) -> dict[str, Any]:
    return {"device": "box", "broker": {"url": "mqtt://127.0.0.1:1"}, "models": [MODEL], "state_dir": "state", **more}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a configuration beside its bundles."""
    tinymodel.write_dense_bundle(tmp_path / "dense")

    def write(**more: Any) -> Path:
        path = tmp_path / "edged.yaml"
        path.write_text(json.dumps(body(**more)))
        return path

    return write


def tls(**files: str) -> dict[str, Any]:
    return {"broker": {"url": "mqtts://127.0.0.1:1", **files}}


@pytest.mark.parametrize(
    ("wrong", "code", "said"),
    [
        (tls(cert_file="client.pem", key_file="server.key"), 65, "not usable for TLS: "),
        (tls(ca_file="edged.yaml"), 65, "not usable for TLS: "),
        (tls(ca_file="nowhere.pem"), 65, "nowhere.pem: no such file"),
        ({"broker": {"url": "mqtt://127.0.0.1:70000"}}, 78, "broker.url: port 70000 is not between 1 and 65535"),
        ({"metrics": {"prometheus": "nonsense"}}, 78, "metrics.prometheus: expected [host:]port"),
        ({"metrics": {"prometheus": 70000}}, 78, "the port 1 to 65535, got 70000"),
        ({"metrics": {"prometheus": f"{'x' * 70}:9464"}}, 78, "cannot be a host's name"),
        ({"metrics": {"prometheus": "203.0.113.7:9464"}}, 69, "metrics.prometheus: cannot listen on 203.0.113.7:9464"),
        ({"metrics": {"prometheus": "[::1%none]:9464"}}, 69, "metrics.prometheus: no address ::1%none:9464"),
        ({"local": {"socket": "nowhere/s"}}, 78, "RuntimeDirectory=edged"),
        ({"local": {"socket": "s" * 120}}, 78, "a Unix socket's path may have 107"),
        (
            {"local": {"socket": "s", "slots": 1024, "slot_bytes": "1GiB", "max_producers": 1024}},
            78,
            "local: 1024 producers with 1024 slots of 1.0 GiB need ",
        ),
        ({"models": [{**MODEL, "bundle": "nowhere"}]}, 65, "nowhere: no such bundle"),
        ({"models": [{**MODEL, "batch": {"max_batch_size": 2}}]}, 78, "models.dense.batch: "),
        ({"streams": [{**STREAM, "window": {"length": 4, "hop": 1}}]}, 78, "streams.s: "),
    ],
)
def test_what_run_refuses_check_refuses(
    write: Callable[..., Path], tmp_path: Path, wrong: dict[str, Any], code: int, said: str
) -> None:
    """In the same line, with the same exit code."""
    if "broker" in wrong:
        brokers.tls_files(tmp_path)
    path = write(**wrong)
    checked, ran = edged("check", "-c", path), edged("run", "-c", path)
    assert (checked.returncode, ran.returncode) == (code, code)
    (line,) = checked.stderr.splitlines()
    assert said in line
    assert line in ran.stderr.splitlines()


def test_a_check_does_not_disturb_the_daemon_that_runs(mosquitto: EmbeddedBroker, tmp_path: Path) -> None:
    """Its addresses are in use, which is no mistake; nobody connects to them, and they go on serving."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    tinymodel.write_dense_bundle(tmp_path / "dense")
    config: dict[str, Any] = {"models": [MODEL], "metrics": {"prometheus": port}}
    with short_directory() as directory:
        config["local"] = {"socket": str(directory / "s")}
        with DaemonProcess(tmp_path, mosquitto.port, config) as daemon:
            daemon.ready()
            done = edged("check", "-c", daemon.config)
            assert done.returncode == 0
            where = f"127.0.0.1:{port}"
            assert done.stderr == (
                f"edged: warning: metrics.prometheus: {where} is in use, by a daemon that runs or another program\n"
            )
            with urllib.request.urlopen(f"http://{where}/metrics", timeout=10) as response:
                found = promtext.parse(response.read().decode())
            assert promtext.value(found, "edged_transport_local_connects_total") == 0
            assert promtext.value(found, "edged_transport_connects_total") == 1
            assert daemon.stop() == 0
        done = edged("check", "-c", daemon.config)
        assert (done.returncode, done.stderr) == (0, "")


def test_every_feature_is_shown(write: Callable[..., Path], tmp_path: Path) -> None:
    """In a line or two for a person, and whole in JSON."""
    tinymodel.write_rows_bundle(tmp_path / "rows", 8)
    tinymodel.write_memory_bundle(tmp_path / "memory")
    batch = {"max_batch_size": 8, "batch_timeout_micros": 500}
    path = write(
        models=[
            {**MODEL, "priority": "high", "keep_warm_ms": 20}, {"name": "rows", "bundle": "rows", "batch": batch},
            {"name": "memory", "bundle": "memory", "state": {"max_keys": 5, "ahead": 2}},
        ],
        streams=[{**STREAM, "store": True, "qos": 1, "seq": "n", "time": "t", "max_gap_s": 2, "deadline_ms": 300}],
        outbox={"max_bytes": "1MiB", "max_age_s": 60}, clients={"max_requests": 7, "max_payload_bytes": "2MiB"},
        metrics={"prometheus": "127.0.0.1:19464", "interval_s": 3}, replies={"memory_s": 9},
        updates={"max_bytes": "3MiB"}, network={"cpus": [CPU]}, memory_lock="off", drain_timeout_s=4,
    )  # fmt: skip
    done = edged("check", "-c", path)
    assert (done.returncode, done.stderr) == (0, "")
    for part in (
        "every 3 s; for Prometheus at 127.0.0.1:19464/metrics", "16.0 MiB for 9 s",
        "at most 7 unanswered requests each, 2.0 MiB a payload", "bundles of at most 3.0 MiB, 600 s to fetch one",
        f"cpus {CPU}, realtime auto", "memory lock off", "4 s to finish at the end", "priority high",
        "when idle for 20 ms", "at most 8 requests an inference, waits 500 µs for more",
        "at most 5 keys at once, 2 made ahead", "QoS 1", "seq n, time t, a gap above 2 s begins anew",
        "within 300 ms, stored while there is no broker", "at most 1.0 MiB for 60 s", f"in {tmp_path}/state",
    ):  # fmt: skip
        assert part in done.stdout, part
    facts = json.loads(edged("check", "-c", path, "--json").stdout)
    assert (facts["outbox"]["max_bytes"], facts["clients"]["max_requests"]) == (1 << 20, 7)
    assert (facts["metrics"]["address"], facts["updates"]["accept"]) == (["127.0.0.1", 19464], True)
    dense, rows, memory = facts["models"]
    assert (dense["priority"], dense["batch"], dense["state"]) == ("high", None, None)
    assert (rows["batch"], memory["state"], memory["failover"]) == (batch, {"max_keys": 5, "ahead": 2}, None)
    assert (facts["streams"][0]["store"], facts["state_dir"], facts["notes"]) == (True, str(tmp_path / "state"), [])
    assert set(body()) | {"network", "status", "selection", "replies", "log_level", "local"} <= facts.keys()


def test_settings_without_effect_are_named(write: Callable[..., Path]) -> None:
    """One line each, and the configuration is all right."""
    model = {
        **MODEL, "delegates": ["cpu"], "priority": "low", "batch": {"batch_timeout_micros": 100},
        "state": {"max_keys": 9}, "failover": {"probes": 5},
    }  # fmt: skip
    stream = {**STREAM, "topic": "sensors/1/x", "max_keys": 3}
    del stream["key_level"]
    path = write(
        broker={"url": "mqtt://127.0.0.1:1", "protocol": "3.1.1", "session_expiry_s": 60}, models=[model],
        streams=[stream], outbox={"max_bytes": "1MiB", "max_age_s": 60}, replies={"memory_bytes": 0, "memory_s": 60},
        updates={"accept": False, "timeout_s": 30}, clients={"max_payload_bytes": "128MiB"},
    )  # fmt: skip
    done = edged("check", "-c", path)
    assert (done.returncode, done.stdout[-4:]) == (0, "\nok\n")
    told = [line.removeprefix("edged: note: ") for line in done.stderr.splitlines()]
    assert [line.split(": ")[0] for line in told] == [
        "outbox.max_bytes", "outbox.max_age_s", "updates.timeout_s", "replies.memory_s", "broker.session_expiry_s",
        "clients.max_payload_bytes", "models.dense.batch.batch_timeout_micros", "models.dense.state.max_keys",
        "models.dense.failover.probes", "models.dense.priority", "streams.s.max_keys",
    ]  # fmt: skip
    assert told[0] == "outbox.max_bytes: has no effect: no stream has `store: true`"
    assert json.loads(edged("check", "-c", path, "--json").stdout)["notes"] == told


def test_the_defaults_are_no_news(write: Callable[..., Path]) -> None:
    """Also where they are written down."""
    path = write(streams=[STREAM], outbox={"max_bytes": "64MiB"}, updates={"accept": False, "timeout_s": 600})
    assert edged("check", "-c", path).stderr == ""


def test_a_priority_that_is_not_permitted_is_named(write: Callable[..., Path], tmp_path: Path) -> None:
    """Where it was asked for by name; `auto` takes what there is."""
    path = write(models=[{**MODEL, "realtime": "nice"}], network={"realtime": "fifo"})
    config = loads(path.read_text(), "edged.yaml", tmp_path)
    refused = {where: Tried("", "fifo 51 not permitted") for where in ("network", "models.dense")}
    assert told(config, refused) == [
        "network.realtime: has no effect: fifo 51 not permitted for this user",
        "models.dense.realtime: has no effect: fifo 51 not permitted for this user",
    ]
    assert told(loads(json.dumps(body()), "edged.yaml", tmp_path), refused) == []


def told(config: Config, threads: dict[str, Tried]) -> list[str]:
    bundles = {model.name: bundle.read(model.bundle) for model in config.models}
    return list(notes(config, bundles, {m.name: fit(m, bundles[m.name]) for m in config.models}, threads))


def test_cpus_that_are_not_there_are_a_warning(write: Callable[..., Path], tmp_path: Path) -> None:
    """Of the network thread as of a model's: the daemon serves all the same, and its status says so."""
    path = write(models=[{**MODEL, "cpus": [4095]}], network={"cpus": [CPU, 4094]})
    done = edged("check", "-c", path)
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "edged: warning: network.cpus: cpus 4094 not on this machine",
        "edged: warning: models.dense.cpus: cpus 4095 not on this machine",
    ]
    found = _check_threads.tried(loads(path.read_text(), "edged.yaml", tmp_path))
    assert found["network"].cpus == "cpus 4094 not on this machine"


def test_a_state_directory_that_cannot_be_written_is_a_warning(write: Callable[..., Path], tmp_path: Path) -> None:
    """The daemon serves without it, and forgets."""
    done = edged("check", "-c", write(state_dir="edged.yaml/state"))
    assert done.returncode == 0
    assert f"edged: warning: state_dir: {tmp_path}/edged.yaml/state cannot be written" in done.stderr

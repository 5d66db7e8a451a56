"""The daemon as its own process on real brokers, asked by clients that hold no code of ours."""

from __future__ import annotations

import json
import signal
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paho.mqtt.client as paho
import pytest
from support import tinymodel
from support.brokers import FaultProxy, eventually, require_mosquitto
from support.daemons import DEVICE, DaemonProcess
from support.watcher import Watcher

from edged.broker import EmbeddedBroker
from edged.engines.tflite_runtime import Runtime

REQUEST = f"edged/v1/dev/{DEVICE}/req/dense/c/ann"
REPLY = "edged/v1/resp/ann"
STATUS = f"edged/v1/dev/{DEVICE}/status"
X = np.array([[0.5, -1.25, 3.0]], np.float32)


def properties(message: paho.MQTTMessage) -> dict[str, str]:
    return dict(message.properties.UserProperty)


@pytest.fixture(scope="module")
def daemon(mosquitto: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    directory = tmp_path_factory.mktemp("daemon")
    tinymodel.write_dense_bundle(directory / "dense")
    config = {"models": [{"name": "dense", "bundle": "dense"}]}
    with DaemonProcess(directory, mosquitto.port, config) as daemon:
        daemon.ready()
        yield daemon


@pytest.fixture
def ann(mosquitto: EmbeddedBroker) -> Iterator[Watcher]:
    with Watcher(mosquitto.port, f"{REPLY}/#") as watcher:
        yield watcher


def ask(ann: Watcher, payload: bytes, **more: object) -> paho.MQTTMessage:
    ann.publish(REQUEST, payload, **{"ResponseTopic": f"{REPLY}/1", "CorrelationData": b"c", **more})
    return ann.get()


def test_each_runtime_on_each_broker(broker: EmbeddedBroker, runtime: Runtime, tmp_path: Path) -> None:
    """MQTT 5 and 3.1.1, raw, JSON and npy: the bytes of the runtime's own Interpreter, through a real broker."""
    tinymodel.write_dense_bundle(tmp_path / "dense")
    interpreter = runtime.module().Interpreter(model_content=tinymodel.dense_model())
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, X)
    interpreter.invoke()
    expected = interpreter.get_tensor(3)
    v3_port = int(broker.url_v3.rpartition(":")[2])
    config = {"models": [{"name": "dense", "bundle": "dense", "runtime": runtime.name}]}
    with DaemonProcess(tmp_path, broker.port, config) as daemon:
        status = daemon.ready()
        assert status["models"]["dense"]["runtime"].startswith(runtime.name)
        with Watcher(broker.port, f"{REPLY}/#") as v5, Watcher(v3_port, "edged/v1/resp/bob/#", protocol=4) as v3:
            reply = ask(v5, X.tobytes())
            assert (reply.payload, properties(reply)["status"]) == (expected.tobytes(), "ok")
            reply = ask(v5, json.dumps({"instances": X.tolist()}).encode(), ContentType="application/json")
            assert np.array(json.loads(reply.payload)["predictions"], np.float32).tobytes() == expected.tobytes()
            v3.publish(f"edged/v1/dev/{DEVICE}/req/dense/c/bob/77/raw", X.tobytes())
            answer = v3.get()
            assert (answer.topic, answer.payload) == ("edged/v1/resp/bob/77", expected.tobytes())
        assert daemon.stop() == 0


def test_a_repeated_request_is_answered_from_memory(daemon: DaemonProcess, ann: Watcher) -> None:
    """The same Response Topic, correlation and payload: answered twice, run once (the metrics tell)."""
    with Watcher(daemon.port, f"edged/v1/dev/{DEVICE}/metrics") as metrics:
        before = json.loads(metrics.get().payload)["models"]["dense"]["since_start"]["ok"]
        first, second = (ask(ann, X.tobytes(), CorrelationData=b"once") for _ in range(2))
        assert first.payload == second.payload
        metrics.get()
        metrics.get()
        assert json.loads(metrics.get().payload)["models"]["dense"]["since_start"]["ok"] == before + 1


def test_metrics_tell_what_was_asked(daemon: DaemonProcess, ann: Watcher) -> None:
    """150 requests later every stage has 150 more samples, and the encoded histogram says the same."""
    from edged.latency import Histogram

    with Watcher(daemon.port, f"edged/v1/dev/{DEVICE}/metrics") as metrics:
        before = json.loads(metrics.get().payload)["models"]["dense"]["since_start"]["latency"]["total"]["n"]
        for number in range(150):
            ask(ann, X.tobytes(), CorrelationData=struct.pack("<I", number), qos=0)
        model = {}

        def told(message: paho.MQTTMessage) -> bool:
            model.update(json.loads(message.payload)["models"]["dense"])
            return bool(model["since_start"]["latency"]["total"]["n"] >= before + 150)

        metrics.get(told)
        for stage in ("receive", "queue", "decode", "infer", "encode", "publish", "total"):
            assert model["since_start"]["latency"][stage]["n"] == before + 150
            assert Histogram.decode(model["histograms"][stage]).count == before + 150


def test_hangup_rereads_the_configuration(alone: EmbeddedBroker, tmp_path: Path) -> None:
    """SIGHUP says what changed and what waits for a restart; a broken file changes nothing."""
    tinymodel.write_dense_bundle(tmp_path / "dense")
    with DaemonProcess(tmp_path, alone.port, {"models": [{"name": "dense", "bundle": "dense"}]}) as daemon:
        daemon.ready()
        good = daemon.config.read_text()
        body = json.loads(good)
        body["metrics"]["interval_s"], body["models"][0]["threads"] = 0.2, 2
        for text, expected in (
            (json.dumps(body), ["metrics.interval_s: 0.5 → 0.2\n", "threads: 1 → 2 (takes effect at the next start)"]),
            (good.replace("device", "devise"), ["configuration not taken", "did you mean"]),
        ):
            daemon.config.write_text(text)
            daemon.process.send_signal(signal.SIGHUP)
            wait_for_log(daemon, *expected)
        with Watcher(alone.port, f"edged/v1/dev/{DEVICE}/metrics") as metrics:
            metrics.get()
            assert json.loads(metrics.get().payload)["interval_s"] < 0.4
        assert daemon.stop() == 0


def wait_for_log(daemon: DaemonProcess, *texts: str) -> None:
    eventually(lambda: all(text in daemon.log.read_text() for text in texts), f"the log says {texts}")


def test_terminate_answers_what_was_admitted_and_says_stopped(alone: EmbeddedBroker, tmp_path: Path) -> None:
    """SIGTERM with slow requests inside: they are answered, new ones are refused, `stopped` is the last word.

    Four of them, so that the last is far from done when the new one comes, however late that is sent.
    """
    tinymodel.write_slow_bundle(tmp_path / "slow", repeats=8)
    models = [{"name": "slow", "bundle": "slow", "runtime": "ai-edge-litert", "warmup": 0, "deadline_ms": 90_000}]
    topic = f"edged/v1/dev/{DEVICE}/req/slow/c/ann"
    with DaemonProcess(tmp_path, alone.port, {"models": models, "drain_timeout_s": 90}) as daemon:
        daemon.ready(60)
        with Watcher(alone.port, f"{REPLY}/#", STATUS) as ann:
            for number in range(4):
                ann.publish(topic, b"\0" * 4, ResponseTopic=f"{REPLY}/{number}", CorrelationData=b"slow")
            wait_for_admitted(ann)
            daemon.process.send_signal(signal.SIGTERM)
            ann.get(lambda m: m.topic == STATUS and json.loads(m.payload)["state"] == "draining", timeout=60)
            ann.publish(topic, b"\0" * 4, ResponseTopic=f"{REPLY}/late", CorrelationData=b"late")
            replies = [ann.get(lambda m: m.topic.startswith(REPLY), timeout=60) for _ in range(5)]
            by_topic = {m.topic.rpartition("/")[2]: properties(m)["status"] for m in replies}
            assert by_topic == {"0": "ok", "1": "ok", "2": "ok", "3": "ok", "late": "error"}
            assert daemon.stop(60) == 0
        assert daemon.state("stopped")["boot"]


def wait_for_admitted(ann: Watcher) -> None:
    """What one client sends comes in order: the refusal for a model that is none says that all before it are in."""
    nobody = f"edged/v1/dev/{DEVICE}/req/nobody/c/ann"
    ann.publish(nobody, b"", ResponseTopic=f"{REPLY}/nobody", CorrelationData=b"mark")
    ann.get(lambda m: m.topic == f"{REPLY}/nobody")


def test_a_hanging_invoke_is_answered_at_its_deadline(alone: EmbeddedBroker, tmp_path: Path) -> None:
    """The invoke takes seconds; the reply comes at the deadline, while it still runs, and status says stuck."""
    tinymodel.write_slow_bundle(tmp_path / "slow", repeats=40)
    models = [{"name": "slow", "bundle": "slow", "runtime": "ai-edge-litert", "warmup": 0}]
    config = {"models": models, "status": {"stuck_floor_ms": 300}, "drain_timeout_s": 0.1}
    with DaemonProcess(tmp_path, alone.port, config) as daemon:
        daemon.ready(90)
        with Watcher(alone.port, f"{REPLY}/#", STATUS) as ann:
            ann.publish(
                f"edged/v1/dev/{DEVICE}/req/slow/c/ann", b"\0" * 4,
                ResponseTopic=f"{REPLY}/1", CorrelationData=b"c", UserProperty=("deadline-ms", "200"),
            )  # fmt: skip
            reply = ann.get(lambda m: m.topic.startswith(REPLY))
            assert json.loads(reply.payload)["error"]["code"] == "DEADLINE_EXCEEDED"
            stuck = json.loads(ann.get(lambda m: m.topic == STATUS and b'"stuck"' in m.payload).payload)
            assert stuck["state"] == "stuck"
            assert json.loads(ann.get(lambda m: m.topic == STATUS and b'"state": "ready"' in m.payload).payload)


def test_kill_shows_lost_and_restart_shows_ready(alone: EmbeddedBroker, tmp_path: Path) -> None:
    """A late subscriber sees the truth after kill -9 and after the restart; the two starts have different boots."""
    tinymodel.write_dense_bundle(tmp_path / "dense")
    with DaemonProcess(tmp_path, alone.port, {"models": [{"name": "dense", "bundle": "dense"}]}) as daemon:
        first = daemon.ready()["boot"]
        daemon.kill()
        lost = daemon.state("lost")
        assert (lost["boot"], lost["models"]) == (first, {})  # nothing is said of models that nobody watches
        daemon.restart()
        assert daemon.ready()["boot"] != first
        assert daemon.stop() == 0


def test_restart_over_a_half_open_link_ends_in_ready(alone: EmbeddedBroker, tmp_path: Path) -> None:
    """The broker still holds the dead process's connection; its late will must not stand over the new `ready`."""
    tinymodel.write_dense_bundle(tmp_path / "dense")
    with FaultProxy(alone.port) as proxy:
        models = {"models": [{"name": "dense", "bundle": "dense"}]}
        with DaemonProcess(tmp_path, proxy.port, models) as daemon:
            daemon.port = alone.port
            first = daemon.ready()["boot"]
            proxy.blackhole()
            daemon.kill()
            assert daemon.state("ready")["boot"] == first  # the broker has not noticed
            daemon.config.write_text(daemon.config.read_text().replace(str(proxy.port), str(alone.port)))
            with Watcher(alone.port, STATUS) as watcher:
                watcher.get()
                daemon.restart()
                new = lambda m: json.loads(m.payload)["boot"] != first and json.loads(m.payload)["state"] == "ready"  # noqa: E731
                watcher.get(new)
            assert daemon.ready()["boot"] != first
            proxy.cut()
            assert daemon.ready()["boot"] != first
            assert daemon.stop() == 0


def test_a_foreign_lost_is_put_right(alone: EmbeddedBroker, tmp_path: Path) -> None:
    """Somebody overwrites the retained status: the daemon puts the truth back, long before its next metrics."""
    tinymodel.write_dense_bundle(tmp_path / "dense")
    config = {"models": [{"name": "dense", "bundle": "dense"}], "metrics": {"interval_s": 600}}
    with DaemonProcess(tmp_path, alone.port, config) as daemon:
        daemon.ready()
        with Watcher(alone.port, STATUS) as watcher:
            watcher.get()
            watcher.publish(STATUS, json.dumps({"state": "lost", "boot": "old"}).encode(), retain=True)
            watcher.get(lambda m: json.loads(m.payload).get("boot") == "old")
            watcher.get(lambda m: json.loads(m.payload)["state"] == "ready")
        assert daemon.state("ready")["boot"] != "old"


def test_it_starts_before_its_broker(tmp_path: Path) -> None:
    """No broker at the start: the daemon waits, then connects and is ready."""
    require_mosquitto()
    tinymodel.write_dense_bundle(tmp_path / "dense")
    with EmbeddedBroker("mosquitto") as broker:
        broker.kill()
        models = {"models": [{"name": "dense", "bundle": "dense"}]}
        with DaemonProcess(tmp_path, broker.port, models) as daemon:
            wait_for_log(daemon, "model dense: ready", "Connection refused")
            broker.restart()
            daemon.ready(60)
            assert daemon.stop() == 0


def test_a_model_that_fails_its_golden_samples_is_not_served(alone: EmbeddedBroker, tmp_path: Path) -> None:
    """Degraded, with output and figure in the status; requests to it are UNAVAILABLE, the other model serves."""
    tinymodel.write_dense_bundle(tmp_path / "good")
    tinymodel.write_dense_bundle(tmp_path / "bad", wrong_golden=True)
    models = [{"name": name, "bundle": name} for name in ("good", "bad")]
    with DaemonProcess(tmp_path, alone.port, {"models": models}) as daemon:
        status = daemon.state("degraded")
        assert "off by 1" in status["reason"]
        assert status["models"]["good"]["state"] == "ready"
        with Watcher(alone.port, f"{REPLY}/#") as ann:
            for model, expected in (("good", "ok"), ("bad", "error")):
                topic = f"edged/v1/dev/{DEVICE}/req/{model}/c/ann"
                ann.publish(topic, X.tobytes(), ResponseTopic=f"{REPLY}/1", CorrelationData=model.encode())
                assert properties(ann.get())["status"] == expected


def test_terminate_during_the_first_trial_ends_at_once(alone: EmbeddedBroker, tmp_path: Path) -> None:
    """The child that tries the bundle would run for minutes: SIGTERM ends both, exit 0, nothing left behind."""
    tinymodel.write_slow_bundle(tmp_path / "slow", repeats=400)
    models = [{"name": "slow", "bundle": "slow", "runtime": "ai-edge-litert"}]
    with DaemonProcess(tmp_path, alone.port, {"models": models}) as daemon:
        wait_for_log(daemon, "trying slow")
        eventually(lambda: children(daemon.process.pid), "the trial runs")
        (child,) = children(daemon.process.pid)
        assert daemon.stop() == 0
        eventually(lambda: not Path(f"/proc/{child}").exists(), "the child is gone")
        assert daemon.state("stopped")


def children(pid: int) -> list[str]:
    threads = Path(f"/proc/{pid}/task").iterdir()
    return [child for thread in threads for child in (thread / "children").read_text().split()]


def test_two_daemons_of_one_name_do_not_storm(alone: EmbeddedBroker, tmp_path: Path) -> None:
    """Each puts the other's status right, but not at once: a few messages a second, not thousands."""
    tinymodel.write_dense_bundle(tmp_path / "dense")
    config = {"models": [{"name": "dense", "bundle": str(tmp_path / "dense")}], "metrics": {"interval_s": 60}}
    with (
        DaemonProcess(tmp_path / "1", alone.port, {**config, "broker": {"client_id": "one"}}) as first,
        DaemonProcess(tmp_path / "2", alone.port, {**config, "broker": {"client_id": "two"}}),
    ):
        first.ready()
        with Watcher(alone.port, STATUS) as watcher:
            time.sleep(3)
            assert 2 < watcher.messages.qsize() < 40

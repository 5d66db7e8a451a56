"""A model that keeps state, served: each user and each stream has its own, bit for bit that of an interpreter alone."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import tinymodel
from support.commands import edged
from support.daemons import DEVICE, DaemonProcess
from support.watcher import StatusBoard, Watcher

from edged.broker import EmbeddedBroker
from edged.client import Client
from edged.engines.tflite_runtime import Runtime

MODEL = {"name": "memory", "bundle": "memory", "state": {"max_keys": 5}}
STREAMS = [
    {"name": name, "topic": f"sensors/+/{name}", "key_level": 1, "fields": ["a", "b", "c"], "model": "memory",
     "window": {"length": 1, "hop": 1}, "qos": 1}
    for name in ("left", "right")
]  # fmt: skip


def bare(runtime: Runtime, steps: Any) -> list[bytes]:
    """What one interpreter answers to these steps."""
    made = runtime.module().Interpreter(model_content=tinymodel.memory_model(), num_threads=1)
    made.allocate_tensors()
    answers = []
    for step in steps:
        made.set_tensor(made.get_input_details()[0]["index"], step[None])
        made.invoke()
        answers.append(made.get_tensor(made.get_output_details()[0]["index"]).tobytes())
    return answers


def drawn(seed: int, count: int) -> Any:
    return np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32)


class Asker(Watcher):
    """One user, with or without keys of its own, over MQTT 5; `ask` answers with the payload."""

    def __init__(self, port: int, user: str) -> None:
        super().__init__(port, f"edged/v1/resp/{user}/#")
        self._user, self._count = user, 0

    def ask(self, step: Any, own: str | None = None, correlation: int | None = None) -> bytes:
        self._count += 1
        number = self._count if correlation is None else correlation
        more = {} if own is None else {"UserProperty": [("state-key", own)]}
        self.publish(
            f"edged/v1/dev/{DEVICE}/req/memory/c/{self._user}", step[None].tobytes(),
            ResponseTopic=f"edged/v1/resp/{self._user}/1", CorrelationData=struct.pack("<I", number), **more,
        )  # fmt: skip
        return bytes(self.get().payload)


def test_every_key_is_an_interpreter_of_its_own(alone: EmbeddedBroker, runtime: Runtime, tmp_path: Path) -> None:
    """Two users, one of them with keys of its own, interleaved: each sequence is that of a bare Interpreter.

    Golden samples and warm-up ran before; a repeat is answered and takes no step.
    """
    tinymodel.write_memory_bundle(tmp_path / "memory")
    config = {"models": [{**MODEL, "runtime": runtime.name}]}
    whose = [("ann", None), ("bob", None), ("ann", "line 1"), ("ann", "line/2")]
    steps = [drawn(seed, 12) for seed in range(len(whose))]
    with DaemonProcess(tmp_path, alone.port, config) as daemon:
        daemon.ready()
        with Asker(alone.port, "ann") as ann, Asker(alone.port, "bob") as bob:
            users = {"ann": ann, "bob": bob}
            answers: list[list[bytes]] = [[] for _ in whose]
            for at in range(12):
                for number, (user, own) in enumerate(whose):
                    answers[number].append(users[user].ask(steps[number][at], own))
            assert answers == [bare(runtime, some) for some in steps]
            again = [bob.ask(steps[1][0], correlation=999), bob.ask(steps[1][0], correlation=999)]
            after = bob.ask(steps[1][1])
            assert [*answers[1], again[0], after] == bare(runtime, [*steps[1], *steps[1][:2]])
            assert again[0] == again[1]
        with StatusBoard(alone.port, DEVICE) as board:
            board.wait(lambda said: said["models"]["memory"]["keyed"]["steps"] == 50)
            state = board.model("memory")["keyed"]
            assert (state["keys"], state["max_keys"], state["gaps"], board.model("memory")["state"]) == (
                4,
                5,
                0,
                "ready",
            )
            assert state["bytes_each"] is not None


def test_equal_requests_for_two_keys_are_two_steps(alone: EmbeddedBroker, runtime: Runtime, tmp_path: Path) -> None:
    """One user, one correlation, one payload, two keys whose states differ: each gets the answer of its own state."""
    tinymodel.write_memory_bundle(tmp_path / "memory")
    steps = drawn(1, 2)
    with DaemonProcess(tmp_path, alone.port, {"models": [{**MODEL, "runtime": runtime.name}]}) as daemon:
        daemon.ready()
        with Asker(alone.port, "ann") as ann:
            before = ann.ask(steps[0], "a")
            answers = [ann.ask(steps[1], own, correlation=999) for own in ("a", "b")]
    assert ([before, answers[0]], answers[1:]) == (bare(runtime, steps), bare(runtime, steps[1:]))


def test_streams_with_equal_keys_share_nothing(alone: EmbeddedBroker, runtime: Runtime, tmp_path: Path) -> None:
    """Two streams and a sensor `a` in each: both are right, window by window, in order."""
    tinymodel.write_memory_bundle(tmp_path / "memory")
    config = {"models": [{**MODEL, "runtime": runtime.name}], "streams": STREAMS}
    steps = {"left": drawn(1, 10), "right": drawn(2, 10)}
    with DaemonProcess(tmp_path, alone.port, config) as daemon:
        daemon.ready()
        with Watcher(alone.port, f"edged/v1/dev/{DEVICE}/out/#") as out:
            for at in range(10):
                for name, some in steps.items():
                    sample = dict(zip("abc", map(float, some[at]), strict=True))
                    out.publish(f"sensors/a/{name}", json.dumps(sample).encode())
            found: dict[str, list[bytes]] = {"left": [], "right": []}
            for _ in range(20):
                body = json.loads(out.get().payload)
                assert body["n"] == len(found[body["stream"]])
                found[body["stream"]].append(np.array(body["predictions"], np.float32).tobytes())
    assert found == {name: bare(runtime, some) for name, some in steps.items()}


def test_many_futures_of_one_user_are_steps_in_order(alone: EmbeddedBroker, runtime: Runtime, tmp_path: Path) -> None:
    """Sixty requests in flight at once through edged.Client: the n-th answer is the n-th of one interpreter."""
    tinymodel.write_memory_bundle(tmp_path / "memory")
    steps = drawn(7, 60)
    with DaemonProcess(tmp_path, alone.port, {"models": [{**MODEL, "runtime": runtime.name}]}) as daemon:
        daemon.ready()
        with Client(f"mqtt://127.0.0.1:{alone.port}", user="ann") as client:
            futures = [client.infer_async(DEVICE, "memory", step[None], deadline_ms=20_000) for step in steps]
            answers = [future.result(30).outputs["y"].tobytes() for future in futures]
    assert answers == bare(runtime, steps)


def test_the_sdk_and_the_command_name_a_state(alone: EmbeddedBroker, runtime: Runtime, tmp_path: Path) -> None:
    """Steps of two keys of one user, by Client and by `edged infer --state-key`: each goes on with its own state."""
    tinymodel.write_memory_bundle(tmp_path / "memory")
    steps = {key: drawn(seed, 4) for seed, key in enumerate(("line/1", "line/2", None))}
    answers: dict[str | None, list[bytes]] = {key: [] for key in steps}
    with DaemonProcess(tmp_path, alone.port, {"models": [{**MODEL, "runtime": runtime.name}]}) as daemon:
        daemon.ready()
        with Client(f"mqtt://127.0.0.1:{alone.port}", user="ann") as client:
            for at in range(3):
                for key, some in steps.items():
                    result = client.infer(DEVICE, "memory", some[at][None], state_key=key, deadline_ms=20_000)
                    answers[key].append(result.outputs["y"].tobytes())
        np.save(tmp_path / "step.npy", steps["line/2"][3][None])
        where = ("--broker", f"mqtt://127.0.0.1:{alone.port}", "--device", DEVICE, "--model", "memory", "--user", "ann")
        infer = ("infer", *where, "--state-key", "line/2", "--deadline-ms", "20000", "--json", tmp_path / "step.npy")
        done = edged(*infer)
        assert done.returncode == 0, done.stderr
        answers["line/2"].append(np.array(json.loads(done.stdout)["outputs"]["y"]["values"], np.float32).tobytes())
        old = edged(*infer, "--protocol", "3.1.1")
        assert (old.returncode, "a state key needs MQTT 5" in old.stderr) == (65, True)
    assert answers == {key: bare(runtime, some[: len(answers[key])]) for key, some in steps.items()}


def test_wrong_golden_samples_of_a_sequence_are_found(alone: EmbeddedBroker, tmp_path: Path) -> None:
    """They are run in order from the first state: right ones pass (above), wrong ones keep the model from serving."""
    tinymodel.write_memory_bundle(tmp_path / "memory", wrong_golden=True)
    with DaemonProcess(tmp_path, alone.port, {"models": [MODEL]}) as daemon, StatusBoard(alone.port, DEVICE) as board:
        board.wait(lambda said: said["models"]["memory"]["state"] == "failed")
        assert "golden sample" in board.model("memory")["reason"]
        assert daemon.stop() == 0


@pytest.mark.parametrize("command", ["run", "check", "delegates"])
def test_an_accelerator_by_name_is_refused(alone: EmbeddedBroker, tmp_path: Path, command: str) -> None:
    """By every command that reads the configuration, in the same words."""
    tinymodel.write_memory_bundle(tmp_path / "memory")
    config = tmp_path / "edged.yaml"
    models = [{**MODEL, "delegates": ["gpu", "cpu"]}]
    broker = {"url": f"mqtt://127.0.0.1:{alone.port}"}
    config.write_text(json.dumps({"device": DEVICE, "broker": broker, "state_dir": "state", "models": models}))
    done = edged(command, "-c", config)
    assert done.returncode == 78
    assert "models.memory.delegates: gpu (number 1) cannot serve a model that keeps state" in done.stderr


def test_delegates_measures_the_cpu_alone(tmp_path: Path) -> None:
    """Each runtime agrees with the golden samples, run in order from the first state; nothing else is looked for."""
    tinymodel.write_memory_bundle(tmp_path / "memory")
    config = tmp_path / "edged.yaml"
    body = {"device": DEVICE, "broker": {"url": "mqtt://x"}, "state_dir": "state", "models": [MODEL]}
    config.write_text(json.dumps(body))
    done = edged("delegates", "-c", config, "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["models"][0]["candidates"]
    assert {row["delegate"] for row in rows} == {"cpu"}
    assert {row["verdict"] for row in rows} <= {"chosen", "slower"}
    assert all(row["worst"] is not None and row["worst"] < 1 for row in rows)

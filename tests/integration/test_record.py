"""`edged record` against a real mosquitto: windows bit-exact beside a running daemon, payloads, every way to end."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support import brokers, require, tinymodel
from support.commands import edged
from support.daemons import DEVICE, DaemonProcess
from support.watcher import Watcher

from converters import sources
from converters.samples import InputInfo
from edged.broker import EmbeddedBroker

LENGTH, HOP = 4, 2
STREAM = {
    "name": "pair", "topic": "sensors/+/pair", "key_level": 1, "fields": ["a", "b"], "seq": "n", "qos": 1,
    "window": {"length": LENGTH, "hop": HOP}, "model": "add",
}  # fmt: skip
FOREVER = 30_000


def write_config(folder: Path, port: int, **more: Any) -> Path:
    body = {
        "device": DEVICE,
        "broker": {"url": f"mqtt://127.0.0.1:{port}", **more},
        "models": [{"name": "add", "bundle": "add"}],
        "streams": [STREAM],
    }
    (folder / "edged.yaml").write_text(json.dumps(body))
    return folder / "edged.yaml"


def pair(n: int) -> list[float]:
    """The sample number n: `a` says which it is, `b` is no round number."""
    return [float(n), float(np.float32(np.sin(n) / 3))]


def publish(watcher: Watcher, n: int, key: str = "left") -> None:
    a, b = pair(n)
    watcher.publish(f"sensors/{key}/pair", json.dumps({"n": n, "a": a, "b": b}).encode())


def window(first: int) -> npt.NDArray[np.float32]:
    return np.array([pair(n) for n in range(first, first + LENGTH)], np.float32)


def array(path: Path, name: str) -> npt.NDArray[Any]:
    with np.load(path, allow_pickle=False) as found:
        return np.array(found[name])


@contextlib.contextmanager
def sensors(port: int, *keys: str) -> Iterator[None]:
    """Sensors that send from now on, a sample each in 2 ms."""
    over = threading.Event()

    def send() -> None:
        with Watcher(port) as watcher:
            for n in range(FOREVER):
                if over.wait(0.002):
                    return
                for key in keys:
                    publish(watcher, n, key)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Terminal:
    """`edged record` with its progress on a terminal of its own."""

    def __init__(self, *args: object) -> None:
        master, slave = pty.openpty()
        self._master, self.shown = master, ""
        command = [sys.executable, "-m", "edged", "record", *map(str, args)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=slave, text=True)
        os.close(slave)

    def until(self, text: str) -> None:
        """Read what is shown until `text` is among it."""
        deadline = time.monotonic() + 20
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            self.read()

    def read(self) -> None:
        """Wait for the next piece; the progress line comes several times a second."""
        self.shown += os.read(self._master, 4096).decode()

    def end(self, number: int) -> str:
        """Send the signal; returns standard output. The exit code must be 0."""
        self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=20)
        os.close(self._master)
        assert self.process.returncode == 0, out
        return out


def _answers_of_one_run(watcher: Watcher, recorder: Terminal) -> list[npt.NDArray[np.float32]]:
    """Send until the recorder hears it, then a run from 0, where both begin a window; return half of each answer."""
    warm = 1000
    while not re.search(r"[1-9]\d* samples", recorder.shown):
        publish(watcher, warm)
        warm += 1
        recorder.read()
    for n in range(40):
        publish(watcher, n)
    for n in range(LENGTH):  # whoever has seen this key has seen all before it
        publish(watcher, n, "right")
    answers: list[npt.NDArray[np.float32]] = []
    while len(answers) < (40 - LENGTH) // HOP + 1:
        body = json.loads(watcher.get(lambda m: "/out/" in m.topic).payload)
        if body["seq"] < 1000 and body["key"] == "left":
            answers.append(np.array(body["predictions"], np.float32) / 2)
    return answers


@pytest.mark.broker
def test_a_recording_is_what_the_daemon_fed_its_model(mosquitto: EmbeddedBroker, tmp_path: Path) -> None:
    """Beside a running daemon whose model doubles its window: every answer is twice a recorded window, bit for bit.

    The daemon keeps its connection, and the converter takes the file without TensorFlow.
    """
    tinymodel.write_add_bundle(tmp_path / "add", LENGTH * 2)
    config = {"models": [{"name": "add", "bundle": "add"}], "streams": [STREAM]}
    with DaemonProcess(tmp_path, mosquitto.port, config) as daemon:
        daemon.ready()
        with Watcher(daemon.port, f"edged/v1/dev/{DEVICE}/out/#", f"edged/v1/dev/{DEVICE}/metrics") as watcher:
            recorder = Terminal("-c", daemon.config, "-o", tmp_path / "calib.npz")
            recorder.until("Ctrl-C ends it")
            answers = _answers_of_one_run(watcher, recorder)
            recorder.until("2 keys")
            told = recorder.end(signal.SIGINT)
            metrics = json.loads(watcher.get(lambda m: m.topic.endswith("/metrics")).payload)
    assert metrics["transport"]["disconnects"] == 0
    recorded = array(tmp_path / "calib.npz", "x")
    fresh = recorded[recorded[:, 0, 0] < 1000][:-1]  # without the one of the other key
    np.testing.assert_array_equal(fresh[:, 0], np.concatenate(answers))
    np.testing.assert_array_equal(fresh.reshape(-1, LENGTH, 2), [window(n) for n in range(0, 37, HOP)])
    assert "(ended by Ctrl-C)" in told
    taken = sources.load("calib.npz", (InputInfo("x", "float32", (1, 8)),), cwd=tmp_path, image=None)
    np.testing.assert_array_equal(taken.arrays["x"], recorded)
    assert "tensorflow" not in sys.modules


@pytest.mark.broker
def test_a_balanced_recording_ends_by_itself(mosquitto: EmbeddedBroker, tmp_path: Path) -> None:
    """--per-key and --count: five windows of each of two sensors, whole and a hop apart; no bundle is needed."""
    config = write_config(tmp_path, mosquitto.port)
    with sensors(mosquitto.port, "left", "right"):
        done = edged("record", "-c", config, "-o", tmp_path / "c.npz", "--count", 10, "--per-key", 5, "--json")
    assert done.returncode == 0, done.stderr
    assert "the bundle of add cannot be read" in done.stderr
    facts = json.loads(done.stdout)
    assert (facts["samples"], facts["keys"], facts["ended_by"]) == (10, {"left": 5, "right": 5}, "--count")
    assert facts["counters"]["bad"] == 0
    recorded = array(tmp_path / "c.npz", "input")
    assert (recorded.shape, recorded.dtype) == ((10, 1, LENGTH, 2), np.float32)
    starts = [int(sample[0, 0, 0]) for sample in recorded]
    np.testing.assert_array_equal(recorded[:, 0], [window(start) for start in starts])
    # The subscription may begin between a sample of the one sensor and the same of the other.
    first, other = min(starts), max(starts) - 4 * HOP
    assert sorted(starts) == sorted(start + HOP * n for start in (first, other) for n in range(5))


@pytest.mark.broker
def test_labelled_recordings_are_joined(mosquitto: EmbeddedBroker, tmp_path: Path) -> None:
    """One class after the other into one file for --eval; a file that is there is never replaced unasked."""
    config, target = write_config(tmp_path, mosquitto.port), tmp_path / "e.npz"
    common = ("record", "-c", config, "-o", target, "--count", 3, "--input", "x")
    with sensors(mosquitto.port, "left"):
        first = edged(*common, "--label", "sit")
        assert first.returncode == 0, first.stderr
        kept = target.read_bytes()
        assert edged(*common, "--label", "walking").returncode == 2
        assert edged(*common, "--append").returncode == 2
        assert target.read_bytes() == kept
        joined = edged(*common, "--append", "--label", "walking")
    assert joined.returncode == 0, joined.stderr
    assert "6 with those before" in joined.stdout
    samples = sources.load("e.npz", (InputInfo("x", "float32", (1, 4, 2)),), cwd=tmp_path, image=None, labels=True)
    assert samples.labels is not None
    assert samples.labels.tolist() == ["sit"] * 3 + ["walking"] * 3
    assert samples.count == 6


@pytest.mark.broker
def test_payloads_of_requests_are_recorded(mosquitto: EmbeddedBroker, tmp_path: Path) -> None:
    """What clients send the model, in both topic forms; rubbish and what the daemon would not run is counted, told."""
    tinymodel.write_add_bundle(tmp_path / "add", 3)
    config = write_config(tmp_path, mosquitto.port)
    values = np.float32([0.1, -2, 3e7])
    request = f"edged/v1/dev/{DEVICE}/req/add/c/tom"
    recorder = Terminal("-c", config, "-o", tmp_path / "r.npz", "--model", "add", "--json")
    recorder.until("Ctrl-C ends it")
    with Watcher(mosquitto.port) as watcher:
        time.sleep(0.2)
        mine = {"ResponseTopic": "edged/v1/resp/tom/1"}
        body = json.dumps({"instances": [values.tolist()]}).encode()
        watcher.publish(request, values.tobytes())  # nobody could be answered
        watcher.publish(request, values.tobytes(), **mine)
        watcher.publish(request, body, ContentType="application/json", **mine)
        watcher.publish(f"{request}/77/raw", (-values).tobytes())
        watcher.publish(f"{request}/77/raw", (-values).tobytes())  # again
        watcher.publish(request, b"rubbish", **mine)
        recorder.until("3 samples, 1 keys")
        recorder.until("1 not usable")
    facts = json.loads(recorder.end(signal.SIGTERM))
    np.testing.assert_array_equal(array(tmp_path / "r.npz", "x"), np.stack([values, values, -values])[:, np.newaxis])
    assert (facts["ended_by"], facts["keys"], facts["counters"]["bad"]) == ("SIGTERM", {"tom": 3}, 1)
    assert (facts["counters"]["repeats"], facts["counters"]["refused_no_response_topic"]) == (1, 1)
    assert facts["reasons"][0] == f"{request}: it has no Response Topic"


@pytest.mark.broker
def test_nothing_recorded_is_no_file(mosquitto: EmbeddedBroker, tmp_path: Path) -> None:
    """Silence and rubbish alone end with 65, say which it was, and leave the directory as it was."""
    config = write_config(tmp_path, mosquitto.port)
    args = ("record", "-c", config, "-o", tmp_path / "c.npz", "--topic", "sensors/quiet/pair", "--seconds")
    silent = edged(*args, 0.3)
    assert silent.returncode == 65
    assert "sensors/quiet/pair: no message came until --seconds (does anything publish there" in silent.stderr
    with Watcher(mosquitto.port) as watcher:
        over = threading.Event()

        def send() -> None:
            while not over.wait(0.02):
                watcher.publish("sensors/quiet/pair", b"rubbish", qos=0)

        thread = threading.Thread(target=send)
        thread.start()
        spoiled = edged(*args, 1)
        over.set()
        thread.join()
    assert spoiled.returncode == 65
    assert "bad) (sensors/quiet/pair: not JSON" in spoiled.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["edged.yaml"]


@pytest.mark.broker
def test_two_recordings_are_not_one(mosquitto: EmbeddedBroker, tmp_path: Path) -> None:
    """The second --append to one file is refused while the first lasts, and nothing of the first is lost."""
    config, target = write_config(tmp_path, mosquitto.port), tmp_path / "c.npz"
    common = ("-c", config, "-o", target, "--input", "x", "--append")
    recorder = Terminal(*common, "--json")
    recorder.until("Ctrl-C ends it")
    refused = edged("record", *common, "--seconds", 1)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "c.npz is being recorded by another process" in refused.stderr
    with sensors(mosquitto.port, "left"):
        recorder.until("keys")
        while not re.search(r"[1-9]\d* samples", recorder.shown):
            recorder.read()
        facts = json.loads(recorder.end(signal.SIGTERM))
        again = edged("record", *common, "--count", 2)
    assert again.returncode == 0, again.stderr
    assert len(array(target, "x")) == facts["samples"] + 2


@pytest.mark.broker
def test_a_dropped_terminal_ends_it_well(mosquitto: EmbeddedBroker, tmp_path: Path) -> None:
    """The terminal goes away as with ssh: SIGHUP, and nothing can be printed; the file is written, the code is 0."""
    require.programs("setsid")
    config = write_config(tmp_path, mosquitto.port)
    command = [sys.executable, "-m", "edged", "record", "-c", config, "-o", tmp_path / "c.npz", "--input", "x"]
    master, slave = pty.openpty()
    words = ["setsid", "--ctty", *map(str, command)]
    # A test before this one may have left it ignored, as nohup does, and a recorder respects that.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave)
    signal.signal(signal.SIGHUP, before)
    os.close(slave)
    shown = ""
    with sensors(mosquitto.port, "left"):
        while not re.search(r"[1-9]\d* samples", shown):
            shown += os.read(master, 4096).decode()
        os.close(master)
        assert process.wait(timeout=20) == 0
    assert len(array(tmp_path / "c.npz", "x"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.npz", "edged.yaml"]


@pytest.mark.broker
def test_no_window_is_patched_over_a_restart_of_the_broker(tmp_path: Path) -> None:
    """A stream without numbers, a broker that goes away between samples: every window holds samples in a row."""
    stream = {**STREAM, "fields": ["n", "a", "b"], "window": {"length": 4, "hop": 4}}
    del stream["seq"]
    with brokers.mosquitto() as broker:
        config = write_config(tmp_path, broker.port)
        body = json.loads(config.read_text())
        config.write_text(json.dumps({**body, "streams": [stream]}))
        recorder = Terminal("-c", config, "-o", tmp_path / "c.npz", "--input", "x", "--json")
        recorder.until("Ctrl-C ends it")
        with Watcher(broker.port) as watcher:
            time.sleep(0.2)
            for n in range(6):
                publish(watcher, n)
            recorder.until("1 samples")
            time.sleep(0.2)
        broker.kill()
        recorder.until("no connection")
        broker.restart()
        with Watcher(broker.port) as watcher:
            n = 100
            while not re.search(r"[3-9] samples", recorder.shown):
                publish(watcher, n)
                n += 1
                recorder.read()
        facts = json.loads(recorder.end(signal.SIGTERM))
    rows = array(tmp_path / "c.npz", "x")[:, 0, :, 0]
    np.testing.assert_array_equal(np.diff(rows), np.ones_like(rows[:, 1:]))
    assert (facts["disconnects"], facts["counters"]["interrupted"]) == (1, 1)


def test_without_a_broker_there_is_nothing_to_record(tmp_path: Path) -> None:
    """69 within the time that was given, and no file."""
    config = write_config(tmp_path, 1)
    done = edged("record", "-c", config, "-o", tmp_path / "c.npz", "--connect-timeout", 0.5, "--input", "x")
    assert done.returncode == 69
    assert done.stderr.startswith("edged: 127.0.0.1:1: no connection within 0.5 s")
    assert [path.name for path in tmp_path.iterdir()] == ["edged.yaml"]

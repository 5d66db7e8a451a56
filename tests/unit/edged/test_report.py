"""What the daemon says of itself is true: state, counters, intervals, and a stuck invoke."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.brokers import eventually
from support.engines import ScriptedEngine
from support.rig import WorkerRig

from edged.contract import DeviceState
from edged.engines.base import EngineInfo
from edged.latency import Histogram
from edged.report import Hang, Identity, Report, held, process_facts

X = np.zeros((1, 3), np.float32).tobytes()


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def rig(tmp_path: Path, engine: ScriptedEngine) -> Iterator[WorkerRig]:
    rig = WorkerRig(tmp_path, lambda: engine)
    yield rig
    engine.hang.set()
    rig.stop() if rig.worker._thread.ident else rig.sweeper.stop()


def report_on(rig: WorkerRig, hang: Hang | None = None) -> Report:
    report = Report(
        Identity("box", "b1"), hang or Hang(20.0, 5000), lambda: {"name": "test"}, lambda: {"s": {"samples": 1}}
    )
    report.watch({"m": rig.worker})
    return report


def serve(rig: WorkerRig, count: int) -> None:
    for _ in range(count):
        rig.router.submit(rig.inbox.request(X))
        rig.inbox.get()


def test_state_follows_the_models(rig: WorkerRig) -> None:
    """starting until the engine is open, then ready."""
    report = report_on(rig)
    assert report.state() == ("starting", "")
    rig.start()
    assert report.state() == ("ready", "")


def test_a_failed_model_degrades_the_device_and_says_why(tmp_path: Path) -> None:
    """The reason of the engine stands in the status."""

    def broken() -> ScriptedEngine:
        msg = "no such device"
        raise OSError(msg)

    rig = WorkerRig(tmp_path, broken).start()
    assert report_on(rig).state() == ("degraded", "m: no such device")
    rig.stop()


def test_an_invoke_beyond_the_floor_is_stuck_and_recovers(rig: WorkerRig, engine: ScriptedEngine) -> None:
    """stuck while it hangs, in the device's state and the model's; ready when it came back."""
    rig.start()
    report = report_on(rig, Hang(factor=2.0, floor_ms=20))
    engine.hang.clear()
    rig.router.submit(rig.inbox.request(X))
    eventually(lambda: report.state()[0] == "stuck", "the state says stuck")
    status = report.status(*report.state())
    assert status["models"]["m"]["state"] == "stuck"  # type: ignore[index]
    assert status["models"]["m"]["queue_depth"] == 1  # type: ignore[index]
    engine.hang.set()
    eventually(lambda: report.state()[0] == "ready", "the state says ready again")


def test_nothing_is_stuck_before_the_floor(rig: WorkerRig, engine: ScriptedEngine) -> None:
    """A first invoke has no P99 to be compared with: the floor alone decides."""
    rig.start()
    report = report_on(rig, Hang(factor=2.0, floor_ms=60_000))
    engine.hang.clear()
    rig.router.submit(rig.inbox.request(X))
    eventually(lambda: rig.worker.busy_since_ns != 0, "the worker is busy")
    time.sleep(0.02)
    assert report.state()[0] == "ready"


def test_a_slow_model_is_not_stuck_before_its_factor(rig: WorkerRig, engine: ScriptedEngine) -> None:
    """The floor has passed, 1,000 times its own P99 has not."""
    rig.start()
    engine.hang.clear()
    rig.router.submit(rig.inbox.request(X))
    eventually(lambda: rig.worker.busy_since_ns != 0, "the worker is busy")
    for _ in range(200):
        rig.worker.figures.latency._stages["infer"].record(50_000_000)
    eventually(lambda: Report._is_stuck(report_on(rig, Hang(1e-9, 5)), rig.worker), "the floor has passed")
    assert report_on(rig, Hang(factor=1000.0, floor_ms=5)).state()[0] == "ready"


def test_the_inputs_are_those_of_one_request(tmp_path: Path) -> None:
    """Where the bundle has four rows and a request is one of them, the status says what a request is."""
    rig = WorkerRig(tmp_path, ScriptedEngine, rows=4)
    (told,) = report_on(rig).status(DeviceState.STARTING)["models"]["m"]["inputs"]  # type: ignore[index]
    assert told == {"name": "x", "dtype": "float32", "shape": [1, 3]}
    rig.sweeper.stop()


def test_the_last_inference_has_an_age(rig: WorkerRig) -> None:
    """None before the first one, then seconds."""
    rig.start()
    report = report_on(rig)
    assert report.status(DeviceState.READY)["models"]["m"]["last_inference_age_s"] is None  # type: ignore[index]
    serve(rig, 1)
    age = report.status(DeviceState.READY)["models"]["m"]["last_inference_age_s"]  # type: ignore[index]
    assert 0 <= age < 60


def test_metrics_since_start_and_since_the_last_call(rig: WorkerRig) -> None:
    """30, then 12 more: 42 in all, 12 in the interval; the encoded histogram holds all 42."""
    rig.start()
    report = report_on(rig)
    serve(rig, 30)
    report.metrics()
    serve(rig, 12)
    model = report.metrics()["models"]["m"]  # type: ignore[index]
    assert model["since_start"]["requests"] == model["since_start"]["ok"] == 42
    assert model["interval"]["requests"] == model["interval"]["ok"] == 12
    assert model["interval"]["latency"]["infer"]["n"] == 12
    assert model["interval"]["latency"]["infer"]["few"] is True
    assert Histogram.decode(model["histograms"]["total"]).count == 42


def test_both_messages_are_json_with_a_rising_seq(rig: WorkerRig) -> None:
    """What is published can be dumped, and the order of two messages can be told."""
    report = report_on(rig)
    bodies = [json.loads(json.dumps(body)) for body in (report.status(DeviceState.STARTING), report.metrics())]
    assert [body["seq"] for body in bodies] == [1, 2]
    assert {body["boot"] for body in bodies} == {"b1"}


class GuardedEngine(ScriptedEngine):
    """One that ends a hang by itself, after `limit_ns`, and runs in the process `pid`."""

    limit_ns, recheck_s, closing_s = 0, 0.0, 0.0
    pid: int | None = None

    def ended(self) -> bool:
        return False


def test_a_model_that_a_stand_in_serves_degrades_the_device(rig: WorkerRig, engine: ScriptedEngine) -> None:
    """With the reason, the counts and who serves, in the status and in the metrics; and no more when it is back."""
    engine.info = EngineInfo("scripted 1", "cpu", 1, 3, 4, "partial", "npu: was killed; cpu serves", 2, 1)
    rig.start()
    report = report_on(rig)
    assert report.state() == ("degraded", "m: npu: was killed; cpu serves")
    model = report.status(*report.state())["models"]["m"]  # type: ignore[index]
    assert model["state"] == "ready"
    told = {key: model[key] for key in ("delegate", "mapping", "nodes_delegated", "nodes_total", "degraded")}
    assert list(told.values()) == ["cpu", "partial", 3, 4, "npu: was killed; cpu serves"]
    assert (model["failovers"], model["returns"], model["pid"]) == (2, 1, None)
    metrics = report.metrics()["models"]["m"]  # type: ignore[index]
    assert (metrics["failovers"], metrics["returns"]) == (2, 1)
    rig.worker.info = EngineInfo("scripted 1", "npu", 1, returns=2)
    assert report.state() == ("ready", "")


def test_the_scheduling_is_that_of_the_thread_that_infers(rig: WorkerRig, engine: ScriptedEngine) -> None:
    """A process of its own may have achieved less than the worker; in this process both are one."""
    rig.start()
    report = report_on(rig)

    def told() -> tuple[str, str]:
        model = report.status(DeviceState.READY)["models"]["m"]  # type: ignore[index]
        return model["scheduling"], model["worker_scheduling"]

    assert told() == ("off", "off")
    rig.worker.info = EngineInfo("scripted 1", "npu", 1, scheduling="cpus 1, nice -20 not permitted")
    assert told() == ("cpus 1, nice -20 not permitted", "off")


def test_what_a_starting_model_is_at_is_told(rig: WorkerRig) -> None:
    """A selection takes minutes: the state alone would look like a hang."""
    rig.worker.reason = "measuring npu, 1 of 2"
    assert report_on(rig).state() == ("starting", "m: measuring npu, 1 of 2")


def test_a_hang_that_the_engine_ends_is_not_stuck(tmp_path: Path) -> None:
    """Until its own limit and the floor have both passed; then nobody has ended it."""
    engine = GuardedEngine()
    engine.limit_ns = 3_600_000_000_000
    rig = WorkerRig(tmp_path, lambda: engine).start()
    report = report_on(rig, Hang(factor=2.0, floor_ms=20))
    engine.hang.clear()
    rig.router.submit(rig.inbox.request(X))
    eventually(lambda: rig.worker.busy_since_ns != 0, "the worker is busy")
    time.sleep(0.03)
    assert report.state()[0] == "ready"
    engine.limit_ns = 1_000_000
    eventually(lambda: report.state()[0] == "stuck", "the state says stuck")
    engine.hang.set()
    rig.stop()


def test_the_processes_of_delegates_are_counted(tmp_path: Path) -> None:
    """Memory and time of a living child are in the sums, and told by its process id; one that is gone is not."""
    with subprocess.Popen(["sleep", "60"]) as child:
        engine = GuardedEngine()
        engine.pid = child.pid
        rig = WorkerRig(tmp_path, lambda: engine).start()
        report = report_on(rig)
        found = report.metrics()["process"]
        lines = Path(f"/proc/{child.pid}/status").read_text().splitlines()
        kib = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
        assert found["children"][str(child.pid)]["rss_bytes"] == kib * 1024  # type: ignore[index]
        assert report.status(DeviceState.READY)["models"]["m"]["pid"] == child.pid  # type: ignore[index]
        child.kill()
        child.wait()
        assert report.metrics()["process"]["children"] == {}  # type: ignore[index]
        rig.stop()


def test_process_facts_are_the_kernels() -> None:
    """Resident memory as /proc/self/status says, within the slack of two readings."""
    lines = Path("/proc/self/status").read_text().splitlines()
    kib = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    rss = process_facts()["rss_bytes"]
    assert isinstance(rss, int)
    assert abs(rss - kib * 1024) < 16 << 20


def test_process_time_is_the_kernels() -> None:
    """Own and finished children's time as /proc/self/stat counts it (proc(5), fields 14 to 17), within its ticks."""
    while sum(os.times()[:2]) < 0.5:  # enough for a wrong unit to show
        pass
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    seconds = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    assert process_facts()["cpu_s"] == pytest.approx(seconds, abs=0.05)


# In a process of its own: threads of other tests may end in between.
COUNTED = """
import threading
from edged.report import process_facts
gone, before = threading.Event(), process_facts()
thread = threading.Thread(target=gone.wait)
thread.start()
with open("/proc/self/status", "rb"):
    after = process_facts()
gone.set()
thread.join()
print(*(after[name] - before[name] for name in ("threads", "descriptors")))
"""


def test_threads_and_descriptors_are_counted() -> None:
    """One thread and one file more are one more; of a process that is not there nothing is known."""
    done = subprocess.run([sys.executable, "-c", COUNTED], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["1", "1"]
    assert held(4_194_305) == {"threads": None, "descriptors": None}

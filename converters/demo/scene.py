"""The demo's second half: broker, daemon, sensors and a client, each a process of its own, and this one watching."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from converters.demo import prepare, recordings, sensors
from converters.demo.answers import Answers, Watch
from converters.demo.children import Child, Children
from converters.demo.prepare import DEVICE, MODEL, Prepared
from converters.demo.table import Screen
from converters.demo.verdict import Figures, Stream
from edged.broker import EmbeddedBroker
from edged.clock import NS_PER_S, now_ns
from edged.transports.mqtt import MqttSettings, MqttTransport

SENSORS = 8
READY_S = 60.0
SETTLE_S = 6.0
REFRESH_S = 0.25
# A slow machine may take this many times as long as asked for, and a minute, before the demo gives up.
PATIENCE = 5


@dataclass(frozen=True)
class Size:
    """How much is measured: sensor windows, and requests of each way, at least; and in how many seconds."""

    windows: int
    duration_s: float


@dataclass
class Scene:
    """A running broker and daemon, what is heard of them, and the windows they are asked about."""

    children: Children
    broker: EmbeddedBroker
    prepared: Prepared
    daemon: Child
    watch: Watch
    orders: list[list[int]]
    recordings: int
    facts: dict[str, Any] = field(default_factory=dict)

    def sensors(self, name: str, windows: int, rate_hz: float) -> Child:
        """Start the sensors; `windows` 0 for ever."""
        return self.children.python(
            name, "converters.demo.sensors", "--url", self.broker.url_v5, "--device", DEVICE,
            "--data", str(self.prepared.eval_data), "--input", self.prepared.input_name,
            "--sensors", str(SENSORS), "--windows", str(windows), "--rate", str(rate_hz),
        )  # fmt: skip

    def client(self, passes: int, period_s: float) -> Child:
        """Start the client that asks for every window four ways, `passes` times."""
        return self.children.python(
            "client", "converters.demo.requests", "--url-v5", self.broker.url_v5, "--url-v3", self.broker.url_v3,
            "--device", DEVICE, "--model", MODEL, "--data", str(self.prepared.eval_data),
            "--input", self.prepared.input_name, "--passes", str(passes), "--period-s", str(period_s),
        )  # fmt: skip


@contextmanager
def opened(
    children: Children, broker: EmbeddedBroker, prepared: Prepared, size: Size, directory: Path
) -> Iterator[Scene]:
    """Start the daemon, wait until it is ready, listen to it; raises InternalError with its log when it fails."""
    config = directory / "edged.yaml"
    prepare.write_config(config, prepared.bundle, broker.url_v5, prepared.samples)
    with np.load(prepared.eval_data) as data:
        labels = data["labels"]
    orders = recordings.plan(SENSORS, len(labels), size.windows)
    truth = {sensors.key(i): [int(labels[r]) for r in order] for i, order in enumerate(orders)}
    watch = Watch(DEVICE, sensors.STREAM, Answers(truth))
    transport = MqttTransport(MqttSettings.from_url(broker.url_v5, client_id="edged-demo-watch"))
    transport.start(watch.on_message, watch.subscriptions)
    try:
        daemon = children.python("daemon", "edged", "run", "-c", str(config))
        if not _wait(daemon, lambda: watch.device is not None and watch.device.state == "ready", READY_S):
            raise daemon.failure(f"not ready after {READY_S:.0f} s")
        yield Scene(children, broker, prepared, daemon, watch, orders, len(labels))
    finally:
        transport.stop()


def measure(scene: Scene, size: Size, screen: Screen) -> Figures:
    """Run sensors and client to their end and return what was measured; raises InternalError when a child fails."""
    passes = -(-size.windows // scene.recordings)
    windows = sum(len(order) for order in scene.orders)
    figures = Figures(wanted=size.windows, expected_requests=passes * scene.recordings)
    began = now_ns()
    replay = scene.sensors("sensors", windows, windows * scene.prepared.samples / SENSORS / size.duration_s)
    client = scene.client(passes, size.duration_s / (passes * scene.recordings))

    def done() -> bool:
        _update(figures, scene, replay, client, began)
        screen.show(figures)
        return bool(replay.code or client.code) or None not in (replay.code, client.code)

    limit_s = PATIENCE * size.duration_s + 60
    if not _wait(scene.daemon, done, limit_s):
        raise next(child for child in (replay, client) if child.code is None).failure(f"not done after {limit_s:.0f} s")
    for child in sorted((replay, client), key=lambda child: not child.code):  # one that failed first
        child.finish(SETTLE_S)
    _settle(scene, client)
    _update(figures, scene, replay, client, began, figures.seconds)
    return figures


def _wait(daemon: Child, condition: Callable[[], bool], timeout_s: float) -> bool:
    """Whether the condition came true in time; raises InternalError when the daemon ends meanwhile."""
    end = now_ns() + timeout_s * NS_PER_S
    while not condition():
        if daemon.code is not None:
            raise daemon.death(daemon.code)
        if now_ns() > end:
            return False
        time.sleep(REFRESH_S)
    return True


def _settle(scene: Scene, client: Child) -> None:
    """Wait for the last answers, then for metrics that hold them; both bounded."""
    asked = sum(way["n"] for way in client.last.get("ways", {}).values())
    end = now_ns() + SETTLE_S * NS_PER_S
    while now_ns() < end:
        counted = scene.watch.latency(MODEL).get("total", {}).get("n", 0)
        if not scene.watch.answers.missing and counted >= scene.watch.answers.answered + asked:
            return
        time.sleep(REFRESH_S)


def _update(
    figures: Figures, scene: Scene, replay: Child, client: Child, began: int, seconds: float | None = None
) -> None:
    answers, sent = scene.watch.answers, replay.last
    figures.stream = Stream(
        expected=answers.expected, answered=answers.answered, right=answers.right, unexpected=answers.unexpected,
        errors=dict(answers.errors), samples=sent.get("samples", 0), dropped=sent.get("dropped", 0),
        held=sent.get("held", 0),
    )  # fmt: skip
    figures.ways = client.last.get("ways", {})
    figures.latency = scene.watch.latency(MODEL)
    figures.seconds = (now_ns() - began) / NS_PER_S if seconds is None else seconds
    figures.facts = {
        **scene.prepared.facts,
        "broker": f"{scene.broker.kind}, {scene.broker.url_v5}",
        "recordings": scene.recordings,
        "sensors": SENSORS,
    }
    metrics = scene.watch.metrics
    if metrics is not None and MODEL in metrics.models:
        model = metrics.models[MODEL]
        figures.facts |= {"engine": f"{model.runtime}, {model.delegate}", "rss_bytes": metrics.rss_bytes or 0}

"""What `edged demo --keep` does after the verdict: slow sensors, and lines to type."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from converters.demo import recordings, sensors
from converters.demo.prepare import DEVICE, MODEL
from converters.demo.scene import REFRESH_S, Scene
from edged import topics


def commands(scene: Scene, directory: Path) -> Iterator[str]:
    """Write one window to try with, and yield the lines to show."""
    window = directory / "window.npy"
    with np.load(scene.prepared.eval_data) as data:
        np.save(window, data[scene.prepared.input_name][:1])
    url = scene.broker.url_v5
    out, broker = topics.device(DEVICE, "out", sensors.STREAM, "#"), urlsplit(url)
    yield f"demo: running until Ctrl-C; files are in {directory}. In another terminal:"
    yield f"  edged infer --broker {url} --device {DEVICE} --model {MODEL} {window}"
    yield f"  edged top --broker {url}"
    yield f"  mosquitto_sub -V 5 -h {broker.hostname} -p {broker.port} -v -t '{out}'"


def go_on(scene: Scene) -> None:
    """Replay the recordings at their real pace for ever; raises InternalError when a process ends by itself."""
    replay = scene.sensors("sensors-slow", 0, recordings.REAL_HZ)
    while True:
        for child in (scene.daemon, replay):
            if child.code is not None:
                raise child.failure(f"ended with {child.code}")
        time.sleep(REFRESH_S)

"""What `edged demo --keep` does after the verdict: slow sensors, and lines to type."""

from __future__ import annotations

import json
import shlex
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from converters.demo import recordings, sensors
from converters.demo.prepare import DEVICE, MODEL
from converters.demo.scene import REFRESH_S, Scene
from edged import topics

# Who asks, in the lines to type.
USER = "me"


def commands(scene: Scene, directory: Path, *, removed: bool) -> Iterator[str]:
    """Write one window to try with, and yield the lines to show. removed: the directory goes when the demo ends."""
    window, url = _write_window(scene, directory), scene.broker.url_v5
    kept = ", which is removed when the demo ends (--out DIR keeps it)" if removed else ""
    yield f"demo: running until Ctrl-C; files are in {directory}{kept}. In another terminal:"
    yield f"  edged infer --broker {url} --device {DEVICE} --model {MODEL} {_quoted(window)}"
    yield f"  edged inspect {_quoted(scene.prepared.bundle)}"
    yield f"  edged top --broker {url}"
    yield from _foreign(url, window.with_suffix(".json"))


def _write_window(scene: Scene, directory: Path) -> Path:
    """Write one window as .npy, and as JSON beside it; return the .npy."""
    path = directory / "window.npy"
    with np.load(scene.prepared.eval_data) as data:
        window = data[scene.prepared.input_name][:1]
    np.save(path, window)
    path.with_suffix(".json").write_text(json.dumps({"instances": window.tolist()}))
    return path


def _foreign(url: str, window: Path) -> Iterator[str]:
    """Yield lines for the tools of mosquitto that are installed."""
    broker = urlsplit(url)
    address = f"-V 5 -h {broker.hostname} -p {broker.port}"
    if shutil.which("mosquitto_sub"):
        yield f"  mosquitto_sub {address} -v -t '{topics.device(DEVICE, 'out', sensors.STREAM, '#')}'"
    if shutil.which("mosquitto_rr"):
        yield (
            f"  mosquitto_rr {address} -t {topics.request(DEVICE, MODEL, USER)} -e {topics.response(USER, '1')} "
            f'-D publish content-type application/json -m "$(cat {_quoted(window)})"'
        )


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def go_on(scene: Scene) -> None:
    """Replay the recordings at their real pace for ever; raises InternalError when a process ends by itself."""
    replay = scene.sensors("sensors-slow", 0, recordings.REAL_HZ)
    while True:
        for child in (scene.daemon, replay):
            if child.code is not None:
                raise child.death(child.code)
        time.sleep(REFRESH_S)

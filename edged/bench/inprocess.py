"""A daemon in this process, on the loopback bus: the path of a request without sockets and without a broker."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from pathlib import Path
from types import TracebackType

from edged import bundle
from edged import config as configuration
from edged.client.connection import Requester
from edged.config import BrokerConfig, Config, ModelConfig
from edged.daemon import Daemon
from edged.errors import InternalError
from edged.transports import open_transport

_BUSES = itertools.count(1)
# So often the device publishes its figures: a run waits for the next ones at its end.
_METRICS_S = 1.0
_STOP_S = 15.0


def from_file(path: Path) -> Config:
    """Read a configuration; its broker is not used."""
    return configuration.load(path)


def from_bundle(path: Path) -> Config:
    """Return the configuration of a device that serves one bundle, under the bundle's own name."""
    name = bundle.read(path).manifest.name
    model = ModelConfig(name=name, bundle=path.absolute())
    return Config(device="bench", broker=BrokerConfig(url="mqtt://127.0.0.1"), models=(model,))


def _measured(config: Config) -> Config:
    """Return it without what a daemon of the same configuration, which may run here, has for itself."""
    metrics = dataclasses.replace(config.metrics, interval_s=_METRICS_S, prometheus=None)
    streams = tuple(dataclasses.replace(stream, store=False) for stream in config.streams)
    return dataclasses.replace(config, metrics=metrics, streams=streams, local=None)


class InProcess:
    """The daemon, on a thread of its own, inside a `with` block. broker: how to reach it."""

    def __init__(self, config: Config) -> None:
        url = f"loopback://edged-bench-{next(_BUSES)}"
        self.device = config.device
        self.broker = Requester(url, {}, "this process", None)
        self._daemon = Daemon(_measured(config), open_transport(url), keeps=False)
        self._thread = threading.Thread(target=self._daemon.run, name="edged-bench-dev", daemon=True)

    def __enter__(self) -> InProcess:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._daemon.request_stop()
        self._thread.join(_STOP_S)
        if self._thread.is_alive() and kind is None:
            raise InternalError("device", f"an inference did not return within {_STOP_S:g} s")

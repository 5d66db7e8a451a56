"""A device whose model is moved from version to version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.daemons import DaemonProcess

from edged.broker import EmbeddedBroker


def daemon(folder: Path, broker: EmbeddedBroker, **more: Any) -> DaemonProcess:
    """Serve `dense` from `one` in the folder; more: keys of the configuration, `model` those of the model."""
    model = {"name": "dense", "bundle": "one", "delegates": ["cpu"], **more.pop("model", {})}
    return DaemonProcess(folder, broker.port, {"models": [model], "drain_timeout_s": 2, **more})

"""An accelerator that is away when a real daemon starts, and comes later: judged as at a start, before it serves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import delegates, tinymodel
from support.brokers import mosquitto
from support.daemons import DaemonProcess
from support.watcher import StatusBoard

from delegates.base import TFLITE_RUNTIME
from edged.broker import EmbeddedBroker
from edged.client import Client

X = np.linspace(-1, 1, delegates.SIZE, dtype=np.float32).reshape(1, -1)
NAME = "external:libedged_testdelegate.so"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    tinymodel.require_runtime(TFLITE_RUNTIME)
    with mosquitto() as broker:
        yield broker


def model(name: str, away: Path, *more: str, **options: Any) -> dict[str, Any]:
    given = {"library": str(delegates.library()), "options": {"fail": "create", "when": str(away), **options}}
    return {
        "name": name, "bundle": "adder", "runtime": TFLITE_RUNTIME, "delegates": [{"external": given}, *more],
        "failover": {"backoff_s": 0.2, "backoff_max_s": 0.5},
    }  # fmt: skip


@pytest.mark.broker
def test_one_that_comes_late_is_measured_first(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """One takes nothing of the model: refused, and told. One is slower than the CPU, which was asked for too: all is
    well. One is alone and good: it serves."""
    delegates.adder_bundle(tmp_path / "adder")
    away = tmp_path / "away"
    away.touch()
    models = [
        model("useless", away, "cpu", max_nodes=0),
        model("slower", away, "cpu", slow_ms=5),
        model("good", away),
    ]
    with (
        DaemonProcess(tmp_path, broker.port, {"models": models, "device": "late"}) as daemon,
        StatusBoard(broker.port, "late") as board,
        Client(broker.url_v5, user="tester") as client,
    ):
        board.wait(lambda said: said["state"] == "degraded", 60)
        assert all("no such device; cpu serves" in board.model(one["name"])["degraded"] for one in models)
        away.unlink()
        board.wait(lambda said: not said["models"]["good"]["degraded"], 60)
        board.wait(lambda said: not said["models"]["slower"]["degraded"], 60)
        board.wait(lambda said: "not tried again: " in said["models"]["useless"]["degraded"], 60)
        assert "refused: takes none of the model's 6 ops" in board.model("useless")["degraded"]
        for name, who in (("useless", "cpu"), ("slower", "cpu"), ("good", NAME)):
            result = client.infer("late", name, X, codec="raw")
            np.testing.assert_allclose(result.outputs["y"], delegates.adder_expected(X), rtol=1e-6)
            assert (result.meta.delegate, board.model(name)["delegate"]) == (who, who)
        assert daemon.stop() == 0
    assert list((tmp_path / "state").glob("opening/*.json")) == []

"""Whoever runs a device: says which models it is to serve, sends commands, and hears what it tells of them."""

from __future__ import annotations

import hashlib
import json
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from support.daemons import DEVICE
from support.watcher import Watcher

BASE = f"edged/v1/dev/{DEVICE}"
# Below the directory of a DaemonProcess: what it keeps of what it was told.
KEPT = Path("state", "deployed", DEVICE)


def sha256_of(bundle: Path) -> str:
    """The sha256 that names a bundle: of its file, or of a directory's bundle.json."""
    return hashlib.sha256((bundle / "bundle.json" if bundle.is_dir() else bundle).read_bytes()).hexdigest()


def wish(bundle: Path, name: str = "dense", **more: Any) -> dict[str, Any]:
    """An entry of `models` for a bundle on disk; `more` goes before."""
    return {"name": name, "url": str(bundle), "sha256": sha256_of(bundle), **more}


class Operator(Watcher):
    """Hears every report and event from when it was made; no message is lost between two looks."""

    def __init__(self, port: int) -> None:
        self.reports: list[dict[str, Any]] = []
        self.events: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
        self._heard = threading.Condition()
        self._rev = 0
        super().__init__(port, f"{BASE}/reported/models", f"{BASE}/event/+")

    def _on_message(self, message: paho.MQTTMessage) -> None:
        body = json.loads(message.payload)
        if message.topic.startswith(f"{BASE}/event/"):
            self.events.put((message.topic.rpartition("/")[2], body))
            return
        with self._heard:
            self.reports.append(body)
            self._heard.notify_all()

    def desire(self, *wishes: dict[str, Any], rev: int | None = None) -> int:
        """Publish the wishes, retained; returns their `rev`, the next one unless it is given."""
        self._rev = self._rev + 1 if rev is None else rev
        body = json.dumps({"rev": self._rev, "models": list(wishes)})
        self.publish(f"{BASE}/desired/models", body.encode(), retain=True)
        return self._rev

    def forget(self) -> None:
        """Clear the retained wishes."""
        self.publish(f"{BASE}/desired/models", b"", retain=True)

    def wait(self, wanted: Callable[[dict[str, Any]], bool], timeout: float = 30.0) -> dict[str, Any]:
        """Wait until a report is as wanted, the last one that is there or one to come; returns it."""
        with self._heard:
            assert self._heard.wait_for(lambda: bool(self.reports) and wanted(self.reports[-1]), timeout), self.reports[
                -3:
            ]
            return self.reports[-1]

    def ended(self, rev: int, name: str = "dense", timeout: float = 30.0) -> dict[str, Any]:
        """Wait until what was desired with `rev` has ended for a model; returns its row."""

        def over(report: dict[str, Any]) -> bool:
            row = report["models"][name]
            return report["rev"] == rev and row["rev"] == rev and row["state"] in ("READY", "FAILED")

        row: dict[str, Any] = self.wait(over, timeout)["models"][name]
        return row

    def steps(self, rev: int, name: str = "dense") -> list[str]:
        """The states that a model was told to be in for a `rev`, each once, in order."""
        rows = [report["models"][name] for report in self.reports if report["rev"] == rev]
        return list(dict.fromkeys(row["state"] for row in rows if row["rev"] == rev))

    def command(self, verb: str, ident: str, **more: Any) -> list[dict[str, Any]]:
        """Send a command and return its events, to the last."""
        self.publish(f"{BASE}/cmd/{verb}", json.dumps({"id": ident, **more}).encode())
        found: list[dict[str, Any]] = []
        while not found or found[-1]["state"] in ("QUEUED", "IN_PROGRESS"):
            told, event = self.events.get(timeout=30)
            if (told, event["id"]) == (verb, ident):
                found.append(event)
        return found

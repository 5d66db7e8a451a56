"""What is reported of each model is so, also where nobody asked for anything since."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edged.assembly import Parts
from edged.control.reported import Reported
from edged.transports.base import Message
from edged.worker import ModelState


class Board:
    """A report of one model `m`, whose worker is in `state`."""

    def __init__(self) -> None:
        manifest = SimpleNamespace(version=3)
        self.worker = SimpleNamespace(
            state=ModelState.READY,
            reason="",
            before=None,
            plan=SimpleNamespace(bundle=SimpleNamespace(manifest=manifest)),
        )
        self.said: list[dict[str, Any]] = []
        self.reported = Reported("box", cast("Parts", SimpleNamespace(workers={"m": self.worker})), self._send)

    def _send(self, message: Message) -> bool:
        self.said.append(json.loads(bytes(message.payload)))
        return True

    def row(self) -> dict[str, Any]:
        self.reported.publish()
        row: dict[str, Any] = self.said[-1]["models"]["m"]
        return row


@pytest.mark.parametrize(
    ("state", "reason", "told"),
    [
        (ModelState.READY, "", ("READY", "", None)),
        (ModelState.FAILED, "no such op", ("FAILED", "the model failed: no such op", None)),
        (ModelState.STARTING, "measuring", ("LOADING", "", "measuring")),
    ],
)
def test_a_model_is_ready_where_its_worker_is(state: ModelState, reason: str, told: tuple[object, ...]) -> None:
    """Whatever was done for it."""
    board = Board()
    board.worker.state, board.worker.reason = state, reason
    row = board.row()
    assert (row["state"], row["error"], row.get("text")) == told
    assert row["active"]["version"] == 3


def test_a_failed_update_is_told_as_such() -> None:
    """The model that serves on does not hide it; nor does one that failed too."""
    board = Board()
    board.reported.end("m", "FAILED", "no room on the disk")
    assert board.row()["error"] == "no room on the disk"
    board.reported.end("m", "READY", "serves until the next start only")
    board.worker.state, board.worker.reason = ModelState.FAILED, "gone"
    assert board.row()["error"] == "the model failed: gone; serves until the next start only"


def test_a_model_whose_state_changed_makes_it_stale() -> None:
    """Until it is told."""
    board = Board()
    board.reported.publish()
    assert not board.reported.stale
    board.worker.state = ModelState.FAILED
    assert board.reported.stale
    board.reported.publish()
    assert not board.reported.stale

"""The message on reported/models: what each model serves, what was asked for, and how far it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edged import topics
from edged.assembly import Parts
from edged.clock import NS_PER_S, now_ns, wall_s
from edged.swap import LATE
from edged.transports.base import Message
from edged.worker import ModelState

# Between two messages that tell of nothing but progress.
PROGRESS_NS = NS_PER_S


@dataclass
class Row:
    """One model. rev: of the message that asked for what is there or under way; None before the first.

    sha256: of the bundle that serves, as it was asked for; None for the configured one, unless it is known.
    ended: state and error that the last wish ended with, which hold again where a later one is given up.
    """

    state: str = "READY"
    rev: int | None = None
    sha256: str | None = None
    wanted: Mapping[str, object] | None = None
    previous: Mapping[str, object] | None = None
    bytes: int | None = None
    text: str = ""
    error: str = ""
    ended: tuple[str, str] = ("READY", "")


@dataclass
class Head:
    """What was last said on desired/models."""

    state: str = "NONE"
    rev: int | None = None
    error: str = ""


class Reported:
    """Publishes the rows of one device. One thread; any may ask whether it is `stale`."""

    def __init__(self, device: str, parts: Parts, send: Callable[[Message], object]) -> None:
        self._topic, self._parts, self._send = topics.device(device, "reported", "models"), parts, send
        self.head = Head()
        self.rows = {name: Row() for name in parts.workers}
        self._next_progress_ns, self._told = 0, self._states()

    @property
    def stale(self) -> bool:
        """Whether a model's state changed since the last message, or the one before it ended."""
        return self._states() != self._told

    def step(self, name: str, state: str, text: str = "") -> None:
        """Tell of the next step of a model. text: what it is at."""
        row = self.rows[name]
        row.state, row.text, row.error = state, text, ""
        row.bytes = 0 if state == "DOWNLOADING" else None
        self.publish()

    def progress(self, name: str, count: int, text: str) -> None:
        """Tell how many bytes are there, and what went wrong last; now and then."""
        row = self.rows[name]
        news = text != row.text
        changed = news or count != row.bytes
        row.bytes, row.text = count, text
        if changed and (news or now_ns() >= self._next_progress_ns):
            self._next_progress_ns = now_ns() + PROGRESS_NS
            self.publish()

    def end(self, name: str, state: str, error: str = "") -> None:
        """Tell how it ended. error: why the old one serves on, or what is wrong all the same."""
        row = self.rows[name]
        row.state, row.error, row.text, row.bytes = state, error, "", None
        row.ended = state, error
        self.publish()

    def publish(self) -> None:
        """Publish it as it is."""
        head, self._told = self.head, self._states()
        body = {
            "ts": wall_s(), "state": head.state, "rev": head.rev, "error": head.error,
            "models": {name: self._model(name, row) for name, row in self.rows.items()},
        }  # fmt: skip
        self._send(Message(self._topic, json.dumps(body).encode(), qos=1, retain=True))

    def _model(self, name: str, row: Row) -> dict[str, object]:
        worker = self._parts.workers[name]
        state, error, text = row.state, row.error, row.text
        if state == "READY" and worker.before is not None:
            error = "; ".join(filter(None, (LATE, error)))
        # What was done is done, and yet the model may not be ready.
        if state == "READY" and worker.state is ModelState.FAILED:
            state, error = "FAILED", "; ".join(filter(None, (f"the model failed: {worker.reason}", error)))
        elif state == "READY" and worker.state is ModelState.STARTING:
            state, text = "LOADING", worker.reason
        told: dict[str, object] = {
            "state": state, "rev": row.rev, "previous": row.previous, "wanted": row.wanted, "error": error,
            "active": {"version": worker.plan.bundle.manifest.version, "sha256": row.sha256},
        }  # fmt: skip
        if row.bytes is not None:
            told["bytes"] = row.bytes
        return told | {"text": text} if text else told

    def _states(self) -> list[tuple[ModelState, bool]]:
        workers = (self._parts.workers[name] for name in self.rows)
        return [(worker.state, worker.before is not None) for worker in workers]

"""What a device says about itself on its retained status topic, read without trust.

States: starting, ready, degraded, draining, stuck, stopped, lost. `lost` is the device's will; the broker may send the
will of an old connection after the new one has spoken, so a `lost` of another boot than the current one is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edged.clock import NS_PER_S
from edged.request import Buffer

STATES = frozenset({"starting", "ready", "degraded", "draining", "stuck", "stopped", "lost"})
# In these states nobody is there to answer.
GONE = frozenset({"stopped", "lost"})


@dataclass(frozen=True)
class Status:
    """One status message. ts: the device's wall clock, s. received_ns: monotonic ns here. document: the whole JSON."""

    state: str
    boot: str
    seq: int
    ts: float
    version: str
    reason: str
    models: Mapping[str, Mapping[str, Any]]
    received_ns: int
    document: Mapping[str, Any]


def parse_object(payload: Buffer) -> dict[str, Any] | None:
    """The payload as a JSON object, None when it is none."""
    try:
        document = json.loads(bytes(payload))
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def parse_status(payload: Buffer, received_ns: int) -> Status | None:
    """Read a status payload; None when it is not one (a cleared retained message is empty)."""
    document = parse_object(payload)
    state = document.get("state") if document is not None else None
    if document is None or not isinstance(state, str) or state not in STATES:
        return None
    models = document.get("models")
    return Status(
        state=state,
        boot=text(document.get("boot")),
        seq=whole(document.get("seq")) or 0,
        ts=number(document.get("ts")) or 0.0,
        version=text(document.get("version")),
        reason=text(document.get("reason")),
        models={str(k): v for k, v in models.items() if isinstance(v, dict)} if isinstance(models, dict) else {},
        received_ns=received_ns,
        document=document,
    )


def supersedes(new: Status, known: Status | None) -> bool:
    """Whether `new` is to be believed after `known`: all but the will of another boot."""
    return known is None or new.state != "lost" or known.state == "lost" or new.boot == known.boot


def describe(status: Status | None, now: int) -> str:
    """Say a device's last known state in a few words."""
    if status is None:
        return "the device has told no state"
    age_s = (now - status.received_ns) // NS_PER_S
    gone = ", nobody is there to answer" if status.state in GONE else ""
    return f"the device said {status.state!r} {age_s} s ago{gone}"


def text(value: object) -> str:
    """A string of the network as it may be shown: control characters (terminal escapes) gone, else empty."""
    return "".join(c for c in value if c.isprintable()) if isinstance(value, str) else ""


def number(value: object) -> float | None:
    """A finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e18 else None  # noqa: PLR2004 - also false for NaN; large ints overflow float


def whole(value: object) -> int | None:
    """A whole number from zero up, else None."""
    found = number(value)
    return int(found) if found is not None and found >= 0 else None

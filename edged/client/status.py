"""What a device says about itself on its retained status topic, read without trust.

`lost` is the device's will: the broker may send the will of an old connection after the new one has spoken.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from edged.client.untrusted import mapping, number, parse_object, text, whole
from edged.clock import NS_PER_S
from edged.contract import GONE, DeviceState
from edged.request import Buffer

MAX_MODELS = 64
NO_STATE = "the device has told no state"


@dataclass(frozen=True)
class Status:
    """One status message. ts: the device's wall clock, s. received_ns: monotonic ns here. document: the whole JSON."""

    state: DeviceState
    boot: str
    seq: int
    ts: float
    version: str
    reason: str
    models: Mapping[str, Mapping[str, Any]]
    received_ns: int
    document: Mapping[str, Any]

    @property
    def boots(self) -> frozenset[str]:
        """The boot that spoke; none where the broker spoke for it."""
        return frozenset() if self.state is DeviceState.LOST else frozenset({self.boot})


def parse_status(payload: Buffer, received_ns: int) -> Status | None:
    """Read a status payload; None when it is not one (a cleared retained message is empty)."""
    document = mapping(parse_object(payload))
    models = mapping(document.get("models"))
    try:
        state = DeviceState(document.get("state"))
    except ValueError:
        return None
    return Status(
        state=state,
        boot=text(document.get("boot")),
        seq=whole(document.get("seq")) or 0,
        ts=number(document.get("ts")) or 0.0,
        version=text(document.get("version")),
        reason=text(document.get("reason")),
        models={name: body for name, body in islice(models.items(), MAX_MODELS) if isinstance(body, dict)},
        received_ns=received_ns,
        document=document,
    )


def believed(status: Status, boots: Collection[str]) -> bool:
    """Whether a status tells of the device as it is: all do but the `lost` of a boot which another has replaced.

    boots: those which the device itself has named last, in a status or in metrics; empty when it has not spoken yet.
    """
    return status.state is not DeviceState.LOST or not boots or status.boot in boots


def describe(status: Status | None, now: int) -> str:
    """Say a device's last known state in a few words."""
    if status is None:
        return NO_STATE
    age_s = (now - status.received_ns) // NS_PER_S
    gone = ", nobody is there to answer" if status.state in GONE else ""
    return f"the device said {status.state.value!r} {age_s} s ago{gone}"

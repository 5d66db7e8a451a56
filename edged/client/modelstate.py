"""What is wrong with one model of a device, in words: its own state, and the line that says why.

A device is as bad as its worst model: its state tells a healthy model's row nothing where a model explains it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edged.client.fleet import UNKNOWN, Device
from edged.client.untrusted import text, whole
from edged.contract import DeviceState
from edged.shown import WORDS, clipped

_READY, _DEGRADED = DeviceState.READY.value, DeviceState.DEGRADED.value
# A model that could not be opened makes its device degraded.
_MAKES = {"failed": _DEGRADED}


def state_of(device: Device, name: str) -> str:
    """Return the state of a model's row: the model's own where one of the models explains the device's, else both.

    name: "" for a device without models.
    """
    own = _own(_told(device).get(name, {}))
    if _explained(device):
        return own or "-"
    return f"{device.state}/{own}" if own not in ("", device.state) else device.state


def note_of(device: Device, name: str, *, first: bool) -> str:
    """Return why a model is not as it should be, and how often its delegate was left and taken back; mostly nothing.

    first: the row is the first of its device, where the device's own reason stands unless a model's state explains it.
    """
    facts = _told(device).get(name, {})
    reason = text(facts.get("degraded")) or text(facts.get("reason"))
    if first and not reason and device.status is not None and device.state != UNKNOWN and not _explained(device):
        reason = device.status.reason
    counts = [_counted(facts, key, word) for key, word in (("failovers", "failover"), ("returns", "return"))]
    parts = [", ".join(filter(None, counts)), clipped(reason, WORDS)]
    return "; ".join(filter(None, parts))


def _told(device: Device) -> Mapping[str, Mapping[str, Any]]:
    return device.status.models if device.status is not None else {}


def _own(facts: Mapping[str, Any]) -> str:
    state = text(facts.get("state"))
    return _DEGRADED if state in ("", _READY) and text(facts.get("degraded")) else state


def _explained(device: Device) -> bool:
    states = {_own(facts) for facts in _told(device).values()}
    return device.state in states | {_MAKES[state] for state in states & _MAKES.keys()}


def _counted(facts: Mapping[str, Any], key: str, word: str) -> str:
    count = whole(facts.get(key)) or 0
    return f"{count} {word}{'s' * (count != 1)}" if count else ""

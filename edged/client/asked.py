"""What a caller asks for, checked before anything of it reaches a topic; raises UsageError."""

from __future__ import annotations

import os

from edged import statekey, topics
from edged.errors import UsageError
from edged.filters import sendable
from edged.transports.base import MAX_QOS

_DAY_S = 86_400


def level(what: str, name: str) -> str:
    """Return a name that can stand as one level of a topic to publish to."""
    if not topics.valid_level(name) or not sendable(name):
        raise UsageError(what, f"{name!r} cannot be a topic level", "not empty, no /, + or #, no control characters")
    return name


def deadline(deadline_ms: int) -> int:
    """Return a deadline in milliseconds that the contract allows: a whole number, no bool and no float."""
    if type(deadline_ms) is not int:
        raise UsageError("deadline_ms", f"must be a whole number of milliseconds, got {deadline_ms!r}")
    if not 1 <= deadline_ms <= topics.MAX_DEADLINE_MS:
        raise UsageError("deadline_ms", f"must be 1 to {topics.MAX_DEADLINE_MS}, got {deadline_ms}")
    return deadline_ms


def state_key(key: str | None) -> str | None:
    """Return a state key that the device takes; None for none."""
    if key is None:
        return None
    if not isinstance(key, str):
        raise UsageError("state_key", f"must be text, got {key!r}")
    try:
        statekey.of_user("", key)
    except ValueError as error:
        raise UsageError("state_key", str(error)) from error
    return key


def qos(value: int) -> int:
    """Return a quality of service that MQTT has."""
    if type(value) is not int or not 0 <= value <= MAX_QOS:
        raise UsageError("qos", f"is 0, 1 or 2, not {value!r}")
    return value


def seconds(what: str, value: float) -> float:
    """Return a time that can be waited for: from 0 to a day."""
    if not 0 <= value <= _DAY_S:
        raise UsageError(what, f"must be 0 to {_DAY_S} seconds, got {value:g}")
    return value


def same_process(pid: int) -> None:
    """Refuse to go on in a process forked from `pid`: before any lock, since one that was held at the fork stays so."""
    if os.getpid() != pid:
        raise UsageError("client", "it was made before this process was forked", "make one in each process")

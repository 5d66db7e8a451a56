"""What is handed to the outbox's thread beside numbers: an answer, or what it is to do now."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from edged.request import OnSent
from edged.transports.base import Message

_OVERHEAD = 1024  # bytes of one answer in memory, beside its payload


@dataclass(slots=True)
class Answer:
    """One answer on its way. number: of its record; below 0 for one that is on no disk."""

    message: Message
    on_sent: OnSent | None
    number: int = 0

    @property
    def cost(self) -> int:
        """Bytes of memory."""
        return len(self.message.payload) + _OVERHEAD


class Mark(Enum):
    """What it is to do: end when nothing waits any more, end now."""

    STOP = "stop"
    CLOSE = "close"

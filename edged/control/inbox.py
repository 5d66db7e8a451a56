"""What comes for control, from the network thread to whoever acts on it: copied, bounded, nothing parsed.

Most devices are never told anything: the rest of this room is imported with the first message.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from edged import topics
from edged.transports.base import Message

# Commands, and bytes of one: what is larger is cut, and refused for it.
MAX_COMMANDS, MAX_COMMAND = 64, (1 << 16) + 1
MAX_DESIRED = (1 << 20) + 1


@dataclass(frozen=True)
class Told:
    """A command as it came."""

    verb: str
    payload: bytes
    retained: bool


class Inbox:
    """Filled by the network thread, emptied by one other. wake: lets the main thread look whether to start control.

    desired: whether wishes for models are taken. dropped: commands for which there was no room.
    """

    def __init__(self, device: str, wake: Callable[[], None], *, desired: bool = True) -> None:
        self.wake = wake
        self._commands_prefix = topics.device(device, "cmd", "")
        self._desired_topic = topics.device(device, "desired", "models") if desired else None
        self._commands: deque[Told] = deque()
        # The last one counts. Of one place, which both ends change in one step.
        self._desired: deque[bytes] = deque(maxlen=1)
        self.news = threading.Event()
        self.dropped = 0
        self.reconnected = False

    def on_message(self, message: Message) -> bool:
        """Take a message; False when it is not for control."""
        if message.topic == self._desired_topic:
            self._desired.append(bytes(message.payload[:MAX_DESIRED]))
        elif message.topic.startswith(self._commands_prefix):
            verb = message.topic[len(self._commands_prefix) :]
            if len(self._commands) >= MAX_COMMANDS:
                self.dropped += 1
            else:
                self._commands.append(Told(verb, bytes(message.payload[:MAX_COMMAND]), message.retain))
        else:
            return False
        self.news.set()
        self.wake()
        return True

    def on_connection(self) -> None:
        """There is a new connection: what was published may be gone."""
        self.reconnected = True
        self.news.set()

    @property
    def used(self) -> bool:
        """Whether anything came."""
        return bool(self._desired or self._commands)

    def desired(self) -> bytes | None:
        """Return the last message on desired/models since the last call."""
        return self._desired.popleft() if self._desired else None

    def command(self) -> Told | None:
        """Return the next command."""
        return self._commands.popleft() if self._commands else None

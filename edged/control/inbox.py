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
MAX_COMMANDS, MAX_COMMAND = 1024, (1 << 16) + 1
# Of all commands together: each is answered, if only that it is not run, and for that it must be here.
MAX_BYTES = 4 << 20
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
        # Bytes of commands: each end counts what it did itself.
        self._bytes_in = self._bytes_out = 0
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
            self._command(message)
        else:
            return False
        self.news.set()
        self.wake()
        return True

    def _command(self, message: Message) -> None:
        size = min(len(message.payload), MAX_COMMAND)
        if len(self._commands) >= MAX_COMMANDS or self._bytes_in - self._bytes_out + size > MAX_BYTES:
            self.dropped += 1
            return
        self._bytes_in += size
        verb = message.topic[len(self._commands_prefix) :]
        self._commands.append(Told(verb, bytes(message.payload[:MAX_COMMAND]), message.retain))

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
        if not self._commands:
            return None
        told = self._commands.popleft()
        self._bytes_out += len(told.payload)
        return told

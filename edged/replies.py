"""The reply memory: what was answered, for a while, so that a repeated request is answered and not run again.

QoS 1 may deliver a request twice, and a client that got no answer sends the same (Response Topic, Correlation Data)
again. Both find their first answer here. The key holds a checksum of the payload as well, since requesters exist that
send the same correlation with every request: those must not get an old answer.
Bounded by bytes and by age; what is pushed out is only ever run again.
"""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

from edged.clock import NS_PER_S, now_ns
from edged.request import Buffer
from edged.transports.base import Message


class ReplyKey(NamedTuple):
    """What makes two requests the same one."""

    model: str
    codec: str
    topic: str
    correlation: bytes
    checksum: int
    size: int


@dataclass
class _Entry:
    born_ns: int
    reply: Message | None = None  # None while the first one is still being answered


# What an entry costs beside its payload: key, entry, message and dictionary slot (measured, rounded up).
OVERHEAD = 1024


class ReplyMemory:
    """See the module's text. Safe from any thread."""

    def __init__(self, max_bytes: int, max_age_s: float) -> None:
        self._max_bytes, self._max_age_ns = max_bytes, int(max_age_s * NS_PER_S)
        self._entries: OrderedDict[ReplyKey, _Entry] = OrderedDict()
        self._lock = threading.Lock()
        self._bytes = 0

    @staticmethod
    def key(model: str, codec: str, reply_topic: str, correlation: bytes, payload: Buffer) -> ReplyKey:
        """Return the key of one request."""
        return ReplyKey(model, codec, reply_topic, correlation, zlib.crc32(payload), len(payload))

    def begin(self, key: ReplyKey) -> tuple[bool, Message | None]:
        """Return (True, None) for a new request; (False, reply) for a repeat, where reply is None until it is known."""
        with self._lock:
            self._expire()
            entry = self._entries.get(key)
            if entry is not None:
                return False, entry.reply
            self._entries[key] = _Entry(now_ns())
            self._bytes += _cost(key)
            return True, None

    def store(self, key: ReplyKey, reply: Message) -> None:
        """Keep the answer for repeats."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and entry.reply is None:
                entry.reply = reply
                self._bytes += len(reply.payload)
                self._expire()

    def forget(self, key: ReplyKey) -> None:
        """Let a repeat run again: for answers that say so themselves (retryable errors)."""
        with self._lock:
            self._remove(key)

    def _expire(self) -> None:
        oldest_ns = now_ns() - self._max_age_ns
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            if entry.born_ns >= oldest_ns and self._bytes <= self._max_bytes:
                return
            self._remove(key)

    def _remove(self, key: ReplyKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= _cost(key) + (len(entry.reply.payload) if entry.reply is not None else 0)


def _cost(key: ReplyKey) -> int:
    # Both are kept twice, in the key and in the message; a requester may make them 64 KiB each.
    return OVERHEAD + 2 * (len(key.topic) + len(key.correlation))

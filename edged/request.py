"""One request on its way through the rooms, and the reply that answers it.

A request is answered by whoever wins `claim()`: the worker, the deadline sweeper, the router or the drain.
The origin (MQTT intake, stream, loopback) hands in `respond`, so no room knows where answers go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from edged.errors import RequestError

Buffer = bytes | bytearray | memoryview
OnSent = Callable[[int], None]
Respond = Callable[["Request", "Reply", OnSent | None], None]

# The stages of one request, in order; `total` spans them all.
STAGES = ("receive", "queue", "decode", "infer", "encode", "publish")


class Reply:
    """An answer: a payload in the codec that was asked for, or an error."""

    __slots__ = ("content_type", "error", "meta", "payload")

    def __init__(self, payload: bytes, content_type: str, meta: str = "", error: RequestError | None = None) -> None:
        self.payload, self.content_type, self.meta, self.error = payload, content_type, meta, error

    @classmethod
    def failure(cls, error: RequestError, meta: str = "") -> Reply:
        """Make the error reply for `error`."""
        return cls(error.to_json(), "application/json", meta, error)


class Request:
    """One inference request. Marks are monotonic ns; 0 means the stage was not reached.

    model: configured model name. codec: registry name that decodes `payload`; reply_codec: the one that encodes,
    where it is not the one that goes with `codec`.
    deadline_ns: monotonic ns after which it is answered DEADLINE_EXCEEDED.
    key: whose state a stateful model keeps apart: the stream's key, or the requester's. "" where there is none.
    once: a repeat of it must not run again, whatever the answer is: it changed a state, or may have.
    annotations: extra facts which codecs that can (JSON, CBOR) put beside the outputs.
    """

    __slots__ = (
        "_claim", "admitted_ns", "annotations", "codec", "deadline_ns", "decoded_ns", "encoded_ns", "inferred_ns",
        "key", "model", "once", "origin", "payload", "received_ns", "reply_codec", "respond", "settle", "size",
        "started_ns",
    )  # fmt: skip

    def __init__(
        self,
        model: str,
        payload: Buffer,
        *,
        codec: str,
        reply_codec: str | None = None,
        received_ns: int,
        deadline_ns: int,
        respond: Respond,
        origin: Any = None,
        key: str = "",
        annotations: Mapping[str, object] | None = None,
    ) -> None:
        self.model, self.payload, self.codec, self.reply_codec = model, payload, codec, reply_codec
        self.size = len(payload)
        self.received_ns, self.deadline_ns = received_ns, deadline_ns
        self.respond, self.origin, self.key, self.annotations = respond, origin, key, annotations
        self.once = False
        self.settle: Callable[[Request], None] | None = None
        self.admitted_ns = self.started_ns = self.decoded_ns = self.inferred_ns = self.encoded_ns = 0
        self._claim = threading.Lock()

    def claim(self) -> bool:
        """Return True to exactly one caller: the one who must answer. Releases the request's room in its queue."""
        if not self._claim.acquire(blocking=False):
            return False
        if self.settle is not None:
            self.settle(self)
        self.payload = b""
        return True

    @property
    def claimed(self) -> bool:
        """Whether somebody has already answered or is about to."""
        return self._claim.locked()

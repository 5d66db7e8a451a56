"""The messages between a daemon and the producers on its box. No sockets, no memory: bytes in, values out.

Each message is one packet of a SOCK_SEQPACKET socket, little-endian, and begins with a byte that says what it is:

hello    daemon → producer, with the memory's descriptor: how many slots, how large each is
request  producer → daemon: the payload of this slot is complete, and the slot the daemon's until the reply
reply    daemon → producer: the answer, in the message or in the slot, which is the producer's again
bye      daemon → producer: why the connection ends

Readers raise ValueError, saying what is wrong with a message.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from edged import topics
from edged.request import Buffer

VERSION = 1
# A larger reply goes through the slot: two copies in the kernel then cost more than two in memory.
INLINE = 4096
MAX_REQUEST = 1024
MAX_REPLY = 48 * 1024  # fits every socket buffer; what is beside an inline payload takes most of it

_MAGIC = b"edgd"
_HELLO = struct.Struct("<B4sHIQ")  # kind, magic, version, slots, bytes of one
_REQUEST = struct.Struct("<BBBIQQI")  # kind, bytes of model and content type, slot, sequence, bytes, deadline in ms
_REPLY = struct.Struct("<BBBHHIQQ")  # kind, error?, in slot?, bytes of content type and meta, slot, sequence, bytes


class Kind(IntEnum):
    """What a message is: its first byte."""

    HELLO = 1
    BYE = 2
    REQUEST = 3
    REPLY = 4


class Hello(NamedTuple):
    """The shape of the memory."""

    slots: int
    slot_bytes: int


class Announcement(NamedTuple):
    """A payload that is complete. deadline_ms: 0 leaves it to the model. content_type: "" for raw tensors."""

    slot: int
    sequence: int
    size: int
    deadline_ms: int
    model: str
    content_type: str


class ReplyHead(NamedTuple):
    """An answer but for its payload, which is `size` bytes, in the slot or behind the head."""

    slot: int
    sequence: int
    size: int
    error: bool
    in_slot: bool
    content_type: str
    meta: str


def write_hello(hello: Hello) -> bytes:
    """Return the message."""
    return _HELLO.pack(Kind.HELLO, _MAGIC, VERSION, *hello)


def read_hello(data: bytes) -> Hello:
    """Read it; another version of this protocol is an error that says which."""
    if len(data) < _HELLO.size or data[1:5] != _MAGIC:
        raise ValueError("what answers there is no edged daemon")
    _kind, _magic, version, slots, slot_bytes = _HELLO.unpack_from(data)
    if version != VERSION:
        msg = f"the daemon speaks version {version} of the local protocol, this is version {VERSION}"
        raise ValueError(msg)
    return Hello(slots, slot_bytes)


def write_bye(reason: str) -> bytes:
    """Return the message."""
    return bytes((Kind.BYE,)) + reason.encode(errors="replace")[: MAX_REQUEST - 1]


def read_bye(data: bytes) -> str:
    """Return the reason."""
    return data[1:].decode(errors="replace")


def write_request(told: Announcement) -> bytes:
    """Return the message. The model's name is a topic level, so that it fits."""
    model, content_type = told.model.encode(), told.content_type.encode()
    head = _REQUEST.pack(
        Kind.REQUEST, len(model), len(content_type), told.slot, told.sequence, told.size, told.deadline_ms
    )
    return head + model + content_type


def read_request(data: Buffer) -> Announcement:
    """Read what a producer sent, which may be anything; whether the slot and the size are right is not looked at."""
    if len(data) < _REQUEST.size or data[0] != Kind.REQUEST:
        raise ValueError("a message that is no request")
    _kind, model_size, type_size, slot, sequence, size, deadline_ms = _REQUEST.unpack_from(data)
    at = _REQUEST.size + model_size
    if len(data) != at + type_size:
        raise ValueError("a request of the wrong length")
    model, content_type = str(data[_REQUEST.size : at], "utf-8"), str(data[at:], "ascii")
    if not topics.valid_level(model):
        raise ValueError("a model's name that cannot be one")
    if deadline_ms > topics.MAX_DEADLINE_MS:
        msg = f"a deadline of {deadline_ms} ms, at most {topics.MAX_DEADLINE_MS} is possible"
        raise ValueError(msg)
    return Announcement(slot, sequence, size, deadline_ms, model, content_type)


def write_reply(head: ReplyHead) -> bytes:
    """Return the message but for its payload. The caller sees to it that it fits `MAX_REPLY`, as the texts do then."""
    content_type, meta = head.content_type.encode(), head.meta.encode()
    packed = _REPLY.pack(
        Kind.REPLY, head.error, head.in_slot, len(content_type), len(meta), head.slot, head.sequence, head.size
    )
    return packed + content_type + meta


def read_reply(data: memoryview) -> tuple[ReplyHead, memoryview]:
    """Return the head, and what follows it."""
    if len(data) < _REPLY.size or data[0] != Kind.REPLY:
        raise ValueError("a message that is no reply")
    _kind, error, in_slot, type_size, meta_size, slot, sequence, size = _REPLY.unpack_from(data)
    at = _REPLY.size + type_size
    end = at + meta_size
    if len(data) != end + (0 if in_slot else size):
        raise ValueError("a reply of the wrong length")
    texts = str(data[_REPLY.size : at], "utf-8"), str(data[at:end], "utf-8")
    return ReplyHead(slot, sequence, size, bool(error), bool(in_slot), *texts), data[end:]

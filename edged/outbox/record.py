"""One answer as bytes, and back. Pure: bytes in, a record out, or a ValueError; never a wrong record.

All little-endian: length u32 and CRC-32 u32 of what follows; version u8, number u64, the stamp (wall clock f64,
seconds since the machine's start f64, 16 bytes that name this start), length u32 of the head, the head (JSON: topic,
content type, user properties), the payload.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from typing import NamedTuple

from edged.transports.base import Message

VERSION = 1
FRAME = struct.Struct("<II")
CURSOR = struct.Struct("<QI")
_FIXED = struct.Struct("<BQdd16sI")
QOS = 1  # what is kept until it is acknowledged needs an acknowledgement


class Stamp(NamedTuple):
    """When: seconds since the epoch, seconds since the machine's start, and which start that was."""

    wall_s: float
    uptime_s: float
    boot: bytes


@dataclass(slots=True)
class Record:
    """One kept answer. Numbers go up by ones."""

    number: int
    stamp: Stamp
    message: Message


def pack(record: Record) -> bytes:
    """Return the record as it stands in a file."""
    message = record.message
    head = json.dumps([message.topic, message.content_type, message.user]).encode()
    body = b"".join((_FIXED.pack(VERSION, record.number, *record.stamp, len(head)), head, message.payload))
    return FRAME.pack(len(body), zlib.crc32(body)) + body


def unpack(body: bytes, checksum: int) -> Record:
    """Return the record of a body; raises ValueError when it is not what was written."""
    if len(body) < _FIXED.size or zlib.crc32(body) != checksum:
        raise ValueError("the checksum is wrong")
    version, number, wall_s, uptime_s, boot, head_size = _FIXED.unpack_from(body)
    if version != VERSION:
        raise ValueError(f"version {version}, this program knows {VERSION}")
    end = _FIXED.size + head_size
    try:
        topic, content_type, user = json.loads(body[_FIXED.size : end])
        pairs = tuple((str(name), str(value)) for name, value in user)
    except (TypeError, RecursionError) as exc:
        raise ValueError(str(exc)) from exc
    message = Message(topic, body[end:], QOS, content_type=content_type, user=pairs)
    return Record(number, Stamp(wall_s, uptime_s, boot), message)


def scan(data: bytes) -> tuple[int, int]:
    """Return how many whole records there are from the start, and where the last of them ends."""
    count = end = 0
    while end + FRAME.size <= len(data):
        length, checksum = FRAME.unpack_from(data, end)
        begin = end + FRAME.size
        if begin + length > len(data):
            break
        try:
            unpack(data[begin : begin + length], checksum)
        except ValueError:
            break
        count, end = count + 1, begin + length
    return count, end


def pack_cursor(low: int) -> bytes:
    """Return the cursor: all records below `low` are done with."""
    return CURSOR.pack(low, zlib.crc32(low.to_bytes(8, "little")))


def unpack_cursor(data: bytes) -> int:
    """Return the number in a cursor, 1 in an empty one; raises ValueError when it is not what was written."""
    if not data:
        return 1
    if len(data) != CURSOR.size:
        raise ValueError("the cursor is torn")
    low, checksum = CURSOR.unpack(data)
    if checksum != zlib.crc32(data[:8]) or not low:
        raise ValueError("the checksum is wrong")
    return int(low)

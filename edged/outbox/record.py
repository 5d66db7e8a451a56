"""One answer as bytes, and back. Pure: bytes in, a record out, or a ValueError; never a wrong record.

All little-endian: length u32 and CRC-32 u32 of what follows; version u8, number u64, the stamp (wall clock f64,
seconds since the machine's start f64, 16 bytes that name this start), length u32 of the head, the head (JSON: topic,
content type, user properties), the payload.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
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


def whole(data: bytes, at: int) -> Record | None:
    """Return the record that begins at byte `at`; None where no whole one does."""
    if not (end := said_end(data, at)):
        return None
    try:
        return unpack(data[at + FRAME.size : end], FRAME.unpack_from(data, at)[1])
    except ValueError:
        return None


def said_end(data: bytes, at: int) -> int:
    """Return where the record at byte `at` ends by its own word; 0 where that cannot be."""
    if at + FRAME.size > len(data):
        return 0
    length = FRAME.unpack_from(data, at)[0]
    end: int = at + FRAME.size + length
    return end if length >= _FIXED.size and end <= len(data) else 0


def find(data: bytes, at: int, first: int, end: int) -> tuple[Record, int] | None:
    """Return the next whole record at byte `at` or behind it, numbered `first` to `end` - 1, and where it ends.

    Where the one at `at` is damaged its length is believed first, as a payload may hold anything, also a record.
    """
    for begin in _places(data, at, first, end):
        found = whole(data, begin)
        if found is not None and first <= found.number < end:
            return found, said_end(data, begin)
    return None


def _places(data: bytes, at: int, first: int, end: int) -> Iterator[int]:
    yield at
    if behind := said_end(data, at):
        yield behind
    version = bytes([VERSION])
    body = at + FRAME.size
    while (body := data.find(version, body + 1)) >= 0:
        if first <= int.from_bytes(data[body + 1 : body + 9], "little") < end:
            yield body - FRAME.size


def scan(data: bytes, first: int) -> tuple[int, int, Record | None]:
    """Return the number behind the last record of a file, where that ends, and the last whole one.

    first: number of the first. Damaged ones count where whole ones follow or their length is believable.
    """
    number, at, last = first, 0, None
    most = first + len(data) // (FRAME.size + _FIXED.size) + 1
    while (found := find(data, at, number, most)) is not None:
        last, at = found
        number = last.number + 1
    while said := said_end(data, at):
        number, at = number + 1, said
    return number, at, last


def pack_cursor(low: int) -> bytes:
    """Return the cursor: all records below `low` are done with."""
    return CURSOR.pack(low, zlib.crc32(low.to_bytes(8, "little")))


def unpack_cursor(data: bytes) -> int:
    """Return the number in a cursor, 0 in an empty one; raises ValueError when it is not what was written."""
    if not data:
        return 0
    if len(data) != CURSOR.size:
        raise ValueError("the cursor is torn")
    low, checksum = CURSOR.unpack(data)
    if checksum != zlib.crc32(data[:8]) or not low:
        raise ValueError("the checksum is wrong")
    return int(low)

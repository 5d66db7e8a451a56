"""Our messages to MQTT packets: properties, sizes, the head of a PUBLISH, and what may not be sent at all.

Properties are packed here because paho's encoder builds its tables for every message (the packet's layout:
MQTT 5.0, sections 2.2.2 and 3.3.2.3).
"""

from __future__ import annotations

import functools
import struct

from paho.mqtt.properties import Properties

from edged.filters import MAX_BYTES, sendable, valid_topic
from edged.transports.base import MAX_QOS, Message

MAX_PACKET = 268_435_455  # bytes: what a packet's length field can say
MAX_PROPERTIES = 64 * 1024  # bytes
MAX_USER_PROPERTIES = 64
_MAX_EXPIRY_S = 0xFFFF_FFFF
_NO_PROPERTIES = b"\x00"
_KEPT_LENGTH = 256  # characters: replies to one requester go to one topic, which need not be looked at each time
_found_valid = functools.lru_cache(maxsize=128)(valid_topic)


class PackedProperties(Properties):
    """Properties already in their wire form, with the length in front."""

    def __init__(self, packed: bytes) -> None:
        object.__setattr__(self, "_packed", packed)

    def pack(self) -> bytes:
        """Return the wire form."""
        packed: bytes = object.__getattribute__(self, "_packed")
        return packed

    def __str__(self) -> str:
        return self.pack().hex()


def pack(message: Message) -> bytes:
    """Return the message's MQTT 5 properties with their length; raises ValueError when one cannot be sent."""
    parts = []
    if message.expiry_s is not None:
        parts.append(b"\x02" + struct.pack("!I", _expiry(message.expiry_s)))
    if message.content_type is not None:
        parts.append(b"\x03" + _usual_text(message.content_type))
    if message.response_topic is not None:
        _topic(message.response_topic)
        parts.append(b"\x08" + _text(message.response_topic))
    if message.correlation is not None:
        parts.append(b"\x09" + _sized(message.correlation))
    for key, value in message.user:
        parts.append(b"\x26" + _usual_text(key) + _text(value))
    if not parts:
        return _NO_PROPERTIES
    body = b"".join(parts)
    return varint(len(body)) + body


def check(message: Message) -> None:
    """Raise ValueError when the message cannot be published for another reason than its properties."""
    _topic(message.topic)
    if not 0 <= message.qos <= MAX_QOS:
        msg = f"QoS is 0, 1 or 2, not {message.qos}"
        raise ValueError(msg)


def wire_size(message: Message, properties: bytes) -> int:
    """Return the size in bytes of the MQTT 5 PUBLISH packet; one of 3.1.1 is smaller by its properties."""
    body = 2 + len(message.topic.encode()) + len(properties) + len(message.payload) + (2 if message.qos else 0)
    return 1 + len(varint(body)) + body


def head(message: Message, mid: int, properties: bytes) -> bytes:
    """Return what stands before the payload in a PUBLISH. properties: as `pack` has them; none with MQTT 3.1.1."""
    topic, qos = message.topic.encode(), message.qos
    behind = topic + mid.to_bytes(2, "big") + properties if qos else topic + properties
    first = 0x30 | qos << 1 | message.retain
    size = 2 + len(behind) + len(message.payload)
    return bytes((first,)) + varint(size) + len(topic).to_bytes(2, "big") + behind


def read_varint(data: bytes | bytearray, at: int, end: int) -> tuple[int, int]:
    """Return a Variable Byte Integer (MQTT 5.0, 1.5.5) and where it ends; past `end` when it does not end before."""
    value = shift = 0
    for place in range(at, min(end, at + 4)):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 (the bit that says another byte follows)
            return value, place + 1
        shift += 7
    return 0, end + 1


def _topic(topic: str) -> None:
    if not (_found_valid(topic) if len(topic) <= _KEPT_LENGTH else valid_topic(topic)):
        msg = f"not a topic to publish to: {topic[:80]!r}"
        raise ValueError(msg)


def _expiry(seconds: int) -> int:
    if not 0 <= seconds <= _MAX_EXPIRY_S:
        msg = f"expiry must be 0 to {_MAX_EXPIRY_S} s, got {seconds}"
        raise ValueError(msg)
    return seconds


def _text(text: str) -> bytes:
    if not sendable(text):
        msg = f"a character that MQTT forbids in {text[:80]!r}"
        raise ValueError(msg)
    return _sized(text.encode())


@functools.lru_cache(maxsize=32)
def _usual_text(text: str) -> bytes:
    """Encode a text of which a program has a few: a name, a content type."""
    return _text(text)


def _sized(data: bytes) -> bytes:
    if len(data) > MAX_BYTES:
        msg = f"{len(data)} bytes where MQTT allows {MAX_BYTES}"
        raise ValueError(msg)
    return len(data).to_bytes(2, "big") + data


def varint(value: int) -> bytes:
    """Encode a Variable Byte Integer (MQTT 5.0, 1.5.5)."""
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004 (seven bits a byte)
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)

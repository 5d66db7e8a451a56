"""Our messages to MQTT packets and back: properties, sizes, and what may not be sent at all.

Properties are packed here because paho's encoder builds its tables for every message (the packet's layout:
MQTT 5.0, sections 2.2.2 and 3.3.2.3).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from paho.mqtt.client import MQTTMessage
from paho.mqtt.properties import Properties

from edged.filters import MAX_BYTES, sendable, valid_topic
from edged.transports.base import MAX_QOS, Message

MAX_PACKET = 268_435_455  # bytes: what a packet's length field can say
_MAX_EXPIRY_S = 0xFFFF_FFFF
_EXPIRY, _CONTENT_TYPE, _RESPONSE_TOPIC, _CORRELATION, _USER = 0x02, 0x03, 0x08, 0x09, 0x26
_SUBSCRIPTION_ID, _TOPIC_ALIAS, _FORMAT = 0x0B, 0x23, 0x01
# The properties of a PUBLISH (MQTT 5.0, 2.2.2.2): bytes of those of fixed size, texts in those that have any.
_FIXED_SIZES = {_FORMAT: 1, _EXPIRY: 4, _TOPIC_ALIAS: 2}
_TEXTS = {_CONTENT_TYPE: 1, _RESPONSE_TOPIC: 1, _CORRELATION: 1, _USER: 2}
MAX_PROPERTIES = 64 * 1024 + 4  # bytes, with their length
MAX_USER_PROPERTIES = 64
_FIXED = 1 + 2 + 2  # packet type, topic length, packet id


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


def pack(message: Message) -> PackedProperties:
    """Return the message's MQTT 5 properties; raises ValueError when one cannot be sent."""
    parts = []
    if message.expiry_s is not None:
        parts.append(bytes((_EXPIRY,)) + struct.pack("!I", _expiry(message.expiry_s)))
    if message.content_type is not None:
        parts.append(bytes((_CONTENT_TYPE,)) + _text(message.content_type))
    if message.response_topic is not None:
        _topic(message.response_topic)
        parts.append(bytes((_RESPONSE_TOPIC,)) + _text(message.response_topic))
    if message.correlation is not None:
        parts.append(bytes((_CORRELATION,)) + _sized(message.correlation))
    parts += [bytes((_USER,)) + _text(key) + _text(value) for key, value in message.user]
    body = b"".join(parts)
    return PackedProperties(_varint(len(body)) + body)


def check(message: Message) -> None:
    """Raise ValueError when the message cannot be published for another reason than its properties."""
    _topic(message.topic)
    if not 0 <= message.qos <= MAX_QOS:
        msg = f"QoS is 0, 1 or 2, not {message.qos}"
        raise ValueError(msg)


def wire_size(message: Message, properties: PackedProperties) -> int:
    """Return the size in bytes of the MQTT 5 PUBLISH packet (at QoS 0 it is two less)."""
    body = _FIXED - 1 + len(message.topic.encode()) + len(properties.pack()) + len(message.payload)
    return 1 + len(_varint(body)) + body


def unpack(raw: MQTTMessage, received_ns: int) -> Message:
    """Return what arrived; raises UnicodeDecodeError when its topic is not UTF-8."""
    message = Message(raw.topic, raw.payload, raw.qos, raw.retain, received_ns=received_ns)
    found = raw.properties
    if found is not None:
        message.response_topic = getattr(found, "ResponseTopic", None)
        message.correlation = getattr(found, "CorrelationData", None)
        message.content_type = getattr(found, "ContentType", None)
        message.expiry_s = getattr(found, "MessageExpiryInterval", None)
        message.user = tuple(getattr(found, "UserProperty", ()))
    return message


class PublishHead(NamedTuple):
    """Where the parts of an MQTT 5 PUBLISH lie: the topic, its packet id, its properties (with length), the payload."""

    topic: bytes
    mid: int
    properties: bytes
    payload_at: int


def publish_head(packet: bytes | bytearray, qos: int) -> PublishHead | None:
    """Read what stands before the payload of `packet` (what follows the fixed header); None when it is malformed."""
    topic_end = 2 + int.from_bytes(packet[:2], "big")
    start = topic_end + (2 if qos else 0)
    size, width = _read_varint(packet[start : start + 4])
    end = start + width + size
    if not width or end > len(packet):
        return None
    mid = int.from_bytes(packet[topic_end:start], "big")
    return PublishHead(bytes(packet[2:topic_end]), mid, bytes(packet[start:end]), end)


def too_many(properties: bytes) -> bool:
    """Whether a message has more properties than a request or a reply can need: in bytes, or in user properties."""
    if len(properties) > MAX_PROPERTIES:
        return True
    _size, at = _read_varint(properties[:4])
    count = 0
    while at < len(properties) and count <= MAX_USER_PROPERTIES:
        count += properties[at] == _USER
        at = _next_property(properties, at)
    return count > MAX_USER_PROPERTIES


def _next_property(data: bytes, at: int) -> int:
    """Return where the next property begins; past the end when this one is malformed, which others find out."""
    kind, at = data[at], at + 1
    if kind in _FIXED_SIZES:
        return at + _FIXED_SIZES[kind]
    if kind == _SUBSCRIPTION_ID:
        return at + (_read_varint(data[at : at + 4])[1] or len(data))
    for _ in range(_TEXTS.get(kind, 0)):
        at += 2 + int.from_bytes(data[at : at + 2], "big")
    return at if kind in _TEXTS else len(data)


def _read_varint(data: bytes | bytearray) -> tuple[int, int]:
    """Return value and bytes of a Variable Byte Integer; (0, 0) when it does not end."""
    value = 0
    for index, byte in enumerate(data):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:  # noqa: PLR2004 (the bit that says another byte follows)
            return value, index + 1
    return 0, 0


def _topic(topic: str) -> None:
    if not valid_topic(topic):
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


def _sized(data: bytes) -> bytes:
    if len(data) > MAX_BYTES:
        msg = f"{len(data)} bytes where MQTT allows {MAX_BYTES}"
        raise ValueError(msg)
    return struct.pack("!H", len(data)) + data


def _varint(value: int) -> bytes:
    """Encode a Variable Byte Integer (MQTT 5.0, 1.5.5)."""
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004 (seven bits a byte)
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)

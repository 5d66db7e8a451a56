"""Our messages to MQTT packets and back: properties, sizes, and what may not be sent at all.

Properties are packed here because paho's encoder builds its tables for every message (the packet's layout:
MQTT 5.0, sections 2.2.2 and 3.3.2.3).
"""

from __future__ import annotations

import struct

from paho.mqtt.client import MQTTMessage
from paho.mqtt.properties import Properties

from edged.filters import sendable, valid_topic
from edged.transports.base import Message

MAX_PACKET = 268_435_455  # bytes: what a packet's length field can say
_MAX_TEXT = 65_535
_MAX_EXPIRY_S = 0xFFFF_FFFF
_EXPIRY, _CONTENT_TYPE, _RESPONSE_TOPIC, _CORRELATION, _USER = 0x02, 0x03, 0x08, 0x09, 0x26
_MAX_QOS = 2
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
    if not 0 <= message.qos <= _MAX_QOS:
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
    if len(data) > _MAX_TEXT:
        msg = f"{len(data)} bytes where MQTT allows {_MAX_TEXT}"
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

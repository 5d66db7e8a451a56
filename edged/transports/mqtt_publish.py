"""A PUBLISH packet that arrived, to a `Message` (MQTT 5.0, 3.3). Pure; the payload stays where it lies.

paho makes two objects of many fields for each packet and copies the payload for each property: 80 to 150 µs, and more
for large payloads. This takes about 6.
"""

from __future__ import annotations

from edged.transports.base import MAX_QOS, Message
from edged.transports.mqtt_buffers import Buffer
from edged.transports.mqtt_properties import MAX_PROPERTIES, MAX_USER_PROPERTIES, read_varint
from edged.transports.mqtt_receive import MalformedError

_FORMAT, _EXPIRY, _CORRELATION, _SUBSCRIPTION_ID, _USER = 0x01, 0x02, 0x09, 0x0B, 0x26
_TEXTS = {0x03: "content_type", 0x08: "response_topic"}


class UnwantedError(Exception):
    """A message that is acknowledged, so that it does not come again, and dropped; `counter` counts it."""

    def __init__(self, mid: int, counter: str) -> None:
        self.mid, self.counter = mid, counter
        super().__init__(counter)


def read(buffer: Buffer, command: int, at: int, end: int, *, v5: bool) -> tuple[Message, int]:
    """Return the message and its packet id (0 at QoS 0).

    command: the packet's first byte. at, end: where what follows its length lies.
    Raises MalformedError when its parts do not fit into it, UnwantedError on a topic that is not UTF-8 and on
    properties that are too many (in bytes, or user properties) or no text where text belongs.
    """
    data, qos = buffer.data, command >> 1 & 3
    topic_at = at + 2
    topic_end = _end_of_sized(data, at, end)
    at = topic_end + 2 if qos else topic_end
    # An empty topic stands for an alias, and we allow the broker none.
    if topic_end == topic_at or at > end or qos > MAX_QOS:
        raise MalformedError("a PUBLISH without a topic, without its packet id, or at QoS 3")
    mid = data[topic_end] << 8 | data[topic_end + 1] if qos else 0
    try:
        message = Message(data[topic_at:topic_end].decode(), b"", qos, bool(command & 1), dup=bool(command & 8))
    except UnicodeDecodeError as error:
        raise UnwantedError(mid, "dropped_bad_topic") from error
    if v5:
        size, at = read_varint(data, at, end)
        at += size
        if at > end:
            raise MalformedError("properties that are longer than the packet")
        if size and (size > MAX_PROPERTIES or not _read_properties(message, data, at - size, at)):
            raise UnwantedError(mid, "dropped_properties")
    if at < end:
        message.payload = buffer.part(at, end)
    return message, mid


def _read_properties(message: Message, data: bytearray, at: int, end: int) -> bool:
    """Fill in what the properties say; False when they are too many, or hold no text where text belongs."""
    user: list[tuple[str, str]] = []
    try:
        while at < end:
            kind, at = data[at], at + 1
            if kind == _USER:
                value_at = _end_of_sized(data, at, end)
                stop = _end_of_sized(data, value_at, end)
                user.append((data[at + 2 : value_at].decode(), data[value_at + 2 : stop].decode()))
                at = stop
                if len(user) > MAX_USER_PROPERTIES:
                    return False
            else:
                at = _read_single(message, kind, data, at, end)
    except UnicodeDecodeError:
        return False
    message.user = tuple(user)
    return True


def _read_single(message: Message, kind: int, data: bytearray, at: int, end: int) -> int:
    """Fill in a property that stands at most once; returns where it ends.

    A topic alias is refused: a broker may use none with a client that allows none, and we do not.
    """
    stop = end + 1
    if kind in _TEXTS and getattr(message, _TEXTS[kind]) is None:
        stop = _end_of_sized(data, at, end)
        setattr(message, _TEXTS[kind], data[at + 2 : stop].decode())
    elif kind == _CORRELATION and message.correlation is None:
        stop = _end_of_sized(data, at, end)
        message.correlation = bytes(data[at + 2 : stop])
    elif kind == _EXPIRY and message.expiry_s is None:
        stop = at + 4
        message.expiry_s = int.from_bytes(data[at:stop], "big")
    elif kind == _FORMAT:
        stop = at + 1
    elif kind == _SUBSCRIPTION_ID:
        stop = read_varint(data, at, end)[1]
    if stop > end:
        msg = f"property {kind:#04x} is cut off, stands twice, or does not belong to a PUBLISH"
        raise MalformedError(msg)
    return stop


def _end_of_sized(data: bytearray, at: int, end: int) -> int:
    """Return where a text or data with its length in front ends."""
    stop = at + 2 + (data[at] << 8 | data[at + 1]) if at + 2 <= end else end + 1
    if stop > end:
        raise MalformedError("a text that is longer than what it stands in")
    return stop

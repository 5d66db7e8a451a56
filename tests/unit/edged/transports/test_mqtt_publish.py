"""Our reading of PUBLISH packets against paho's, and what is refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt._packet import decode_publish
from paho.mqtt.enums import MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edged.transports.base import Message
from edged.transports.mqtt_buffers import Buffer
from edged.transports.mqtt_properties import varint
from edged.transports.mqtt_publish import UnwantedError, read
from edged.transports.mqtt_receive import MalformedError

_TEXT = st.text(alphabet=st.characters(categories=["L", "N", "P", "S"]), max_size=40)


def _read(body: bytes, command: int = 0x30, *, v5: bool = True) -> tuple[Message, int]:
    buffer = Buffer(len(body) + 7)
    buffer.data[3 : 3 + len(body)] = body
    return read(buffer, command, 3, 3 + len(body), v5=v5)


def _body(properties: bytes, topic: bytes = b"t", payload: bytes = b"p") -> bytes:
    return len(topic).to_bytes(2, "big") + topic + varint(len(properties)) + properties + payload


@given(
    st.binary(max_size=300), st.sampled_from([0, 1, 2]), st.booleans(), st.integers(0, 65_535),
    st.none() | _TEXT, st.none() | _TEXT, st.none() | st.binary(max_size=100), st.none() | st.integers(0, 2**32 - 1),
    st.lists(st.tuples(_TEXT, _TEXT), max_size=6), st.booleans(),
)  # fmt: skip
def test_what_paho_packs_is_read(
    payload: bytes, qos: int, retain: bool, mid: int, content_type: str | None, response: str | None,
    correlation: bytes | None, expiry: int | None, user: list[tuple[str, str]], more: bool,
) -> None:  # fmt: skip
    """Each property that paho's encoder writes, in its order, and the rest of the packet."""
    properties = Properties(PacketTypes.PUBLISH)
    for name, value in (
        ("ContentType", content_type), ("ResponseTopic", response), ("CorrelationData", correlation),
        ("MessageExpiryInterval", expiry), ("UserProperty", user or None),
        ("PayloadFormatIndicator", 1 if more else None), ("SubscriptionIdentifier", 200 if more else None),
    ):  # fmt: skip
        if value is not None:
            setattr(properties, name, value)
    body = b"\x00\x05a/\xc3\xa9b" + (mid.to_bytes(2, "big") if qos else b"") + properties.pack() + payload
    message, found = _read(body, 0x30 | qos << 1 | retain)
    expected = Message(
        "a/éb", payload, qos, retain, response_topic=response, correlation=correlation, content_type=content_type,
        expiry_s=expiry, user=tuple(user),
    )  # fmt: skip
    assert (message, found) == (expected, mid if qos else 0)


@given(st.binary(max_size=80), st.integers(0, 15), st.booleans())
def test_no_packet_breaks_it(junk: bytes, flags: int, v5: bool) -> None:
    """Whatever comes is read, refused or unwanted; where paho reads it too, both read the same."""
    try:
        message, mid = _read(junk, 0x30 | flags, v5=v5)
    except (MalformedError, UnwantedError):
        return
    version = MQTTProtocolVersion.MQTTv5 if v5 else MQTTProtocolVersion.MQTTv311
    with contextlib.suppress(Exception):
        theirs = decode_publish(0x30 | flags, junk, version)
        assert (theirs.topic.decode(), theirs.mid, theirs.payload) == (message.topic, mid, bytes(message.payload))


def test_the_payload_is_not_copied() -> None:
    """It lies in the buffer, and keeps it."""
    buffer = Buffer(100)
    buffer.data[:5] = b"\x00\x01t\x00p"
    message, _ = read(buffer, 0x30, 0, 5, v5=True)
    buffer.data[4:5] = b"q"
    assert bytes(message.payload) == b"q"
    assert buffer.readers() == 1


@pytest.mark.parametrize("flags", [0x00, 0x01, 0x02, 0x03, 0x0A, 0x0B])
def test_the_flags_are_told(flags: int) -> None:
    """DUP, QoS and RETAIN (MQTT 5.0, 3.3.1)."""
    mid = b"\x00\x01" if flags & 6 else b""
    message, _ = _read(b"\x00\x01t" + mid + b"\x00p", 0x30 | flags)
    assert (message.dup, message.qos, message.retain) == (bool(flags & 8), flags >> 1 & 3, bool(flags & 1))


def test_3_1_1_has_no_properties() -> None:
    """What follows the topic is the payload."""
    assert _read(b"\x00\x01t\x02\x01\x01", v5=False)[0].payload == b"\x02\x01\x01"


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\x00", b"\x00\x02t", b"\x00\x01t", b"\x00\x01t\x05", b"\x00\x01t\xff\xff\xff\xff\x01", _body(b"", b""),
        _body(b"\x23\x00\x01"), _body(b"\x02\x00\x00"), _body(b"\x03\x00\x05ab"), _body(b"\x26\x00\x01k"),
        _body(b"\x11\x00\x00\x00\x01"), _body(b"\x03\x00\x00\x03\x00\x00"), _body(b"\x0b\xff"), _body(b"\x7f"),
    ],
    ids=[
        "empty", "one byte", "topic cut", "no properties", "properties cut", "length without end", "no topic",
        "topic alias", "expiry cut", "text cut", "value missing", "of CONNECT", "twice", "varint cut", "unknown",
    ],
)  # fmt: skip
def test_malformed(body: bytes) -> None:
    """Each ends the connection, as the specification asks."""
    with pytest.raises(MalformedError):
        _read(body)


def test_qos_3_is_malformed() -> None:
    """There is none."""
    with pytest.raises(MalformedError):
        _read(b"\x00\x01t\x00\x01\x00p", 0x36)


def _user_properties(count: int, size: int = 1) -> bytes:
    text = size.to_bytes(2, "big") + b"k" * size
    return (b"\x26" + text + text) * count


@pytest.mark.parametrize(
    ("body", "counter"),
    [
        (_body(_user_properties(65)), "dropped_properties"),
        (_body(_user_properties(1, 40_000)), "dropped_properties"),
        (_body(b"\x03\x00\x01\xff"), "dropped_properties"),
        (_body(b"", b"\xff"), "dropped_bad_topic"),
    ],
    ids=["65 user properties", "64 KiB", "not UTF-8", "topic not UTF-8"],
)
def test_unwanted(body: bytes, counter: str) -> None:
    """What would come again for ever if it ended the connection: it is named with its packet id, for the PUBACK."""
    at = 2 + int.from_bytes(body[:2], "big")
    with pytest.raises(UnwantedError) as caught:
        _read(body[:at] + b"\x12\x34" + body[at:], 0x32)
    assert (caught.value.mid, caught.value.counter) == (0x1234, counter)


def test_64_user_properties_are_read() -> None:
    """The bound itself passes."""
    assert len(_read(_body(_user_properties(64)))[0].user) == 64

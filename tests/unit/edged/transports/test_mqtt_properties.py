"""Our property encoder and size against paho's own codec."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt._packet import decode_publish
from paho.mqtt.client import MQTTMessage
from paho.mqtt.enums import MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edged.transports import mqtt_properties
from edged.transports.base import Message
from edged.transports.mqtt_properties import publish_head, too_many

_TEXT = st.text(alphabet=st.characters(categories=["L", "N", "P", "S"]), max_size=40)
_MESSAGES = st.builds(
    Message,
    topic=st.just("a/b"),
    payload=st.binary(max_size=300),
    qos=st.just(1),
    response_topic=st.none() | st.just("edged/v1/resp/u/1"),
    correlation=st.none() | st.binary(max_size=200),
    content_type=st.none() | _TEXT,
    expiry_s=st.none() | st.integers(0, 2**32 - 1),
    user=st.lists(st.tuples(_TEXT, _TEXT), max_size=6).map(tuple),
)


@given(_MESSAGES)
def test_paho_reads_what_we_pack(message: Message) -> None:
    """Every property survives our encoder and paho's decoder, and comes back as the same message."""
    raw = MQTTMessage(topic=message.topic.encode())
    raw.payload, raw.qos = message.payload, message.qos  # type: ignore[assignment]  # bytes here
    raw.properties = Properties(PacketTypes.PUBLISH)
    packed = mqtt_properties.pack(message).pack()
    _, length = raw.properties.unpack(packed)
    assert length == len(packed)
    assert mqtt_properties.unpack(raw, 0) == message


@given(_MESSAGES)
def test_wire_size_is_that_of_the_packet(message: Message) -> None:
    """The size compared with the broker's Maximum Packet Size is exact: built here by the packet's layout."""
    packed = mqtt_properties.pack(message)
    body = 2 + len(message.topic.encode()) + 2 + len(packed.pack()) + len(message.payload)
    lengths = next(n for n in range(1, 5) if body < 128**n)
    assert mqtt_properties.wire_size(message, packed) == 1 + lengths + body


@pytest.mark.parametrize(
    "message",
    [
        Message("a/#", b""),
        Message("a", b"", qos=3),
        Message("a", b"", content_type="x\0"),
        Message("a", b"", response_topic="resp/+"),
        Message("a", b"", correlation=b"x" * 65_536),
        Message("a", b"", expiry_s=-1),
        Message("a", b"", expiry_s=2**32),
        Message("a", b"", user=(("k", "x" * 65_536),)),
        Message("a", b"", user=(("k", "\ud800"),)),
    ],
)
def test_what_cannot_be_sent(message: Message) -> None:
    """Each would make a packet that brokers answer by closing the connection."""

    def encode() -> None:
        mqtt_properties.check(message)
        mqtt_properties.pack(message)

    with pytest.raises(ValueError, match=r".+"):
        encode()


def test_a_topic_that_is_not_utf8_says_so() -> None:
    """The caller counts it; the thread lives on."""
    with pytest.raises(UnicodeDecodeError):
        mqtt_properties.unpack(MQTTMessage(topic=b"a/\xff"), 0)


def _user_properties(count: int, size: int = 1) -> bytes:
    text = size.to_bytes(2, "big") + b"k" * size
    body = (b"\x26" + text + text) * count
    return mqtt_properties._varint(len(body)) + body


@pytest.mark.parametrize(
    ("properties", "dropped"),
    [
        (b"\x00", False), (_user_properties(64), False), (_user_properties(65), True),
        (_user_properties(1, 40_000), True),
        (b"\x09\x02" + b"\x00\x00\x00\x01" + b"\x0b\x80\x01" + b"\x01\x01", False),
    ],
)  # fmt: skip
def test_too_many_properties(properties: bytes, dropped: bool) -> None:
    """64 user properties and 64 KiB are the most; the other properties of a message are passed over."""
    assert too_many(properties) is dropped


@given(st.binary(max_size=60), st.integers(0, 2))
def test_no_packet_breaks_the_head(junk: bytes, qos: int) -> None:
    """Whatever comes is a head whose parts lie within the packet, or none; where paho reads one, it is the same."""
    head = publish_head(junk, qos)
    if head is None:
        return
    assert head.payload_at <= len(junk)
    too_many(head.properties)
    with contextlib.suppress(Exception):
        theirs = decode_publish(0x30 | qos << 1, junk, MQTTProtocolVersion.MQTTv5)
        assert (theirs.topic, theirs.mid, bytes(theirs.payload)) == (head.topic, head.mid, junk[head.payload_at :])

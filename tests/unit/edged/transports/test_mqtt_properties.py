"""Our encoder against paho's decoder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt._packet import decode_publish
from paho.mqtt.enums import MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edged.transports import mqtt_properties
from edged.transports.base import Message

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
    """Every property survives our encoder and paho's decoder."""
    found = Properties(PacketTypes.PUBLISH)
    packed = mqtt_properties.pack(message)
    _, length = found.unpack(packed)
    assert length == len(packed)
    names = ("ResponseTopic", "CorrelationData", "ContentType", "MessageExpiryInterval", "UserProperty")
    theirs = [getattr(found, name, None) for name in names]
    user = list(message.user) or None
    assert theirs == [message.response_topic, message.correlation, message.content_type, message.expiry_s, user]


@given(_MESSAGES, st.sampled_from([0, 1, 2]), st.integers(1, 65_535), st.booleans())
def test_paho_reads_our_packets(message: Message, qos: int, mid: int, v5: bool) -> None:
    """The head and the payload are a PUBLISH, with and without properties; the size compared with limits is exact."""
    message.qos = qos
    properties = mqtt_properties.pack(message) if v5 else b""
    packet = mqtt_properties.head(message, mid, properties) + message.payload
    assert len(packet) == mqtt_properties.wire_size(message, properties)
    body = len(packet) - 2 if packet[1] < 128 else len(packet) - 3
    assert (packet[1] & 127) + (packet[2] << 7 if packet[1] > 127 else 0) == body
    version = MQTTProtocolVersion.MQTTv5 if v5 else MQTTProtocolVersion.MQTTv311
    theirs = decode_publish(packet[0], packet[-body:], version)
    assert (theirs.topic, theirs.payload, theirs.qos, theirs.retain) == (b"a/b", message.payload, qos, False)
    assert theirs.mid == (mid if qos else 0)


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


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 268_435_455])
def test_varint(value: int) -> None:
    """The table of MQTT 5.0, 1.5.5: each of its borders comes back."""
    packed = mqtt_properties.varint(value)
    assert len(packed) == next(n for n in range(1, 5) if value < 128**n)
    assert mqtt_properties.read_varint(b"x" + packed + b"y", 1, 1 + len(packed)) == (value, 1 + len(packed))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff\xff\x01"])
def test_a_varint_without_end(data: bytes) -> None:
    """Where it should end lies beyond the data."""
    assert mqtt_properties.read_varint(data, 0, len(data))[1] > len(data)

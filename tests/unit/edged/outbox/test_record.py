"""One answer as bytes: what was written is read back, whatever else is there is refused."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.outbox import record
from edged.outbox.record import FRAME, Record, Stamp
from edged.transports.base import Message

STAMP = Stamp(1.5, 2.5, b"0123456789abcdef")
TEXT = st.text(max_size=20)


@given(TEXT, st.binary(max_size=64), st.none() | TEXT, st.lists(st.tuples(TEXT, TEXT), max_size=3))
def test_what_was_packed_is_unpacked(
    topic: str, payload: bytes, content_type: str | None, user: list[tuple[str, str]]
) -> None:
    """Topic, payload, content type and user properties come back, at QoS 1."""
    kept = Record(7, STAMP, Message(topic, payload, 1, content_type=content_type, user=tuple(user)))
    data = record.pack(kept)
    length, checksum = FRAME.unpack_from(data)
    assert length == len(data) - FRAME.size
    assert record.unpack(data[FRAME.size :], checksum) == kept


def test_the_checksum_is_that_of_zlib() -> None:
    """The frame is what the module's text says: length and CRC-32 of the rest."""
    data = record.pack(Record(1, STAMP, Message("t", b"p", 1)))
    assert data[:8] == (len(data) - 8).to_bytes(4, "little") + zlib.crc32(data[8:]).to_bytes(4, "little")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x",
        bytes(49),
        b"\x01" + bytes(48),
        b"\x01" + bytes(44) + b"\x02\0\0\0[]",
        b"\x01" + bytes(44) + b"\4\0\0\0null",
    ],
)
def test_a_body_that_was_never_written_is_refused(body: bytes) -> None:
    """Too short, another version, no head, a head of another form: ValueError although the checksum is right."""
    with pytest.raises(ValueError):  # noqa: PT011  # any of them
        record.unpack(body, zlib.crc32(body))


def test_zeros_are_no_records() -> None:
    """What a power cut leaves in a file, an end of zeros, is not taken for empty records whose checksum is 0."""
    kept = Record(1, STAMP, Message("t", b"p", 1))
    data = record.pack(kept)
    assert record.scan(data + bytes(64), 1) == (2, len(data), kept)
    assert record.scan(bytes(64), 1) == (1, 0, None)


@pytest.mark.parametrize("data", [b"abc", record.pack_cursor(9)[:-1], bytes(12), b"\1" + record.pack_cursor(9)[1:]])
def test_a_damaged_cursor_is_refused(data: bytes) -> None:
    """Torn, zeros, another number: not believed. An empty one is that of a new directory."""
    with pytest.raises(ValueError):  # noqa: PT011
        record.unpack_cursor(data)
    assert record.unpack_cursor(record.pack_cursor(9)) == 9
    assert record.unpack_cursor(b"") == 0

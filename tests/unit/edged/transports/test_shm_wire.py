"""The local protocol's messages: what is written is read back, and anything else is an error in words."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.transports import shm_wire
from edged.transports.shm_wire import Announcement, Hello, ReplyHead

NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1, max_size=60)


def test_the_bytes_are_those_written_down() -> None:
    """By hand, from the layout: little-endian, nothing between the fields."""
    told = Announcement(slot=3, sequence=7, size=12, deadline_ms=500, model="m", content_type="image/png")
    assert shm_wire.write_request(told) == struct.pack("<BBBIQQI", 3, 1, 9, 3, 7, 12, 500) + b"mimage/png"
    assert shm_wire.write_hello(Hello(4, 4096)) == b"\x01edgd" + struct.pack("<HIQ", 1, 4, 4096)
    head = ReplyHead(1, 2, 5, error=True, in_slot=False, content_type="a/b", meta="v=1")
    assert shm_wire.write_reply(head) == struct.pack("<BBBHHIQQ", 4, 1, 0, 3, 3, 1, 2, 5) + b"a/bv=1"


LONG = st.integers(0, 2**64 - 1)
TOLD = st.builds(
    Announcement, st.integers(0, 2**32 - 1), LONG, LONG, st.integers(0, 86_400_000), NAMES,
    st.sampled_from(["", "application/json"]),
)  # fmt: skip


@given(TOLD)
def test_a_request_is_read_as_it_was_written(told: Announcement) -> None:
    """Every field, to its limits."""
    assert shm_wire.read_request(memoryview(shm_wire.write_request(told))) == told


@given(st.booleans(), st.booleans(), NAMES, st.text(max_size=200), st.binary(max_size=100))
def test_a_reply_is_read_as_it_was_written(error: bool, in_slot: bool, kind: str, meta: str, payload: bytes) -> None:
    """The payload stands behind the head, or nowhere in the message."""
    with contextlib.suppress(UnicodeEncodeError):  # a lone surrogate is no text
        head = ReplyHead(1, 2, len(payload), error, in_slot, kind, meta)
        data = shm_wire.write_reply(head) + (b"" if in_slot else payload)
        found, rest = shm_wire.read_reply(memoryview(data))
        assert (found, bytes(rest)) == (head, b"" if in_slot else payload)


@given(st.binary(max_size=80))
def test_garbage_is_a_value_error(data: bytes) -> None:
    """Whatever the bytes are, and whatever kind they claim to be."""
    for kind in (b"", *(bytes((kind,)) for kind in shm_wire.Kind)):
        for read in (shm_wire.read_request, shm_wire.read_reply, shm_wire.read_hello):
            with contextlib.suppress(ValueError):
                read(memoryview(kind + data))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"model": "a/b"}, "a model's name that cannot be one"),
        ({"model": ""}, "a model's name that cannot be one"),
        ({"deadline_ms": 86_400_001}, "a deadline of 86400001 ms, at most 86400000"),
    ],
)
def test_what_could_never_be_answered_is_refused(more: dict[str, object], what: str) -> None:
    """The intake would refuse such a topic without a reply."""
    told = Announcement(0, 1, 4, 100, "m", "")._replace(**more)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=what):
        shm_wire.read_request(shm_wire.write_request(told))


def test_another_version_says_which() -> None:
    """The words are for the person who updated one side only."""
    with pytest.raises(ValueError, match="speaks version 9 of the local protocol, this is version 1"):
        shm_wire.read_hello(b"\x01edgd" + struct.pack("<HIQ", 9, 4, 4096))
    with pytest.raises(ValueError, match="no edged daemon"):
        shm_wire.read_hello(b"HTTP/1.1 400 Bad Request")


def test_a_farewell_is_cut_and_never_fails() -> None:
    """A reason of any length and any characters."""
    assert shm_wire.read_bye(shm_wire.write_bye("why é")) == "why é"
    assert len(shm_wire.write_bye("x" * 5000)) == shm_wire.MAX_REQUEST
    shm_wire.read_bye(shm_wire.write_bye("\udcff" + "é" * 600))

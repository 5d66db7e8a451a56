"""Every counter that a room has is told in words."""

from __future__ import annotations

import pytest

from edged.intake import REFUSALS
from edged.outbox import sender
from edged.prometheus import helps
from edged.streams import stream
from edged.transports import loopback, mqtt, shm

ROOMS = {
    "edged_transport": {*mqtt._COUNTERS, *loopback._COUNTERS},
    "edged_transport_local": set(shm._COUNTERS),
    "edged_transport_intake": {f"refused_{reason}" for reason in REFUSALS},
    "edged_transport_local_intake": {f"refused_{reason}" for reason in REFUSALS},
    "edged_transport_outbox": set(sender._COUNTERS),
    "edged_stream": set(stream._COUNTERS),
}


@pytest.mark.parametrize("room", ROOMS)
def test_a_new_counter_needs_a_text(room: str) -> None:
    """None is told by the words of its name alone."""
    assert ROOMS[room] <= helps._HELPS[room].keys()


def test_the_texts_are_sentences() -> None:
    """One line each, and two metrics of a room never say the same."""
    for room, texts in helps._HELPS.items():
        assert all(text[0].isupper() and text.endswith(".") and text.isprintable() for text in texts.values())
        assert len(set(texts.values())) == len(texts), room


def test_what_nobody_described_is_told_by_its_name() -> None:
    """Not in silence."""
    assert helps.about("edged_transport", "brand_new") == "Brand new (edged transport)."

"""Memory to receive into: never used again while somebody refers to it, and not kept without bound."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from edged.transports import mqtt_buffers
from edged.transports.mqtt_buffers import IDLE_NS, STEP, Buffer, Pool


def test_a_free_buffer_is_taken_again() -> None:
    """One buffer serves a thousand messages that are looked at and forgotten."""
    pool = Pool()
    for number in range(1000):
        buffer = pool.take(600_000, number)
        assert len(buffer.part(5, 600_000)) == 599_995
    assert (pool.made, pool.kept()) == (1, -(-600_000 // STEP) * STEP)


@pytest.mark.parametrize(
    "reader",
    [
        lambda buffer: buffer.part(3, 10),
        lambda buffer: buffer.part(3, 10)[2:4],
        lambda buffer: np.frombuffer(buffer.part(0, 16), np.float32)[1:],
        lambda buffer: buffer.data,
    ],
    ids=["part", "part of a part", "array", "data"],
)
def test_whoever_refers_to_it_keeps_it(reader: object) -> None:
    """A view, a view of a view, an array over one: the memory is not handed out before the last of them is gone."""
    pool = Pool()
    first = pool.take(100, 0)
    assert callable(reader)
    held = reader(first)
    assert first.readers() == 1
    other = pool.take(100, 0)
    assert other is not first
    _in_use = other.data
    del held
    gc.collect()
    assert pool.take(100, 0) is first


def test_a_part_cannot_be_written() -> None:
    """Who gets a message may not change what others still read."""
    part = Buffer(10).part(0, 10)
    with pytest.raises(TypeError):
        part[0] = 1


def test_sizes_that_fit() -> None:
    """A small message does not take a large buffer, a large one takes one of about its size."""
    pool = Pool()
    large = pool.take(10 * STEP, 0)
    assert pool.take(STEP, 0) is not large
    assert pool.take(9 * STEP, 0) is large
    assert pool.take(11 * STEP, 0) is not large


def test_what_is_idle_is_given_up() -> None:
    """One large message does not keep its memory for ever; what is in use meanwhile stays."""
    pool = Pool()
    pool.take(100 * STEP, 0)
    used = pool.take(STEP, IDLE_NS // 2)
    pool.trim(IDLE_NS)
    assert pool.kept() == STEP
    assert pool.take(STEP, IDLE_NS) is used


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that hold on to their messages keep these, not the pool: it lets go of the oldest."""
    monkeypatch.setattr(mqtt_buffers, "MAX_KEPT", 3 * STEP)
    pool = Pool()
    held = [pool.take(STEP, 0).part(0, 1) for _ in range(10)]
    assert pool.kept() == 3 * STEP
    pool.take(50 * STEP, 0)
    assert (pool.kept(), len(held)) == (50 * STEP, 10)  # one may be larger than the bound, alone

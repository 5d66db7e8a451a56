"""The reply memory: a repeat gets the first answer, a different request never does."""

from __future__ import annotations

import random
import time
import tracemalloc

import pytest

from edged.replies import OVERHEAD, ReplyMemory, checksum
from edged.transports.base import Message

KEY = ReplyMemory.key("m", "c/u", "raw", "edged/v1/resp/u/1", b"c1", b"payload")


def reply(text: bytes = b"answer") -> Message:
    return Message("edged/v1/resp/u/1", text)


def test_a_repeat_gets_the_stored_answer() -> None:
    """begin → store → begin again gives the very same message."""
    memory, answer = ReplyMemory(1 << 20, 60), reply()
    assert memory.begin(KEY) == (True, None)
    memory.store(KEY, answer)
    assert memory.begin(KEY) == (False, answer)


def test_a_repeat_while_the_first_runs_is_not_run_again() -> None:
    """It is not new, and there is nothing to send yet."""
    memory = ReplyMemory(1 << 20, 60)
    memory.begin(KEY)
    assert memory.begin(KEY) == (False, None)


def test_the_same_correlation_with_another_payload_is_another_request() -> None:
    """Requesters that always send the same correlation must not get an old answer."""
    memory = ReplyMemory(1 << 20, 60)
    memory.begin(KEY)
    memory.store(KEY, reply())
    assert memory.begin(ReplyMemory.key("m", "c/u", "raw", "edged/v1/resp/u/1", b"c1", b"another")) == (True, None)


def test_the_same_step_of_another_state_is_another_request() -> None:
    """One user with two keys, which counts its requests for each: nobody gets the answer of the other one."""
    memory = ReplyMemory(1 << 20, 60)
    memory.begin(KEY)
    memory.store(KEY, reply())
    assert memory.begin(KEY._replace(state_key="c/u/a")) == (True, None)


def test_a_forgotten_request_runs_again() -> None:
    """A retryable error invites to try again, so the memory must not answer for it."""
    memory = ReplyMemory(1 << 20, 60)
    memory.begin(KEY)
    memory.forget(KEY)
    assert memory.begin(KEY) == (True, None)


def test_bytes_are_bounded_oldest_out_first() -> None:
    """Room for two answers: after three, the first is forgotten and the last is known."""
    memory = ReplyMemory(2 * (OVERHEAD + 1100), 60)
    keys = [ReplyMemory.key("m", "c/u", "raw", "t", str(n).encode(), b"") for n in range(3)]
    for key in keys:
        memory.begin(key)
        memory.store(key, reply(b"x" * 1000))
    assert memory.begin(keys[2])[0] is False
    assert memory.begin(keys[0])[0] is True


def test_age_is_bounded() -> None:
    """What is older than the bound is forgotten."""
    memory = ReplyMemory(1 << 20, 0.02)
    memory.begin(KEY)
    memory.store(KEY, reply())
    time.sleep(0.05)
    assert memory.begin(KEY) == (True, None)


def test_zero_bytes_keeps_nothing_and_still_works() -> None:
    """`memory_bytes: 0` turns the memory off."""
    memory = ReplyMemory(0, 60)
    for _ in range(3):
        assert memory.begin(KEY)[0] is True
        memory.store(KEY, reply())


def test_accounting_returns_to_zero() -> None:
    """No drift: after everything is forgotten, no byte is counted."""
    memory = ReplyMemory(1 << 20, 60)
    for n in range(50):
        key = ReplyMemory.key("m", "c/u", "raw", "t", str(n).encode(), b"")
        memory.begin(key)
        memory.store(key, reply(b"x" * n))
        memory.forget(key)
    assert memory._bytes == 0


def test_long_topics_and_correlations_count_too() -> None:
    """A requester may make each 64 KiB: a hundred such entries do not fit into a mebibyte."""
    memory = ReplyMemory(1 << 20, 60)
    keys = [ReplyMemory.key("m", "c/u", "raw", "t" * 60_000, bytes(60_000) + bytes([n]), b"") for n in range(100)]
    for key in keys:
        memory.begin(key)
        memory.store(key, reply())
    assert len(memory._entries) < 10


def test_the_same_request_in_another_codec_is_another_request() -> None:
    """An answer in raw bytes is none to a question in JSON."""
    memory = ReplyMemory(1 << 20, 60)
    memory.begin(KEY)
    memory.store(KEY, reply())
    assert memory.begin(ReplyMemory.key("m", "c/u", "json", "edged/v1/resp/u/1", b"c1", b"payload")) == (True, None)


SIZES = [0, 1, 64, 32_767, 32_768, 40_000, 150_528, 602_112]


@pytest.mark.parametrize("size", SIZES)
def test_the_checksum_is_of_the_content_alone(size: int) -> None:
    """Bytes, a bytearray and a view at an odd place of a larger buffer have the same one."""
    data = random.Random(1).randbytes(size)
    inside = memoryview(bytearray(b"x" * 3 + data + b"y"))[3 : 3 + size]
    assert checksum(data) == checksum(bytearray(data)) == checksum(inside)


@pytest.mark.parametrize("size", SIZES[2:])
def test_every_small_change_is_told(size: int) -> None:
    """One byte anywhere, two and three bytes that cancel each other in a sum, neighbours swapped, a bit at each end."""
    rng = random.Random(2)
    data = bytearray(rng.randbytes(size))
    before = checksum(data)
    for round_ in range(300):
        changed = bytearray(data)
        places = rng.sample(range(size), 1 + round_ % 3)
        moved = rng.randrange(1, 256)
        for sign, place in zip((1, -1, 0), places, strict=False):
            changed[place] = (changed[place] + (sign or 128) * moved) % 256
        assert checksum(changed) != before or changed == data
        place = rng.randrange(size - 1)
        changed = bytearray(data)
        changed[place : place + 2] = reversed(changed[place : place + 2])
        assert checksum(changed) != before or changed == data
    for place in (0, size - 1):
        changed = bytearray(data)
        changed[place] ^= 1
        assert checksum(changed) != before


def test_what_moves_in_a_picture_is_told() -> None:
    """A bright square on black, at every place of a grid: the same bytes in another order, and 576 different ones."""
    found = set()
    for row in range(24):
        for column in range(24):
            image = bytearray(224 * 224 * 3)
            for line in range(32):
                at = ((row * 8 + line) * 224 + column * 8) * 3
                image[at : at + 96] = b"\xff" * 96
            found.add(checksum(image))
    assert len(found) == 24 * 24


@pytest.mark.parametrize("value", [0x3F800000, 0x80000000, 0x00010000])
def test_floats_that_differ_in_few_bits_are_told(value: int) -> None:
    """Masks of 0 and 1, and signs, moved one place at a time through a tensor of float32."""
    found = set()
    for place in range(0, 37_632, 97):
        tensor = bytearray(150_528)
        tensor[4 * place : 4 * place + 4] = value.to_bytes(4, "little")
        other = (place + 4096) % 37_632
        tensor[4 * other : 4 * other + 4] = value.to_bytes(4, "little")
        found.add(checksum(tensor))
    assert len(found) == len(range(0, 37_632, 97))


@pytest.mark.parametrize("size", [40_000, 150_528, 602_112])
def test_changes_that_cancel_each_other_in_sums_are_told(size: int) -> None:
    """Four bytes, and four runs of bytes, in steps of numbers that a sum by columns might be made with."""
    rng = random.Random(3)
    data = bytearray(size)
    for steps in ((8179, 8191), (4096, 8192), (64, 16_384), (1, 3)):
        for length in (1, 64):
            run, changed = [rng.randrange(1, 256) for _ in range(length)], bytearray(data)
            for offset, sign in ((0, 1), (steps[0], -1), (steps[1], -1), (sum(steps), 1)):
                for place, value in enumerate(run, 1000 + offset):
                    changed[place] = (changed[place] + sign * value) % 256
            assert changed != data
            assert checksum(changed) != checksum(data)


def test_the_checksum_costs_no_memory() -> None:
    """Nothing of a payload's size is allocated."""
    payload = memoryview(bytearray(4 << 20))
    checksum(payload)
    tracemalloc.start()
    checksum(payload)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32_768

"""The reply memory: a repeat gets the first answer, a different request never does."""

from __future__ import annotations

import time

from edged.replies import OVERHEAD, ReplyMemory
from edged.transports.base import Message

KEY = ReplyMemory.key("m", "raw", "edged/v1/resp/u/1", b"c1", b"payload")


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
    assert memory.begin(ReplyMemory.key("m", "raw", "edged/v1/resp/u/1", b"c1", b"another")) == (True, None)


def test_a_forgotten_request_runs_again() -> None:
    """A retryable error invites to try again, so the memory must not answer for it."""
    memory = ReplyMemory(1 << 20, 60)
    memory.begin(KEY)
    memory.forget(KEY)
    assert memory.begin(KEY) == (True, None)


def test_bytes_are_bounded_oldest_out_first() -> None:
    """Room for two answers: after three, the first is forgotten and the last is known."""
    memory = ReplyMemory(2 * (OVERHEAD + 1100), 60)
    keys = [ReplyMemory.key("m", "raw", "t", str(n).encode(), b"") for n in range(3)]
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
        key = ReplyMemory.key("m", "raw", "t", str(n).encode(), b"")
        memory.begin(key)
        memory.store(key, reply(b"x" * n))
        memory.forget(key)
    assert memory._bytes == 0


def test_long_topics_and_correlations_count_too() -> None:
    """A requester may make each 64 KiB: a hundred such entries do not fit into a mebibyte."""
    memory = ReplyMemory(1 << 20, 60)
    keys = [ReplyMemory.key("m", "raw", "t" * 60_000, bytes(60_000) + bytes([n]), b"") for n in range(100)]
    for key in keys:
        memory.begin(key)
        memory.store(key, reply())
    assert len(memory._entries) < 10


def test_the_same_request_in_another_codec_is_another_request() -> None:
    """An answer in raw bytes is none to a question in JSON."""
    memory = ReplyMemory(1 << 20, 60)
    memory.begin(KEY)
    memory.store(KEY, reply())
    assert memory.begin(ReplyMemory.key("m", "json", "edged/v1/resp/u/1", b"c1", b"payload")) == (True, None)

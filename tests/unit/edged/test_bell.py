"""What wakes the main thread: heard from anywhere, never late, and gone with its descriptors."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import pytest

from edged.bell import Bell
from edged.clock import NS_PER_S, now_ns

LONG_S = 30.0


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def waited_s(bell: Bell, timeout_s: float) -> float:
    begun = now_ns()
    bell.wait(timeout_s)
    return (now_ns() - begun) / NS_PER_S


def test_a_ring_ends_the_wait_of_now_and_the_next_one() -> None:
    """From another thread, or before it began; many rings are one."""
    with Bell() as bell:
        threading.Timer(0.05, bell.ring).start()
        assert waited_s(bell, LONG_S) < LONG_S / 2
        for _ in range(100_000):  # more than a pipe holds
            bell.ring()
        while waited_s(bell, 0.01) < 0.01:
            pass
        bell.ring()
        assert waited_s(bell, LONG_S) < LONG_S / 2


def test_it_leaves_nothing_open() -> None:
    """However it ends; a ring before or after is heard by nobody and reaches no other file."""
    before, bell = descriptors(), Bell()
    bell.ring()
    with contextlib.suppress(KeyError), bell:
        assert descriptors() == before + 2
        raise KeyError
    assert descriptors() == before
    reader, writer = os.pipe2(os.O_NONBLOCK)  # gets the same numbers
    bell.ring()
    with pytest.raises(BlockingIOError):
        os.read(reader, 1)
    os.close(reader)
    os.close(writer)

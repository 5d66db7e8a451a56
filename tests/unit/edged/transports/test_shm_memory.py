"""Memory that both sides may rely on: nobody can cut it, and it goes with its last user."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edged.errors import UnavailableError
from edged.transports import shm_memory
from edged.transports.shm_memory import SlotMemory
from edged.transports.shm_wire import Hello

SHAPE = Hello(3, 5000)


@pytest.fixture
def fd() -> Iterator[int]:
    made = shm_memory.create(SHAPE)
    yield made
    os.close(made)


def mapped() -> int:
    """How many mappings of such memory this process has, as the kernel sees it."""
    return Path("/proc/self/maps").read_text().count("memfd:edged-local")


def test_nobody_can_change_its_size(fd: int) -> None:
    """A page that is gone would kill whoever reads it."""
    for size in (0, 10 * shm_memory.size(SHAPE)):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, size)
    with pytest.raises(PermissionError):  # nor can the seals be changed
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


def test_its_pages_are_there_from_the_start(fd: int) -> None:
    """Too little memory is an error when it is made, not when it is read."""
    assert os.fstat(fd).st_blocks * 512 >= shm_memory.size(SHAPE)


def test_slots_are_aligned_and_apart(fd: int) -> None:
    """Each begins at a page; what is written in one shows there on the other side, and nowhere else."""
    here, there = SlotMemory(fd, SHAPE, populate=False), SlotMemory(fd, SHAPE, populate=True)
    for slot in range(SHAPE.slots):
        array = np.frombuffer(here.view(slot, SHAPE.slot_bytes), np.uint8)
        assert array.ctypes.data % mmap.PAGESIZE == 0
        array[:] = slot + 1
    seen = [bytes(there.view(slot, SHAPE.slot_bytes)) for slot in range(SHAPE.slots)]
    assert seen == [bytes((slot + 1,)) * SHAPE.slot_bytes for slot in range(SHAPE.slots)]


def test_it_goes_with_the_last_view(fd: int) -> None:
    """A request that is under way when its producer dies keeps what it needs, and no longer."""
    before = mapped()
    memory = SlotMemory(fd, SHAPE, populate=False)
    view = memory.view(1, 10)
    del memory
    assert mapped() == before + 1
    del view
    assert mapped() == before


def test_memory_that_could_be_cut_is_not_used() -> None:
    """A producer checks what it is given: who listens there may not be our daemon."""
    fd = os.memfd_create("other", os.MFD_ALLOW_SEALING)
    try:
        with pytest.raises(ValueError, match="smaller than the daemon says"):
            shm_memory.check(fd, SHAPE)
        os.ftruncate(fd, shm_memory.size(SHAPE))
        with pytest.raises(ValueError, match="not sealed"):
            shm_memory.check(fd, SHAPE)
    finally:
        os.close(fd)


def test_another_system_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names what is missing."""
    assert shm_memory.unsupported() == ""
    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(UnavailableError, match="local: producers on the box need Linux: no memfd_create here"):
        shm_memory.refuse_unsupported()

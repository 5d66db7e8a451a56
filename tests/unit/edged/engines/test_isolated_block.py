"""The memory that two processes share: its size holds, its places agree, and nothing in it is believed."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import tinymodel

from edged.bundle import Manifest
from edged.engines import isolated_block
from edged.engines.isolated_block import Block

INS = (tinymodel.spec("a", (3, 5), "int8", scale=0.5, io="float"), tinymodel.spec("b", (7,), "bool"))
OUTS = (tinymodel.spec("y", (1, 1024)), tinymodel.spec("z", (2, 2), "int64"))
MANIFEST = Manifest(1, "m", 1, {}, "serving_default", INS, OUTS)


@pytest.fixture
def memory() -> Iterator[int]:
    fd = isolated_block.new(MANIFEST)
    yield fd
    os.close(fd)


def test_both_sides_see_the_same_arrays(memory: int) -> None:
    """Wire dtypes and shapes; what one side writes the other reads, in its place and in no other's."""
    mine, theirs = Block(memory, MANIFEST).wire, Block(memory, MANIFEST).wire
    ours = [*mine.inputs, *mine.outputs]
    assert [(a.dtype.name, a.shape) for a in ours] == [
        ("float32", (3, 5)), ("bool", (7,)), ("float32", (1, 1024)), ("int64", (2, 2)),
    ]  # fmt: skip
    for number, array in enumerate(ours):
        array[...] = number + 1
    for number, array in enumerate([*theirs.inputs, *theirs.outputs]):
        np.testing.assert_array_equal(array, np.full(array.shape, number + 1, array.dtype))


def test_arrays_can_be_tensors(memory: int) -> None:
    """Aligned to 64 bytes, contiguous, zero at first, with 16 bytes behind each that can be read."""
    wire = Block(memory, MANIFEST).wire
    arrays = [*wire.inputs, *wire.outputs]
    starts = [a.ctypes.data for a in arrays]
    assert all(start % 64 == 0 for start in starts)
    assert all(a.flags.c_contiguous and a.flags.writeable and not a.any() for a in arrays)
    ends = [*starts[1:], starts[0] - 4096 + os.fstat(memory).st_size]
    assert all(start + a.nbytes + 16 <= end for start, a, end in zip(starts, arrays, ends, strict=True))


def test_the_size_cannot_be_changed(memory: int) -> None:
    """A page that went away would kill the reader with SIGBUS: the kernel refuses, for good."""
    for size in (0, os.fstat(memory).st_size + 4096):
        with pytest.raises(PermissionError):
            os.ftruncate(memory, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


def test_a_refusal_is_read_once(memory: int) -> None:
    """Text of any language, told to the other side; then it is gone."""
    mine, theirs = Block(memory, MANIFEST), Block(memory, MANIFEST)
    assert theirs.refusal() is None
    mine.refuse("Gerät verloren")
    assert theirs.refusal() == "Gerät verloren"
    assert theirs.refusal() is None


def test_of_a_long_refusal_the_end_is_kept(memory: int) -> None:
    """Runtimes add to their text with every error, and the newest stands last; the arrays behind are not touched."""
    block = Block(memory, MANIFEST)
    block.refuse("ä" * 5000 + "the newest")
    refusal = block.refusal()
    assert refusal is not None
    assert refusal.endswith("ä" * 100 + "the newest")
    assert len(refusal.encode()) <= 4096
    assert not block.wire.inputs[0].any()


@pytest.mark.parametrize("length", [-1, 1 << 62, 0])
def test_a_length_that_is_rubbish_does_no_harm(memory: int, length: int) -> None:
    """A process that writes where it likes can make the text wrong, and nothing else."""
    block = Block(memory, MANIFEST)
    os.pwrite(memory, struct.pack("qq", 77, length) + b"\xff\xfe", 0)
    refusal = block.refusal()
    assert refusal is not None
    assert len(refusal) <= 4096


def test_the_memory_goes_with_the_last_array() -> None:
    """Nothing has to be closed: a view that somebody still holds stays valid until it is dropped."""

    def maps() -> int:
        return Path("/proc/self/maps").read_text().count("edged-tensors")

    before = maps()
    fd = isolated_block.new(MANIFEST)
    view = Block(fd, MANIFEST).wire.outputs[0]
    os.close(fd)
    view[...] = 3
    assert maps() == before + 1
    assert view.sum() == 3 * 1024
    del view
    assert maps() == before


def test_without_memfd_a_file_without_a_name_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Older C libraries: the same block, in a file that is unlinked at once."""
    monkeypatch.delattr(os, "memfd_create")
    fd = isolated_block.new(MANIFEST)
    try:
        assert os.fstat(fd).st_nlink == 0
        mine, theirs = Block(fd, MANIFEST).wire, Block(fd, MANIFEST).wire
        mine.inputs[0][...] = 5
        assert theirs.inputs[0].min() == 5
    finally:
        os.close(fd)

"""The memory that an isolated engine and its child share: a header page, then the client's arrays, a page or more each.

The parent fixes its size and seals it, so that nothing the child does makes a page go away under the parent. Both sides
work out the same places from the manifest. Nothing in it is trusted: a number says that the runtime refused, and a text
says why, whatever bytes they are.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import mmap
import os
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from edged.bundle import Manifest, TensorSpec
from edged.engines.base import Array
from edged.engines.wire import Wire

_PAGE = 4096  # of any size that is a multiple of what tensors are aligned to
_SLACK = 64  # behind each array, for kernels that read on: see `Wire`
_STATUS, _LENGTH, _TEXT = 0, 1, 16  # two numbers of 64 bits, then the text
_MAX_TEXT = _PAGE - _TEXT
FIXED = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
READ_ONLY = FIXED | fcntl.F_SEAL_WRITE
# From Python 3.10 on, on Linux: pages are there at once, and not at the first inference.
_POPULATE = getattr(mmap, "MAP_POPULATE", 0)


class Block:
    """The mapping of one side. Its arrays hold the memory: it goes with the last of them."""

    def __init__(self, fd: int, manifest: Manifest) -> None:
        at, self._map = _PAGE, mmap.mmap(fd, size(manifest), flags=mmap.MAP_SHARED | _POPULATE)
        arrays = []
        for spec in (*manifest.inputs, *manifest.outputs):
            arrays.append(self._array(spec, at))
            at += _room(spec)
        count = len(manifest.inputs)
        self.wire = Wire(arrays[:count], arrays[count:])
        self._numbers = memoryview(self._map)[:_TEXT].cast("q")

    def _array(self, spec: TensorSpec, at: int) -> Array:
        flat: Array = np.frombuffer(self._map, spec.wire_dtype, spec.elements, at)
        return flat.reshape(spec.shape)

    def refuse(self, text: str) -> None:
        """Say that the runtime refused, and why: the end of the text, when it is long, for that is the newest."""
        data = text.encode(errors="replace")[-_MAX_TEXT:]
        self._map[_TEXT : _TEXT + len(data)] = data
        self._numbers[_LENGTH] = len(data)
        self._numbers[_STATUS] = 1

    def refusal(self) -> str | None:
        """Return why the runtime refused, once; None when it did not."""
        if not self._numbers[_STATUS]:
            return None
        self._numbers[_STATUS] = 0
        length = min(max(0, self._numbers[_LENGTH]), _MAX_TEXT)
        return self._map[_TEXT : _TEXT + length].decode(errors="replace")


def size(manifest: Manifest) -> int:
    """Return the size of the block, in bytes."""
    return _PAGE + sum(_room(spec) for spec in (*manifest.inputs, *manifest.outputs))


def _room(spec: TensorSpec) -> int:
    return math.ceil((spec.wire_bytes + _SLACK) / _PAGE) * _PAGE


def new(manifest: Manifest) -> int:
    """Make the memory of a block, all zeros; returns its descriptor. Raises OSError when there is not so much."""
    fd = file("edged-tensors")
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, fd)
        os.posix_fallocate(fd, 0, size(manifest))  # too little memory is an error here, later on it is SIGBUS
        seal(fd, FIXED)
        undo.pop_all()
    return fd


def file(name: str, parts: Sequence[Any] = ()) -> int:
    """Return the descriptor of a file in memory that has no path, with these bytes in it, at its start."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    else:  # a C library older than the call
        fd, path = tempfile.mkstemp(name, dir="/dev/shm" if os.path.isdir("/dev/shm") else None)  # noqa: PTH112, S108  # descriptors are the matter here; mkstemp makes it safe
        os.unlink(path)  # noqa: PTH108  # as above
    with open(fd, "wb", closefd=False) as stream:
        stream.writelines(parts)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def seal(fd: int, seals: int) -> None:
    """Forbid for ever what `seals` says (see F_ADD_SEALS in fcntl(2)), where the file is one that can be sealed."""
    if hasattr(os, "memfd_create"):
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals | fcntl.F_SEAL_SEAL)

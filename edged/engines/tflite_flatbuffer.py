"""Flatbuffer tables of a file that nobody vouches for: every read is checked, and the work is bounded.

A flatbuffer is a graph of offsets. A file made to do harm lets many offsets share one target, so that following them
takes longer than any honest file of its size: each vector and table that is read is paid for from a budget.
"""

from __future__ import annotations

import struct
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T", int, float)

_U16, _U32, _I32 = struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<i")
# An honest file pays less than its own length and a table's price per table; the ceiling bounds memory.
_BUDGET_PER_BYTE, _BUDGET_FLOOR, _BUDGET_CEILING = 4, 1 << 12, 1 << 26
# About what the Python object of a table costs, in bytes of the budget.
_TABLE_PRICE = 32


class TooLargeError(ValueError):
    """A file that may be in order, and is more than is read here."""


class Flatbuffer:
    """The bytes of a file and what reading them may still cost. Every method raises ValueError at what is damaged."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        own = _BUDGET_PER_BYTE * len(content) + _BUDGET_FLOOR
        self._budget, self._large = min(own, _BUDGET_CEILING), own > _BUDGET_CEILING

    def root(self) -> Table:
        """Return the root table."""
        return Table(self, self.target(0))

    def take(self, at: int, size: int) -> bytes:
        """Return `size` bytes, each of which is in the file."""
        self.within(at, size)
        return self.content[at : at + size]

    def within(self, at: int, size: int) -> None:
        """Refuse a range that is not wholly in the file."""
        if at < 0 or size < 0 or at + size > len(self.content):
            raise ValueError(f"is cut short or damaged: byte {at + size} of {len(self.content)} is asked for")

    def pay(self, price: int) -> None:
        """Take from the budget. Raises TooLargeError where a file of that size could honestly need more."""
        self._budget -= price
        if self._budget < 0 and self._large:
            raise TooLargeError("is too large to be read here: its tensors, ops and names are too many")
        if self._budget < 0:
            raise ValueError("is damaged: its parts refer to each other more often than a file of its size can")

    def number(self, form: struct.Struct, at: int) -> Any:
        """Return one number; `form` holds exactly one."""
        self.within(at, form.size)
        return form.unpack_from(self.content, at)[0]

    def target(self, at: int) -> int:
        """Follow the offset that stands at `at`."""
        step: int = self.number(_U32, at)
        if step == 0:
            raise ValueError(f"is damaged: the offset at byte {at} leads nowhere")
        return at + step

    def vector(self, at: int, size: int) -> tuple[int, int]:
        """Return where the elements of the vector at `at` begin, and how many of `size` bytes there are."""
        count: int = self.number(_U32, at)
        self.within(at + 4, count * size)
        return at + 4, count


class Table:
    """One table: its fields by slot, in the order in which the schema declares them."""

    def __init__(self, file: Flatbuffer, at: int) -> None:
        file.pay(_TABLE_PRICE)
        self._file, self._at = file, at
        vtable = at - file.number(_I32, at)
        size, self._size = file.number(_U16, vtable), file.number(_U16, vtable + 2)
        file.within(vtable, size)
        file.within(at, self._size)
        self._slots = struct.unpack_from(f"<{max(size - 4, 0) // 2}H", file.content, vtable + 4)

    def _field(self, slot: int, size: int) -> int | None:
        """Where a field of `size` bytes stands in the file; None where the table leaves it out."""
        offset = self._slots[slot] if slot < len(self._slots) else 0
        if offset == 0:
            return None
        if offset + size > self._size:
            raise ValueError(f"is damaged: field {slot} of the table at byte {self._at} lies outside it")
        return self._at + offset

    def has(self, slot: int) -> bool:
        """Whether the field is there."""
        return self._field(slot, 1) is not None

    def number(self, slot: int, form: str, default: T) -> T:
        """Return a scalar; `form` is a letter of the struct module."""
        form_ = struct.Struct("<" + form)
        at = self._field(slot, form_.size)
        value: T = default if at is None else self._file.number(form_, at)
        return value

    def numbers(self, slot: int, dtype: str) -> list[Any]:
        """Return a vector of numbers of a NumPy dtype such as `<i4`; empty where it is missing."""
        at, count = self._vector(slot, np.dtype(dtype).itemsize)
        return np.frombuffer(self._file.content, dtype, count, at).tolist() if count else []

    def data(self, slot: int) -> tuple[int, int]:
        """Return where a vector of bytes begins and its length; (0, 0) where it is missing. It is not paid for."""
        at = self._field(slot, 4)
        return (0, 0) if at is None else self._file.vector(self._file.target(at), 1)

    def text(self, slot: int) -> str:
        """Return a string, empty where it is missing."""
        at, count = self._vector(slot, 1)
        try:
            return self._file.content[at : at + count].decode()
        except UnicodeDecodeError as exc:
            raise ValueError(f"is damaged: the name at byte {at} is no UTF-8") from exc

    def table(self, slot: int) -> Table | None:
        """Return a table, None where it is missing."""
        at = self._field(slot, 4)
        return None if at is None else Table(self._file, self._file.target(at))

    def tables(self, slot: int) -> list[Table]:
        """Return a vector of tables, empty where it is missing."""
        at, count = self._vector(slot, 4)
        return [Table(self._file, self._file.target(place)) for place in range(at, at + 4 * count, 4)]

    def _vector(self, slot: int, size: int) -> tuple[int, int]:
        field = self._field(slot, 4)
        if field is None:
            return 0, 0
        at, count = self._file.vector(self._file.target(field), size)
        self._file.pay(count * size)
        return at, count

"""A journal of answers with its counters and files, for tests of the outbox."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from edged.outbox.journal import Journal
from edged.transports.base import Message
from edged.transports.counters import Counters

MAX_BYTES = 64 << 10  # sixteen files of 4 KiB


class Book:
    """A journal with its counters, and the names of its files."""

    def __init__(self, directory: Path, max_bytes: int = MAX_BYTES, max_age_s: float = 3600) -> None:
        self.directory, self.counters = directory, Counters()
        self.journal = Journal(directory, max_bytes, max_age_s, self.counters)
        self.journal.open()

    def add(self, *payloads: bytes) -> None:
        for payload in payloads:
            self.journal.append(Message("t", payload, 1))

    def rest(self) -> list[bytes]:
        found = []
        while (taken := self.journal.take()) is not None:
            found.append(bytes(taken.message.payload))
        return found

    def counted(self, name: str) -> int:
        return self.counters.snapshot().get(name, 0)

    def files(self) -> list[Path]:
        return sorted(self.directory.glob("*.log"))


@contextlib.contextmanager
def book(directory: Path, **bounds: int) -> Iterator[Book]:
    made = Book(directory, **bounds)
    try:
        yield made
    finally:
        made.journal.close()


def numbered(*numbers: int, size: int = 500) -> list[bytes]:
    return [b"%06d" % number + b"." * (size - 6) for number in numbers]

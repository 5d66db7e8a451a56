"""From a source to a file that is whole and is what was asked for. Runs in the child; see `edged.fetch`."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from edged.fetch import Order
from edged.shown import size
from edged.wholefile import remove

CHUNK = 1 << 18
# Left free on the disk, for the rest of the box.
RESERVE = 16 << 20
MANIFEST = "bundle.json"
MAX_MANIFEST, MAX_FILES = 1 << 20, 1000
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


class FetchError(Exception):
    """It was not had this time. again: whether another try may do better."""

    def __init__(self, what: str, *, again: bool = False) -> None:
        super().__init__(what)
        self.again = again


def fetch(order: Order) -> str:
    """Fetch it; returns the name of what lies in `order.into` now. Raises FetchError."""
    try:
        order.into.mkdir(parents=True, exist_ok=True)
        if "://" not in order.source and Path(order.source).is_dir():
            return _directory(order)
        return _file(order)
    except OSError as exc:
        raise _unwritable(order, exc) from exc


class Sink:
    """The part that is written, with its hash; goes on with what is there."""

    def __init__(self, order: Order) -> None:
        self._order, self._sha256 = order, hashlib.sha256()
        self._file = order.part.open("ab+")
        self._file.seek(0)
        while piece := self._file.read(CHUNK):
            self._sha256.update(piece)
        self.bytes = self.resumed = self._file.tell()

    def restart(self) -> None:
        """Begin from nothing."""
        self._file.truncate(0)
        self._sha256, self.bytes, self.resumed = hashlib.sha256(), 0, 0

    def expect(self, total: int | None) -> None:
        """Refuse what will not fit. total: bytes of the whole, None where nobody tells."""
        _fits(self._order, total or 0, self.bytes)

    def write(self, piece: bytes) -> None:
        """Take the next bytes. Raises FetchError beyond the most that a bundle may have."""
        self.bytes += len(piece)
        _fits(self._order, self.bytes, self.bytes)
        self._sha256.update(piece)
        try:
            self._file.write(piece)
            self._file.flush()
        except OSError as exc:  # told apart from what a connection raises
            raise _unwritable(self._order, exc) from exc

    def finish(self, about: str) -> str:
        """Give it its name, durably. Raises FetchError when it is something else; about: what was told of it."""
        self._file.flush()
        found = self._sha256.hexdigest()
        if found != self._order.sha256:
            remove(self._order.part)
            what = f"its sha256 is {found}, not {self._order.sha256} ({size(self.bytes)}{about})"
            raise FetchError(what, again=self.resumed > 0)
        os.fsync(self._file.fileno())
        name = f"{self._order.sha256}.tar"
        _name(self._order, name)
        return name

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _file(order: Order) -> str:
    sink = Sink(order)
    try:
        if "://" in order.source:
            from edged.fetch.http import download  # noqa: PLC0415  # not for a path

            about = download(order, sink)
        else:
            about = ""
            sink.restart()
            with _regular(Path(order.source)) as file:
                sink.expect(os.fstat(file.fileno()).st_size)
                for piece in _pieces(file):
                    sink.write(piece)
        return sink.finish(about)
    finally:
        sink.close()


def _directory(order: Order) -> str:
    """Copy a bundle that is a directory: its `bundle.json`, and the files that this one names."""
    source, part = Path(order.source), order.part
    remove(part)
    with _regular(source / MANIFEST) as file:
        manifest = file.read(MAX_MANIFEST + 1)
    found = hashlib.sha256(manifest).hexdigest()
    if found != order.sha256:
        raise FetchError(f"the sha256 of its {MANIFEST} is {found}, not {order.sha256}")
    part.mkdir()
    (part / MANIFEST).write_bytes(manifest)
    taken = len(manifest)
    for name in _named(manifest):
        with _regular(source / name) as file, (part / name).open("wb") as target:
            taken += os.fstat(file.fileno()).st_size
            _fits(order, taken, taken - os.fstat(file.fileno()).st_size)
            shutil.copyfileobj(file, target, CHUNK)
            target.flush()
            os.fsync(target.fileno())
    _name(order, order.sha256)
    return order.sha256


def _named(manifest: bytes) -> list[str]:
    try:
        names = list(json.loads(manifest)["files"])
    except (ValueError, LookupError, TypeError, RecursionError) as exc:
        raise FetchError(f"its {MANIFEST} cannot be read") from exc
    for name in names:
        if not _PLAIN.fullmatch(name) or name == MANIFEST:
            raise FetchError(f"its {MANIFEST} names the file {name[:60]!r}")
    if len(names) > MAX_FILES:
        raise FetchError(f"its {MANIFEST} names {len(names)} files")
    return names


def _fits(order: Order, total: int, there: int) -> None:
    if total > order.most_bytes:
        raise _too_large(order, total)
    free = shutil.disk_usage(order.into).free
    if total - there > free - RESERVE:
        remove(order.part)
        raise FetchError(f"no room on the disk: {size(total)} are wanted, {size(free)} free ({order.into})")


def _unwritable(order: Order, exc: OSError) -> FetchError:
    # Of a disk that is full nothing may be left that keeps it full.
    remove(order.part)
    return FetchError(f"{exc.strerror or exc}" + (f" ({exc.filename})" if exc.filename else ""))


def _too_large(order: Order, total: int) -> FetchError:
    remove(order.part)
    return FetchError(f"too large: {size(total)}, at most {size(order.most_bytes)} (updates.max_bytes)")


def _name(order: Order, name: str) -> None:
    target = order.into / name
    remove(target)
    order.part.rename(target)
    folder = os.open(order.into, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _regular(path: Path) -> IO[bytes]:
    # A named pipe would be waited for without end.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FetchError(f"{path.name} is neither a file nor a directory")
    return os.fdopen(handle, "rb")


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(CHUNK):
        yield piece

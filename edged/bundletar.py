"""A bundle in one `.tar` file: plain ones only, and of a hostile one no more is held than a bundle has.

Imported only where there is one: most bundles are directories, and the library costs a daemon half a megabyte.
"""

from __future__ import annotations

import io
import itertools
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

# A header with a long name, and members, of which a bundle has a dozen.
_MAX_HEADER, _MAX_MEMBERS = 1 << 20, 1000


def dump(files: Mapping[str, bytes]) -> bytes:
    """Return the archive of these files; the same files give the same bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


@contextmanager
def opened(path: Path) -> Iterator[TarSource]:
    """Hold an archive open for reading.

    What is damaged raises ValueError, here and where the source is read, or something else that `tarfile` lets out:
    OSError, OverflowError, MemoryError, IndexError, RecursionError, struct.error.
    """
    try:
        with path.open("rb") as file:
            headers = _Headers(file)
            # Its type wants all that an io object can do; tarfile itself wants no more than `_Headers` has.
            with tarfile.open(fileobj=headers, mode="r:") as tar:  # type: ignore[call-overload]
                yield TarSource(tar, headers)
    except tarfile.TarError as exc:
        raise ValueError(str(exc) or type(exc).__name__) from exc


class _Headers:
    """The file under a .tar: while its headers are read, none of them makes us read, and hold, what it likes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.seek, self.tell = file, file.seek, file.tell
        self.open = True

    def read(self, size: int) -> bytes:
        if self.open and size > _MAX_HEADER:
            raise tarfile.ReadError(f"a header of {size} bytes")
        return self._file.read(size)


class TarSource:
    """Plain files only: links are not followed, and sparse ones would claim sizes that are not there."""

    def __init__(self, tar: tarfile.TarFile, headers: _Headers) -> None:
        self._tar = tar
        members = list(itertools.islice(tar, _MAX_MEMBERS + 1))
        if len(members) > _MAX_MEMBERS:
            raise tarfile.ReadError(f"it holds more than {_MAX_MEMBERS} files")
        self._members = {PurePosixPath(m.name).name: m for m in members if m.isreg() and not m.issparse()}
        headers.open = False

    def size(self, name: str) -> int | None:
        """Return the bytes of a file, None where there is none of this name."""
        member = self._members.get(name)
        return None if member is None else member.size

    def special(self, name: str) -> str:  # noqa: ARG002  # as a directory tells it
        """Return "": links and devices count as missing here."""
        return ""

    def names(self) -> set[str]:
        """Return the names of all files."""
        return set(self._members)

    def read(self, name: str) -> bytes:
        """Return a file's bytes."""
        content = self._tar.extractfile(self._members[name])
        return b"" if content is None else content.read()

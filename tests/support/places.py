"""Directories for tests that need a special one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def short_directory() -> Iterator[Path]:
    """A directory with a short path, for Unix sockets: theirs may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="edged", dir="/tmp") as directory:
        yield Path(directory)

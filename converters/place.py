"""A bundle put where the person wants it: nothing half written, nothing overwritten that is no bundle."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from edged import bundle
from edged.bundle import Manifest
from edged.errors import BadDataError, UsageError


def check_output(path: Path, *, force: bool) -> None:
    """Raise UsageError unless a bundle can be put at the absolute `path`, in directories yet to be made if need be.

    force: one that is there may be replaced, and only a bundle.
    """
    there = next(parent for parent in path.parents if os.path.lexists(parent))
    if not there.is_dir():
        raise UsageError("-o", f"{there} is no directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError("-o", f"{there} cannot be written to")
    if not os.path.lexists(path):
        return
    if not force:
        raise UsageError("-o", f"{path} exists", "--force replaces it")
    try:
        bundle.read(path)
    except BadDataError as exc:
        raise UsageError("-o", f"{path} exists and is no bundle, so --force leaves it alone", exc.what) from exc


def write(path: Path, made: Manifest, files: Mapping[str, bytes]) -> None:
    """Put the bundle at `path`: written beside it, then renamed; the old one, if any, is put back if that fails.

    Missing directories above it are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.stem}.") as beside:
        fresh, old = Path(beside) / path.name, Path(beside) / "old"
        bundle.write(fresh, made, files)
        if not path.is_dir():
            fresh.replace(path)
            return
        # A directory with something in it cannot be renamed over: for a moment there is neither.
        path.rename(old)
        try:
            fresh.rename(path)
        except OSError:
            old.rename(path)
            raise

"""What was measured on this machine, and which delegates were found on it: one file in the state directory."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from delegates.select import Measured
from edged import schema
from edged.selection.key import Key, digest

log = logging.getLogger(__name__)

FILE = "selections.json"
FORMAT = 1
# A box has a few models with a few candidates each; what is older is of bundles that are gone.
MAX_ROWS = 1000

_IDENTITY = ("model", "cpu_model", "runtime", "delegate", "options", "threads", "cpus", "realtime")


@dataclass(frozen=True)
class Kept:
    """One measurement, and what it depends on."""

    key: Mapping[str, str]
    row: Measured


@dataclass(frozen=True)
class Content:
    """The file. rows: by the digest of their key. libraries: delegate and options → the library that its probe found.

    found: of `delegates: auto`, which were available when the machine looked like `looks`.
    """

    format: int = FORMAT
    rows: Mapping[str, Kept] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)
    looks: str = ""
    found: tuple[str, ...] = ()


class Store:
    """Reads the file once, and again when asked; writes it whole, so that a reader never sees half of it. Any thread.

    A file that cannot be read is told in the log and started afresh; one that cannot be written is no obstacle: the
    next start measures again.
    """

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / FILE
        self._lock = threading.Lock()
        self._content = _read(self.path)

    def refresh(self) -> None:
        """Read again what another process may have written."""
        with self._lock:
            if self.path.exists():
                self._content = _read(self.path)

    def row(self, key: Key) -> Measured | None:
        """Return what is known under this key."""
        kept = self._content.rows.get(digest(key))
        return None if kept is None else replace(kept.row, kept=True)

    def keys(self) -> list[Key]:
        """Return the keys of all that is known."""
        return [kept.key for kept in self._content.rows.values()]

    def keep(self, key: Key, row: Measured) -> None:
        """Keep a row, in place of an earlier one of the same candidate."""
        with self._lock:
            same = {name: key.get(name) for name in _IDENTITY}
            others = {
                name: kept
                for name, kept in self._content.rows.items()
                if {name: kept.key.get(name) for name in _IDENTITY} != same
            }
            rows = dict([*others.items(), (digest(key), Kept(dict(key), row))][-MAX_ROWS:])
            self._change(rows=rows)

    def library(self, delegate: str) -> str | None:
        """Return the library that the probe of this delegate (name and options) found; None where it never did."""
        return self._content.libraries.get(delegate)

    def keep_library(self, delegate: str, path: str) -> None:
        """Keep it; "" for a delegate without one."""
        with self._lock:
            self._change(libraries={**self._content.libraries, delegate: path})

    def found(self, looks: str) -> tuple[str, ...] | None:
        """Return the delegates that were available when the machine looked like this; None where it never did."""
        return self._content.found if self._content.looks == looks else None

    def keep_found(self, looks: str, found: tuple[str, ...]) -> None:
        """Keep them."""
        with self._lock:
            self._change(looks=looks, found=found)

    def _change(self, **changes: Any) -> None:
        self._content = replace(self._content, **changes)
        try:
            write(self.path, asdict(self._content))
        except OSError as exc:
            log.warning("%s cannot be written: %s; the next start measures again", self.path, exc)


def write(path: Path, value: object) -> None:
    """Write JSON, so that after a power cut there is the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        with part.open("w") as file:
            json.dump(value, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _read(path: Path) -> Content:
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        return Content()
    except (OSError, ValueError, RecursionError) as exc:
        log.warning("%s cannot be read: %s; starting afresh", path, exc)
        return Content()
    content, problems = schema.build(Content, value)
    if content is None or content.format != FORMAT:
        what = f"{problems[0].path}: {problems[0].message}" if problems else "its format is not known"
        log.warning("%s cannot be used: %s; starting afresh", path, what)
        return Content()
    return content

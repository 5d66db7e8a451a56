"""What was measured on this machine, and which delegates were found on it: one file in the state directory."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from delegates.select import Measured
from edged import schema, wholefile
from edged.selection.key import IDENTITY, Installed, Key, digest

log = logging.getLogger(__name__)

FILE = "selections.json"
FORMAT = 2
# A box has a few models with a few candidates each; what is older is of bundles that are gone.
MAX_ROWS = 1000
# Those rows and their keys are about 3 KiB each.
MAX_BYTES = 1 << 24
# Of a row, in its units.
_FIGURES = (
    "p50_us", "p99_us", "samples", "checked", "open_ms", "first_ms", "rss_bytes", "nodes_taken", "nodes_total",
)  # fmt: skip
_MOST = 2**53


@dataclass(frozen=True)
class Kept:
    """One measurement, and what it depends on."""

    key: Mapping[str, str]
    row: Measured

    def problems(self) -> Iterable[schema.Problem]:
        """Tell what no measurement finds: somebody edited the file."""
        figures = asdict(self.row)
        for name in _FIGURES:
            if figures[name] is not None and not 0 <= figures[name] <= _MOST:
                yield schema.Problem(f"row.{name}", f"must be from 0 to {_MOST}")
        if (self.row.worst or 0) < 0:
            yield schema.Problem("row.worst", "must be 0 or more")
        taken, total = self.row.nodes_taken, self.row.nodes_total
        if (taken is None) != (total is None) or (taken or 0) > (total or 0):
            yield schema.Problem("row.nodes_taken", "must be of nodes_total")


@dataclass(frozen=True)
class Content:
    """The file. rows: by the digest of their key. installed: delegate and options → what its probe told.

    found: of `delegates: auto`, which were available when the machine looked like `looks`.
    """

    format: int = FORMAT
    rows: Mapping[str, Kept] = field(default_factory=dict)
    installed: Mapping[str, Installed] = field(default_factory=dict)
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
            known = self._content.rows.items()
            others = {name: kept for name, kept in known if _identity(kept.key) != _identity(key)}
            rows = dict([*others.items(), (digest(key), Kept(dict(key), row))][-MAX_ROWS:])
            self._change(rows=rows)

    def forget(self, key: Key) -> None:
        """Drop what is known of the same candidate, if anything is."""
        with self._lock:
            known = self._content.rows
            rows = {name: kept for name, kept in known.items() if _identity(kept.key) != _identity(key)}
            if len(rows) < len(known):
                self._change(rows=rows)

    def installed(self, delegate: str) -> Installed | None:
        """Return what the probe of this delegate (name and options) told last; None where it never found it."""
        return self._content.installed.get(delegate)

    def keep_installed(self, delegate: str, told: Installed) -> None:
        """Keep it, unless it is known."""
        with self._lock:
            if self._content.installed.get(delegate) != told:
                self._change(installed={**self._content.installed, delegate: told})

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
            wholefile.write(self.path, json.dumps(asdict(self._content), indent=1))
        except OSError as exc:
            log.warning("%s cannot be written: %s; the next start measures again", self.path, exc)


def _identity(key: Key) -> list[str | None]:
    return [key.get(name) for name in IDENTITY]


def _read(path: Path) -> Content:
    try:
        value = json.loads(wholefile.read(path, MAX_BYTES))
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

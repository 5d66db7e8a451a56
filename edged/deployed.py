"""Which bundles serve in place of the configured ones, over restarts: a file, and the bundles, in the state directory.

Rules it keeps:
- The file appears whole or not at all, and a bundle is named in it only once it serves.
- A configuration that changed afterwards (another path, or other content there) wins: it is the later word.
- Of each model the bundle that serves and the one before are kept; whatever else lies there is removed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from edged import bundle, wholefile
from edged.bundle import MANIFEST, Bundle
from edged.errors import BadDataError

log = logging.getLogger(__name__)

FILE, FOLDER = "deployed.json", "bundles"
MAX_FILE = 4 << 20
_NAME = re.compile(r"[0-9a-f]{64}(\.tar)?")


@dataclass(frozen=True)
class Kept:
    """A bundle in the folder. sha256: as it was asked for."""

    name: str
    sha256: str
    version: int


@dataclass(frozen=True)
class Entry:
    """What serves one model. rev: of the message that asked for it.

    configured: the path of the bundle in the configuration then, content: what lay there, see `content_of`.
    current: None once a change of the configuration overruled it; asked: the sha256 that was.
    """

    rev: int
    asked: str
    configured: str
    content: str
    current: Kept | None
    previous: Kept | None = None


class Deployed:
    """The memory of one state directory. Nothing here raises for what lies there: it is told and left out."""

    def __init__(self, state_dir: Path) -> None:
        self.folder, self._file = (state_dir / FOLDER).absolute(), state_dir / FILE
        self.entries: Mapping[str, Entry] = _read(self._file)
        # By model, why a kept bundle could not serve at this start.
        self.damaged: dict[str, str] = {}

    def bundles(self, configured: Mapping[str, Path]) -> dict[str, Bundle]:
        """Return the kept bundles that serve, verified, of the models with these configured paths.

        One that is damaged is told and forgotten: the configured one serves.
        """
        found = {}
        for model, path in configured.items():
            kept = self._serving(model, path)
            try:
                if kept is not None:
                    found[model] = bundle.read(kept)
            except BadDataError as exc:
                log.warning("model %s: %s; the configured bundle serves", model, exc)
                self.damaged[model] = str(exc)
                self._amend(model, replace(self.entries[model], asked="", current=None))
        return found

    def _serving(self, model: str, configured: Path) -> Path | None:
        entry = self.entries.get(model)
        if entry is None or entry.current is None:
            return None
        content = content_of(configured)
        # Where nothing can be read any more, nobody put anything else there.
        if str(configured) == entry.configured and content in (entry.content, ""):
            return self.folder / entry.current.name
        log.warning("model %s: the configuration changed; version %d no longer serves", model, entry.current.version)
        self._amend(model, replace(entry, current=None, previous=entry.current))
        return None

    def keep(self, model: str, entry: Entry) -> None:
        """Remember what serves. Raises OSError when it cannot be written; all is as before then."""
        entries = {**self.entries, model: entry}
        wholefile.write(self._file, json.dumps({name: asdict(one) for name, one in entries.items()}))
        self.entries = entries

    def prune(self, serving: Iterable[Path] = ()) -> None:
        """Remove bundles that no model needs any more, and what was left half fetched. serving: needed in any case."""
        kept = {one.name for entry in self.entries.values() for one in (entry.current, entry.previous) if one}
        kept |= {path.name for path in serving if path.parent == self.folder}
        try:
            lying = [path for path in self.folder.iterdir() if path.name not in kept]
        except OSError:
            return
        for path in lying:
            wholefile.remove(path)

    def _amend(self, model: str, entry: Entry) -> None:
        try:
            self.keep(model, entry)
        except OSError as exc:
            log.warning("%s cannot be written: %s", self._file, exc)
            self.entries = {**self.entries, model: entry}


def content_of(path: Path) -> str:
    """Return the sha256 of a .tar, or of a directory's `bundle.json`, which has those of the rest; "" for neither."""
    digest = hashlib.sha256()
    try:
        with (path / MANIFEST if path.is_dir() else path).open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    except OSError:
        return ""
    return digest.hexdigest()


def _read(file: Path) -> Mapping[str, Entry]:
    try:
        found = json.loads(wholefile.read(file, MAX_FILE))
        return {name: _entry(given) for name, given in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
        log.warning("%s cannot be read: %s; the configured bundles serve", file, exc)
        return {}


def _entry(given: Mapping[str, object]) -> Entry:
    current, previous = _kept(given["current"]), _kept(given["previous"])
    rev, texts = given["rev"], [given[key] for key in ("asked", "configured", "content")]
    if type(rev) is not int or not all(isinstance(text, str) for text in texts):
        raise ValueError("an entry is not of its form")
    asked, configured, content = map(str, texts)
    return Entry(rev, asked, configured, content, current, previous)


def _kept(given: object) -> Kept | None:
    if given is None:
        return None
    found = Kept(**given)  # type: ignore[arg-type]
    # Names of a file become paths: nothing beside what `fetch` makes.
    if not _NAME.fullmatch(found.name) or type(found.version) is not int or not isinstance(found.sha256, str):
        raise ValueError("an entry is not of its form")
    return found

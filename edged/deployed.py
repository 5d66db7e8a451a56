"""Which bundles serve in place of the configured ones, over restarts: a file and the bundles, in the state directory.

Rules it keeps:
- The file appears whole or not at all, and a bundle is named in it only once it serves.
- A configuration that changed afterwards (another path, or other content there) wins: it is the later word.
- Of each model the bundle that serves and the one before are kept; whatever else lies there is removed. But nothing
  that a file may speak of which cannot be read: that file is set aside, the last such one stays.
- One process at a time writes and removes; each device has a directory of its own.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from edged import bundle, wholefile
from edged.bundle import MANIFEST, Bundle
from edged.errors import BadDataError

log = logging.getLogger(__name__)

# Below the state directory, which the daemons of several devices may share.
HOME = "deployed"
FILE, FOLDER, LOCK = "deployed.json", "bundles", "lock"
MAX_FILE = 4 << 20
_NAME = re.compile(r"([0-9a-f]{64})(\.tar)?")
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


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
    """The memory of one device. Nothing here raises for what lies there: it is told and left out.

    One process keeps it: the first that has something to keep, until `close` or its end. Others read what is there at
    their start, and write and remove nothing. keeps: whether this process wants to be that one.
    """

    def __init__(self, state_dir: Path, device: str, *, keeps: bool = True) -> None:
        self._home = state_dir / HOME / _level(device)
        self.folder, self._file = (self._home / FOLDER).absolute(), self._home / FILE
        self._aside = self._file.with_name(f"{FILE}.bad")
        self._wants = keeps
        self._release: Callable[[], object] = _nothing
        self.entries: Mapping[str, Entry] = {}
        self._spared: set[str] = set()
        self._doubted = False
        # By model, why a kept bundle could not serve at this start.
        self.damaged: dict[str, str] = {}
        # Before it is read: whoever keeps it may write it at any time.
        if not (self.told and self.own() == ""):
            self._read()

    @property
    def told(self) -> bool:
        """Whether the device was ever told what to serve, here: then it reports at each start."""
        return self._wants and self._home.is_dir()

    def own(self) -> str:
        """Become the one that keeps it, where nobody else does; returns why not, "" when it is."""
        if not self._wants:
            return "this process keeps no bundles"
        if self._owned:
            return ""
        try:
            self._release = self._locked()
        except BlockingIOError:
            return f"another process keeps the bundles of this device ({self._home})"
        except OSError as exc:
            return f"{self._home} cannot be written: {exc.strerror or exc}"
        self._read()
        for left in self._home.glob(f"{FILE}.*.part"):
            wholefile.remove(left)
        return ""

    @property
    def _owned(self) -> bool:
        return self._wants and self._release is not _nothing

    def close(self) -> None:
        """Let another process keep it."""
        self._wants = False
        self._release()

    def _locked(self) -> Callable[[], object]:
        self._home.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._home / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        # Also where a daemon is given up half made.
        release = weakref.finalize(self, os.close, handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            release()
            raise
        return release

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
        if not self._owned:
            raise OSError(errno.EBUSY, self.own() or "it is not kept here", str(self._file))
        entries = {**self.entries, model: entry}
        with self._set_aside() if self._doubted else contextlib.nullcontext():
            wholefile.write(self._file, json.dumps({name: asdict(one) for name, one in entries.items()}))
        self.entries = entries

    @contextlib.contextmanager
    def _set_aside(self) -> Iterator[None]:
        """Let what could not be read lie beside what is written now; where it was, when that fails."""
        self._file.replace(self._aside)
        try:
            yield
        except OSError:
            self._aside.replace(self._file)
            raise
        self._doubted = False

    def prune(self, serving: Iterable[Path] = ()) -> None:
        """Remove bundles that no model needs any more, and what was left half fetched. serving: needed in any case."""
        if not self._owned:
            return
        kept = {one.name for entry in self.entries.values() for one in (entry.current, entry.previous) if one}
        kept |= {path.name for path in serving if path.parent == self.folder} | self._spared
        try:
            lying = [path for path in self.folder.iterdir() if path.name not in kept]
        except OSError:
            return
        for path in lying:
            wholefile.remove(path)

    def _read(self) -> None:
        """Read the file. What is wrong in it costs no more than the model it stands for, and no bundle."""
        found, wrong = _entries(self._file)
        for line in wrong:
            log.warning("%s; the configured bundle serves", line)
        self._doubted, self.entries = bool(wrong), found
        doubtful = (self._file, self._aside) if wrong else (self._aside,)
        self._spared = {name for file in doubtful for name in self._spoken_of(file)}

    def _spoken_of(self, file: Path) -> Iterable[str]:
        """Return the bundles in a file which is not right: all that lie there where nobody can tell."""
        try:
            texts = [json.dumps(one) for one in json.loads(wholefile.read(file, MAX_FILE)).values()]
            spoken = [[match[1] for match in _NAME.finditer(text)] for text in texts]
            if all(spoken):
                return {name for names in spoken for sha256 in names for name in (sha256, f"{sha256}.tar")}
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, AttributeError, RecursionError):
            pass
        log.warning("%s: it cannot be told which bundles it names: all that lie there now stay", file)
        with contextlib.suppress(OSError):
            return [path.name for path in self.folder.iterdir() if _NAME.fullmatch(path.name)]
        return ()

    def _amend(self, model: str, entry: Entry) -> None:
        try:
            self.keep(model, entry)
        except OSError as exc:
            log.warning("%s cannot be written: %s", self._file, exc)
            self.entries = {**self.entries, model: entry}


def _entries(file: Path) -> tuple[Mapping[str, Entry], list[str]]:
    """Return what is right in a file, and what is wrong with the rest."""
    entries, wrong = {}, []
    try:
        found = json.loads(wholefile.read(file, MAX_FILE)).items()
    except FileNotFoundError:
        return {}, []
    except (OSError, ValueError, AttributeError, RecursionError) as exc:
        return {}, [f"{file} cannot be read: {exc}"]
    for model, given in found:
        try:
            entries[model] = _entry(given)
        except (ValueError, TypeError, KeyError) as exc:
            wrong.append(f"{file}: model {model}: {type(exc).__name__}: {exc}")
    return entries, wrong


def content_of(path: Path) -> str:
    """Return the sha256 of a .tar, or of a directory's `bundle.json`, which has those of the rest; "" for neither."""
    digest = hashlib.sha256()
    try:
        with wholefile.opened(path / MANIFEST if path.is_dir() else path) as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    except OSError:
        return ""
    return digest.hexdigest()


def _level(device: str) -> str:
    """Return the name of the device's directory: its own, where that is plain."""
    return device if _PLAIN.fullmatch(device) else hashlib.sha256(device.encode()).hexdigest()


def _nothing() -> None:
    """Let go of a lock that is not held."""


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

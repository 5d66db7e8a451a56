"""Compiled forms of models that delegates keep on disk: one directory for each key, used only while it is as it was.

Delegates use what they find in their cache without a look at it: a flipped bit in XNNPACK's weights gives wrong numbers
and no error. So a directory is handed out either empty, or exactly as it was when the answers were last found right.
`prepared` gives it, `seal` writes down what is in it once the engine is open and agrees, `discard` throws it away.

    <state>/compiled/<sha256 of the key>/files/       what the delegate writes; it sees nothing else
                                        /sealed.json  the key, and size and sha256 of each file
                                        /lock         flock: exclusive until it is sealed, shared while it is used

A seal states that no byte changed, not that the bytes are right: whoever opens an engine compares its answers, always.
No fsync of the files is needed: what a power cut takes away does not match the seal.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import shutil
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from edged import wholefile
from edged.shown import plain

log = logging.getLogger(__name__)

FOLDER, FILES, SEAL, LOCK = "compiled", "files", "sealed.json", "lock"
FORMAT, MOST_BYTES = 1, 2 << 30
_MAX_SEAL, _PIECE = 4 << 20, 1 << 20
# Neither a link, which leads elsewhere, nor a named pipe, which waits for ever, may stand in for a file.
_PLAIN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_UNUSED, _SEALED = "", "sealed"
# By its path below `files`: [size, lower-case hex sha256]; None for what is no regular file or cannot be read.
Listing = dict[str, "list[Any] | None"]


class CompileCache:
    """The caches of one state directory. Threads may share it. No trouble with the disk is raised: it is logged.

    discarded: how many directories were thrown away because they were not as sealed, or gave wrong answers.
    """

    def __init__(self, state_dir: Path) -> None:
        self._root = state_dir / FOLDER
        self._guard = threading.Lock()
        self._held: dict[Path, int] = {}  # open descriptors of the locks
        self._filling: set[Path] = set()  # the engine is not open yet
        self.discarded = 0

    def prepared(self, key: Mapping[str, str]) -> Path | None:
        """Return the directory for a key, intact or empty. Others get it after `seal`, `discard` or `release`.

        key: everything that the compiled form depends on. None: no cache can be kept here (the disk is full or
        read-only), or someone else is filling it just now.
        """
        entry = self._entry(key)
        with self._disk(entry, "no compile cache"):
            return self._prepared(entry, key)
        return None

    def seal(self, path: Path, key: Mapping[str, str]) -> bool:
        """Write down what `path` (from `prepared`) holds: the engine is open and its answers agreed.

        Returns whether there is something that the next start can use.
        """
        with self._disk(path.parent, "the compile cache is not kept"):
            return self._sealed(path.parent, key)
        return False

    def discard(self, path: Path, why: str) -> bool:
        """Throw away what `path` (from `prepared`) holds: the engine crashed with it, or gave wrong answers.

        Returns False where it stays, because another process uses it or the disk refuses. It is let go in any case.
        """
        with self._disk(path.parent, "the compile cache cannot be removed"):
            if _listed(path):
                if not self._take(path.parent):
                    raise BlockingIOError(errno.EAGAIN, "another process uses it")
                self._throw_away(path.parent, why)
            self._let_go(path.parent)
            return True
        return False

    def release(self, path: Path) -> None:
        """Let others have it, and `prune` remove it: the engine that used `path` is closed, or did not open.

        What was not sealed is as good as gone: the next `prepared` throws it away.
        """
        with self._guard:
            self._let_go(path.parent)

    def prune(self, keep: Iterable[Mapping[str, str]], most_bytes: int = MOST_BYTES) -> int:
        """Remove the entries of other keys, then the longest unused ones while all are larger than `most_bytes`.

        One that some process uses stays. Returns how many were removed.
        """
        kept, count = {self._entry(key) for key in keep}, 0
        with self._disk(self._root, "compile caches cannot be removed"):
            entries = _entries(self._root)
            for entry in set(entries) - kept:
                count += self._removed(entry, "its key is of no model any more")
            for entry in _beyond([entry for entry in entries if _mode(entry)], most_bytes):
                count += self._removed(entry, f"all together may be {most_bytes} bytes")
        return count

    @contextmanager
    def _disk(self, entry: Path, failed: str) -> Iterator[None]:
        """One thread at a time; a disk that is full, read-only or broken is a line in the log."""
        with self._guard:
            try:
                yield
            except OSError as exc:
                self._let_go(entry)
                log.warning("%s: %s: %s", entry, failed, exc)

    # --- one entry: the directory of a key; `_guard` is held --------------------------------------------------------

    def _entry(self, key: Mapping[str, str]) -> Path:
        canonical = json.dumps(dict(key), sort_keys=True, separators=(",", ":"))
        return self._root / hashlib.sha256(canonical.encode()).hexdigest()

    def _prepared(self, entry: Path, key: Mapping[str, str]) -> Path | None:
        if entry in self._filling:
            log.warning("%s: no compile cache: another model is filling it", entry)
            return None
        _own_folder(entry)
        alone = self._take(entry)
        state = _UNUSED if alone is None else _state(entry, key)
        if not alone and state != _SEALED:
            raise BlockingIOError(errno.EAGAIN, "another process is filling it")
        if state not in {_UNUSED, _SEALED}:
            self._throw_away(entry, state)
        _own_folder(entry / FILES)
        self._filling.add(entry)
        return entry / FILES

    def _sealed(self, entry: Path, key: Mapping[str, str]) -> bool:
        if _state(entry, key) != _SEALED:
            (entry / SEAL).unlink(missing_ok=True)
            if not (files := _listed(entry / FILES)):
                self._let_go(entry)
                return False
            if odd := [name for name, facts in files.items() if facts is None]:
                raise OSError(errno.EINVAL, f"{plain(odd[0])} is no regular file")
            seal = {"format": FORMAT, "key": dict(key), "files": files}
            wholefile.write(entry / SEAL, json.dumps(seal, sort_keys=True))
        os.utime(entry / SEAL)  # when it was last used
        self._filling.discard(entry)
        if entry in self._held:
            fcntl.flock(self._held[entry], fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True

    def _throw_away(self, entry: Path, why: str) -> None:
        _gone(entry / SEAL)  # first: whatever stops us later, nothing vouches for the rest
        _gone(entry / FILES)
        self.discarded += 1
        log.warning("%s: the compile cache was thrown away: %s", entry, why)

    def _removed(self, entry: Path, why: str) -> bool:
        if entry in self._held:
            return False
        try:
            if not self._take(entry):
                return False
            _gone(entry / SEAL)
            _gone(entry)
        finally:
            self._let_go(entry)
        log.info("%s: the compile cache was removed: %s", entry, why)
        return True

    def _take(self, entry: Path) -> bool | None:
        """Lock it; True when no one else uses it, False when others do, None when one is filling it."""
        self._let_go(entry)
        number = os.open(entry / LOCK, os.O_RDWR | os.O_CREAT | _PLAIN, 0o600)
        self._held[entry] = number
        for alone, kind in ((True, fcntl.LOCK_EX), (False, fcntl.LOCK_SH)):
            with suppress(BlockingIOError):
                fcntl.flock(number, kind | fcntl.LOCK_NB)
                # It may have been removed between the open and the lock.
                return alone if os.path.samestat(os.fstat(number), (entry / LOCK).stat()) else None
        return None

    def _let_go(self, entry: Path) -> None:
        self._filling.discard(entry)
        if (number := self._held.pop(entry, None)) is not None:
            os.close(number)


def _state(entry: Path, key: Mapping[str, str]) -> str:
    """Compare an entry with its seal: `_SEALED`, `_UNUSED`, or in words what is wrong with it."""
    files, seal = _listed(entry / FILES), _seal(entry / SEAL)
    if seal is None:
        return "it was left unfinished" if files else _UNUSED
    if not isinstance(seal, dict) or seal.get("format") != FORMAT or not isinstance(seal.get("files"), dict):
        return "its seal cannot be read"
    if seal.get("key") != dict(key):
        return "its seal is of another key"
    return next(_differences(seal["files"], files), _SEALED)


def _differences(sealed: Mapping[str, Any], files: Listing) -> Iterator[str]:
    for name in sorted(sealed.keys() | files.keys()):
        if name not in files:
            yield f"{plain(name)} is missing"
        elif files[name] is None:
            yield f"{plain(name)} is no regular file"
        elif name not in sealed:
            yield f"{plain(name)} was added"
        elif sealed[name] != files[name]:
            yield f"{plain(name)} was changed"


def _seal(path: Path) -> object:
    """Read a seal; None where there is none, "" for one that cannot be read."""
    try:
        with _opened(path) as file:
            return json.loads(file.read(_MAX_SEAL)) or ""
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        return ""


def _listed(folder: Path) -> Listing:
    """List all that lies below a directory but directories; {"": None} where it is itself something else."""
    if not stat.S_ISDIR(_mode(folder)):
        return {"": None} if _mode(folder) else {}
    paths = (Path(base, name) for base, folders, names in os.walk(folder) for name in (*folders, *names))
    return {str(path.relative_to(folder)): _facts(path) for path in paths if not stat.S_ISDIR(_mode(path))}


def _mode(path: Path) -> int:
    """Return its kind, links not followed; 0 where nothing is."""
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return 0


def _facts(path: Path) -> list[Any] | None:
    if not stat.S_ISREG(_mode(path)):
        return None
    digest, size = hashlib.sha256(), 0
    try:
        with _opened(path) as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
                size += len(piece)
    except OSError:  # a bad sector is damage like any other
        return None
    return [size, digest.hexdigest()]


def _opened(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_RDONLY | _PLAIN), "rb")


def _own_folder(path: Path) -> None:
    """Make a directory that no one else can read or write; what has its name and is none gives way."""
    if _mode(path) and not stat.S_ISDIR(_mode(path)):
        path.unlink()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)


def _gone(path: Path) -> None:
    if stat.S_ISDIR(_mode(path)):
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _entries(root: Path) -> list[Path]:
    """Return the directories of all keys: what else lies beside them is not ours."""
    return [path for path in root.glob("?" * 2 * hashlib.sha256().digest_size) if path.is_dir()]


def _beyond(entries: Iterable[Path], most_bytes: int) -> list[Path]:
    """Return those that have to go, so that the most recently used ones together fit into `most_bytes`."""
    out, total = [], 0
    for entry in sorted(entries, key=_used, reverse=True):
        total += sum(path.lstat().st_size for path in entry.rglob("*"))
        if total > most_bytes:
            out.append(entry)
    return out


def _used(entry: Path) -> int:
    return (entry / SEAL).lstat().st_mtime_ns if _mode(entry / SEAL) else 0

"""A compile cache is handed out intact or empty, whatever happened to it; no trouble with the disk is raised."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edged.compilecache import CompileCache

KEY = {"model": "ab12", "runtime": "ai-edge-litert 2.3.0", "library": "/usr/lib/libx.so 4096 17"}
OTHER = {**KEY, "model": "cd34"}


def filled(state: Path, key: dict[str, str] = KEY) -> Path:
    """Return a cache that was filled and sealed, with a file below a directory too; nobody holds it."""
    cache = CompileCache(state)
    path = cache.prepared(key)
    assert path is not None
    (path / "deep").mkdir()
    (path / "weights.bin").write_bytes(bytes(range(200)))
    (path / "deep/kernel.spv").write_bytes(b"spirv")
    assert cache.seal(path, key)
    cache.release(path)
    return path


def contents(path: Path | None) -> dict[str, bytes]:
    """Return what lies in a directory, by name."""
    assert path is not None
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if not file.is_dir()}


WHOLE = {"weights.bin": bytes(range(200)), "deep/kernel.spv": b"spirv"}


def test_what_was_sealed_is_there_at_the_next_start(tmp_path: Path) -> None:
    """The same directory with the same bytes; another key has one of its own, and it is empty."""
    path, cache = filled(tmp_path), CompileCache(tmp_path)
    assert cache.prepared(KEY) == path
    assert contents(path) == WHOLE
    other = cache.prepared(OTHER)
    assert other != path
    assert contents(other) == {}
    assert cache.discarded == 0


def test_the_order_of_the_key_is_none_of_it(tmp_path: Path) -> None:
    """The same pairs are the same key."""
    filled(tmp_path)
    assert contents(CompileCache(tmp_path).prepared(dict(reversed(KEY.items())))) == WHOLE


def test_nobody_else_can_read_or_write_it(tmp_path: Path) -> None:
    """Mode 0700, also where a looser directory was there before."""
    path = filled(tmp_path)
    path.parent.chmod(0o777)
    assert CompileCache(tmp_path).prepared(KEY) == path
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (path, path.parent)} == {0o700}


def flipped(path: Path) -> None:
    data = bytearray((path / "weights.bin").read_bytes())
    data[77] ^= 1
    (path / "weights.bin").write_bytes(data)


def truncated(path: Path) -> None:
    os.truncate(path / "weights.bin", 199)


def longer(path: Path) -> None:
    os.truncate(path / "weights.bin", 201)


def missing(path: Path) -> None:
    (path / "deep/kernel.spv").unlink()


def added(path: Path) -> None:
    (path / "deep/more.bin").touch()


def a_link(path: Path) -> None:
    """The right bytes, but elsewhere, where they may change."""
    (path / "weights.bin").rename(path.parent / "elsewhere")
    (path / "weights.bin").symlink_to(path.parent / "elsewhere")


def a_linked_folder(path: Path) -> None:
    (path / "deep").rename(path.parent / "elsewhere")
    (path / "deep").symlink_to(path.parent / "elsewhere")


def all_linked(path: Path) -> None:
    path.rename(path.parent / "elsewhere")
    path.symlink_to(path.parent / "elsewhere")


def a_pipe(path: Path) -> None:
    """Reading it would wait for ever."""
    (path / "weights.bin").unlink()
    os.mkfifo(path / "weights.bin")


def seal(change: Callable[[str], str]) -> Callable[[Path], None]:
    """Change the text of the seal."""

    def changed(path: Path) -> None:
        file = path.parent / "sealed.json"
        file.write_text(change(file.read_text()))

    return changed


def no_seal(path: Path) -> None:
    (path.parent / "sealed.json").unlink()


def a_seal_pipe(path: Path) -> None:
    no_seal(path)
    os.mkfifo(path.parent / "sealed.json")


def a_linked_seal(path: Path) -> None:
    (path.parent / "sealed.json").rename(path.parent / "elsewhere")
    (path.parent / "sealed.json").symlink_to(path.parent / "elsewhere")


def a_nested_seal(text: str) -> str:
    return "[" * 100_000 + text


DAMAGE: list[tuple[Callable[[Path], None], str]] = [
    (flipped, "weights.bin was changed"),
    (truncated, "weights.bin was changed"),
    (longer, "weights.bin was changed"),
    (missing, "deep/kernel.spv is missing"),
    (added, "deep/more.bin was added"),
    (a_link, "weights.bin is no regular file"),
    (a_linked_folder, "deep is no regular file"),
    (all_linked, " is no regular file"),
    (a_pipe, "weights.bin is no regular file"),
    (no_seal, "it was left unfinished"),
    (a_seal_pipe, "its seal cannot be read"),
    (a_linked_seal, "its seal cannot be read"),
    (seal(lambda _: ""), "its seal cannot be read"),
    (seal(lambda text: text[:-40]), "its seal cannot be read"),
    (seal(lambda _: "[]"), "its seal cannot be read"),
    (seal(lambda _: "null"), "its seal cannot be read"),
    (seal(lambda _: '{"files": 3}'), "its seal cannot be read"),
    (seal(lambda text: text.replace('"format": 1', '"format": 2')), "its seal cannot be read"),
    (seal(a_nested_seal), "its seal cannot be read"),
    (seal(lambda text: text.replace("ab12", "cd34")), "its seal is of another key"),
]


@pytest.mark.parametrize(("damage", "told"), DAMAGE)
def test_what_is_not_as_sealed_is_thrown_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], None], told: str
) -> None:
    """Every kind of damage leads to an empty directory, a line that names it, and a count."""
    path, cache = filled(tmp_path), CompileCache(tmp_path)
    damage(path)
    assert cache.prepared(KEY) == path
    assert list(path.iterdir()) == []
    assert not path.is_symlink()
    assert told in caplog.text
    assert cache.discarded == 1


@pytest.mark.parametrize(("damage", "told"), DAMAGE)
def test_after_damage_it_can_be_filled_again(tmp_path: Path, damage: Callable[[Path], None], told: str) -> None:
    """Nothing is left that would spoil the next seal."""
    damage(filled(tmp_path))
    cache = CompileCache(tmp_path)
    path = cache.prepared(KEY)
    assert path is not None
    (path / "weights.bin").write_bytes(b"new")
    assert cache.seal(path, KEY)
    assert contents(CompileCache(tmp_path).prepared(KEY)) == {"weights.bin": b"new"}
    assert cache.discarded == 1


@pytest.mark.parametrize("name", ["entry", "file"])
def test_something_else_in_its_place(tmp_path: Path, name: str) -> None:
    """A link or a file where the key's directory should be gives way."""
    path = filled(tmp_path)
    path.parent.rename(tmp_path / "elsewhere")
    if name == "entry":
        path.parent.symlink_to(tmp_path / "elsewhere")
    else:
        path.parent.touch()
    assert contents(CompileCache(tmp_path).prepared(KEY)) == {}
    assert contents(tmp_path / "elsewhere/files") == WHOLE


def test_a_seal_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in the midst of writing it, the next start finds none, and throws the files away."""
    cache = CompileCache(tmp_path)
    path = cache.prepared(KEY)
    assert path is not None
    (path / "weights.bin").write_bytes(b"new")

    def killed(_: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", killed)
        with pytest.raises(KeyboardInterrupt):
            cache.seal(path, KEY)
    cache.release(path)
    later = CompileCache(tmp_path)
    assert contents(later.prepared(KEY)) == {}
    assert later.discarded == 1


def test_wrong_answers_throw_it_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Intact files whose answers were wrong: `discard` names the reason, and the next one begins empty."""
    filled(tmp_path)
    cache = CompileCache(tmp_path)
    path = cache.prepared(KEY)
    assert path is not None
    cache.discard(path, "its answers were wrong")
    assert "its answers were wrong" in caplog.text
    assert contents(cache.prepared(KEY)) == {}
    assert cache.discarded == 1


def test_nothing_written_is_nothing_to_discard(tmp_path: Path) -> None:
    """A delegate that keeps nothing is neither sealed nor counted as damaged."""
    cache = CompileCache(tmp_path)
    for _ in range(2):
        path = cache.prepared(KEY)
        assert path is not None
        assert not cache.seal(path, KEY)
    path = cache.prepared(KEY)
    assert path is not None
    cache.discard(path, "it did not open")
    assert cache.discarded == 0


def test_a_delegate_that_writes_after_the_seal(tmp_path: Path) -> None:
    """What came later was never judged: it is thrown away at the next start. Sealed again, it is kept."""
    path = filled(tmp_path)
    (path / "later.bin").touch()
    cache = CompileCache(tmp_path)
    assert contents(cache.prepared(KEY)) == {}
    (path / "one.bin").touch()
    assert cache.seal(path, KEY)
    (path / "two.bin").touch()
    assert cache.seal(path, KEY)
    assert set(contents(CompileCache(tmp_path).prepared(KEY))) == {"one.bin", "two.bin"}


def test_a_delegate_that_empties_its_cache(tmp_path: Path) -> None:
    """What it took away itself is no damage."""
    cache, path = CompileCache(tmp_path), filled(tmp_path)
    assert cache.prepared(KEY) == path
    shutil.rmtree(path)
    assert not cache.seal(path, KEY)
    assert contents(cache.prepared(KEY)) == {}
    assert cache.discarded == 0


def test_links_are_never_sealed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A delegate that leaves a link behind has no cache, and it is said."""
    cache = CompileCache(tmp_path)
    path = cache.prepared(KEY)
    assert path is not None
    (path / "link").symlink_to("/etc/hostname")
    assert not cache.seal(path, KEY)
    assert "link is no regular file" in caplog.text


# --- a disk that does not play along ---------------------------------------------------------------------------------


def full(*_: object, **__: object) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_at_the_start_is_no_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """None, and a line; once there is room it works."""
    cache = CompileCache(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", full)
        assert cache.prepared(KEY) is None
    assert "No space left on device" in caplog.text
    assert contents(cache.prepared(KEY)) == {}


def test_a_full_disk_at_the_seal_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is half written is not sealed, and no part of a seal is left."""
    cache = CompileCache(tmp_path)
    path = cache.prepared(KEY)
    assert path is not None
    (path / "weights.bin").touch()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert not cache.seal(path, KEY)
    assert "No space left on device" in caplog.text
    assert {entry.name for entry in path.parent.iterdir()} == {"files", "lock"}
    assert contents(CompileCache(tmp_path).prepared(KEY)) == {}


def test_a_state_directory_that_cannot_be_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file in its place: every call says so in the log, and none raises."""
    (tmp_path / "state").touch()
    cache = CompileCache(tmp_path / "state")
    assert cache.prepared(KEY) is None
    assert not cache.seal(tmp_path / "state/compiled/x/files", KEY)
    assert cache.prune([]) == 0
    cache.discard(tmp_path / "state/compiled/x/files", "it did not open")
    assert "Not a directory" in caplog.text


READ_ONLY = """
import logging, os, pathlib, sys
from edged.compilecache import CompileCache
logging.basicConfig()
os.setuid(65534)  # root may write anywhere
print(CompileCache(pathlib.Path(sys.argv[1])).prepared({"model": "ab12"}))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become nobody")
def test_a_directory_of_someone_else_is_no_cache(tmp_path: Path) -> None:
    """As a user who may read the state directory and not write there."""
    (tmp_path / "state").mkdir(mode=0o755)
    done = subprocess.run(
        [sys.executable, "-c", READ_ONLY, str(tmp_path / "state")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "None\n"
    assert "Permission denied" in done.stderr


# --- several at a time ------------------------------------------------------------------------------------------------


def test_two_models_do_not_fill_one_directory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The second has no cache, and leaves the first one's alone; once that is sealed it may use it."""
    cache = CompileCache(tmp_path)
    path = cache.prepared(KEY)
    assert path is not None
    (path / "weights.bin").write_bytes(b"half")
    assert cache.prepared(KEY) is None
    assert CompileCache(tmp_path).prepared(KEY) is None  # as another process: locks are of an open file
    assert "filling it" in caplog.text
    assert cache.seal(path, KEY)
    for user in (CompileCache(tmp_path), cache):
        assert contents(user.prepared(KEY)) == {"weights.bin": b"half"}


def test_what_another_process_uses_is_not_thrown_away(tmp_path: Path) -> None:
    """It is damaged, but its files are open there: no cache for this one, until the other is gone."""
    path = filled(tmp_path)
    user, later = CompileCache(tmp_path), CompileCache(tmp_path)
    assert user.prepared(KEY) == path
    assert user.seal(path, KEY)
    flipped(path)
    assert later.prepared(KEY) is None
    assert (path / "weights.bin").exists()
    user.release(path)
    assert contents(later.prepared(KEY)) == {}


def test_what_another_process_uses_is_not_discarded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is to be compiled anew, and stays as it is: told, and let go."""
    path = filled(tmp_path)
    user, later = CompileCache(tmp_path), CompileCache(tmp_path)
    assert user.prepared(KEY) == path
    assert user.seal(path, KEY)
    assert later.prepared(KEY) == path
    assert not later.discard(path, "it is measured again")
    assert contents(path) == WHOLE
    assert "another process uses it" in caplog.text
    assert later.prepared(KEY) == path
    user.release(path)
    assert later.discard(path, "it is measured again")
    assert contents(later.prepared(KEY)) == {}


def test_a_lock_of_what_was_removed_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its open and its lock another process removed the directory and filled it anew: no cache for this one."""
    path, lock = filled(tmp_path), fcntl.flock

    def late(number: int, kind: int) -> None:
        (path.parent / "lock").unlink()
        (path.parent / "lock").touch()
        lock(number, kind)

    monkeypatch.setattr(fcntl, "flock", late)
    assert CompileCache(tmp_path).prepared(KEY) is None
    assert contents(path) == WHOLE


def test_a_process_that_dies_leaves_no_lock(tmp_path: Path) -> None:
    """Killed while it fills: what it left is thrown away by the next."""
    script = """
import os, pathlib, sys
from edged.compilecache import CompileCache
path = CompileCache(pathlib.Path(sys.argv[1])).prepared({"model": "ab12"})
(path / "weights.bin").write_bytes(b"half")
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=60)
    cache = CompileCache(tmp_path)
    assert contents(cache.prepared({"model": "ab12"})) == {}
    assert cache.discarded == 1


# --- pruning ----------------------------------------------------------------------------------------------------------


def test_other_keys_are_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The cache of a model that is no more goes, and it is said; what is not ours stays."""
    caplog.set_level(logging.INFO)
    kept, gone = filled(tmp_path), filled(tmp_path, OTHER)
    (tmp_path / "compiled/notes.txt").touch()
    assert CompileCache(tmp_path).prune([KEY]) == 1
    assert contents(kept) == WHOLE
    assert not gone.parent.exists()
    assert (tmp_path / "compiled/notes.txt").exists()
    assert f"{gone.parent}: the compile cache was removed" in caplog.text


def test_what_is_in_use_is_not_pruned(tmp_path: Path) -> None:
    """Of this process or another: it stays until it is released."""
    path, cache = filled(tmp_path), CompileCache(tmp_path)
    assert cache.prepared(KEY) == path
    assert cache.seal(path, KEY)
    assert cache.prune([]) == CompileCache(tmp_path).prune([]) == 0
    assert contents(path) == WHOLE
    cache.release(path)
    assert cache.prune([]) == 1


def test_the_longest_unused_goes_when_all_is_too_large(tmp_path: Path) -> None:
    """A limit for all together: the one that was used last stays."""
    keys = [{"model": str(n)} for n in range(3)]
    paths = [filled(tmp_path, key) for key in keys]
    for age, path in zip((3, 1, 2), paths, strict=True):
        seal_file = path.parent / "sealed.json"
        os.utime(seal_file, (1_000_000 - age, 1_000_000 - age))
    size = sum(file.lstat().st_size for file in paths[0].parent.rglob("*"))
    assert CompileCache(tmp_path).prune(keys, most_bytes=2 * size + size // 2) == 1
    assert [path.exists() for path in paths] == [False, True, True]


def test_use_makes_it_young_again(tmp_path: Path) -> None:
    """Opened and agreed again: the time of the seal is now."""
    path, cache = filled(tmp_path), CompileCache(tmp_path)
    os.utime(path.parent / "sealed.json", (1, 1))
    assert cache.prepared(KEY) == path
    assert cache.seal(path, KEY)
    assert (path.parent / "sealed.json").stat().st_mtime > 1


def test_the_seal_names_what_it_was_made_for(tmp_path: Path) -> None:
    """A person can read which model and library a directory belongs to."""
    path = filled(tmp_path)
    seal_file = json.loads((path.parent / "sealed.json").read_text())
    assert seal_file["key"] == KEY
    assert set(seal_file["files"]) == set(WHOLE)

"""What serves over restarts: the kept bundle, until the configuration says otherwise or it is damaged."""

from __future__ import annotations

import dataclasses
import errno
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import tinymodel

from edged import wholefile
from edged.deployed import Deployed, Entry, Kept, content_of


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory in which version 2 serves `m` in place of the configured version 1."""
    configured = tinymodel.write_dense_bundle(tmp_path / "one")
    source = tinymodel.write_dense_bundle(tmp_path / "two.tar", version=2)
    sha = content_of(source)
    state = tmp_path / "state"
    folder = state / "deployed" / "box" / "bundles"
    folder.mkdir(parents=True)
    source.rename(folder / f"{sha}.tar")
    with owner(state) as found:
        found.keep("m", Entry(7, sha, str(configured), content_of(configured), Kept(f"{sha}.tar", sha, 2)))
    return state


@contextmanager
def owner(state: Path, device: str = "box") -> Iterator[Deployed]:
    """What a daemon makes at its start, until its end."""
    found = Deployed(state, device)
    assert found.own() == ""
    yield found
    found.close()


def lying(state: Path) -> set[str]:
    """The names in the folder of the bundles."""
    return {path.name for path in (state / "deployed" / "box" / "bundles").iterdir()}


def file_of(state: Path) -> Path:
    return state / "deployed" / "box" / "deployed.json"


def versions(state: Path, configured: Path) -> list[int]:
    """Of the bundles that a start would take from there."""
    with owner(state) as found:
        return [one.manifest.version for one in found.bundles({"m": configured}).values()]


def test_the_kept_bundle_serves(state: Path) -> None:
    """At every start; of a model that was never sent one, nothing."""
    assert versions(state, state.parent / "one") == [2]
    assert versions(state, state.parent / "one") == [2]
    with owner(state) as found:
        assert found.bundles({"other": state.parent / "one"}) == {}


def test_another_configured_path_or_content_wins_for_good(state: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also when the old configuration is put back: it is the later word."""
    other = tinymodel.write_dense_bundle(state.parent / "three", version=3)
    with caplog.at_level(logging.WARNING):
        assert versions(state, other) == []
    assert "the configuration changed; version 2 no longer serves" in caplog.text
    assert versions(state, state.parent / "one") == []
    kept = Deployed(state, "box").entries["m"]
    assert (kept.current, kept.previous and kept.previous.version, kept.rev) == (None, 2, 7)


def test_other_content_at_the_configured_path_wins(state: Path) -> None:
    """The bundle there was replaced by hand."""
    configured = state.parent / "one"
    for file in configured.iterdir():
        file.unlink()
    configured.rmdir()
    tinymodel.write_dense_bundle(configured, version=4)
    assert versions(state, configured) == []


def test_a_configured_bundle_that_is_gone_changes_nothing(state: Path) -> None:
    """Nobody put anything else there: the kept one serves on."""
    (state.parent / "one").rename(state.parent / "away")
    assert versions(state, state.parent / "one") == [2]


def test_a_damaged_bundle_is_told_and_forgotten(state: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The configured one serves, now and at the next start."""
    (kept,) = (state / "deployed" / "box" / "bundles").iterdir()
    kept.write_bytes(kept.read_bytes()[:4000])
    with owner(state) as found, caplog.at_level(logging.WARNING):
        assert found.bundles({"m": state.parent / "one"}) == {}
    assert "the configured bundle serves" in caplog.text
    assert "m" in found.damaged
    assert Deployed(state, "box").entries["m"].current is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"m": 1}', '{"m": {"rev": 1}}', "\x00", '{"m": null}', json.dumps({"m": {
        "rev": 1, "asked": "", "configured": "", "content": "", "previous": None,
        "current": {"name": "../../etc", "sha256": "", "version": 1},
    }})],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_told(state: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing in it is followed, least of all a path that leads elsewhere."""
    file_of(state).write_text(text)
    before = lying(state)
    with caplog.at_level(logging.WARNING), owner(state) as found:
        assert found.entries == {}
        found.prune()
    assert "the configured bundle" in caplog.text
    assert (lying(state), file_of(state).read_text()) == (before, text)


@pytest.mark.parametrize("spoil", ["a key", "not UTF-8", "a directory", "one entry"])
def test_what_a_file_speaks_of_that_cannot_be_read_is_kept(state: Path, spoil: str) -> None:
    """Its bundles stay at every start, also after something was written in its place; put back, it holds again."""
    file, (kept,) = file_of(state), lying(state)
    good = file.read_text()
    if spoil == "a directory":
        file.unlink()
        file.mkdir()
    else:
        bad = {"a key": good.replace('"rev"', '"Rev"'), "one entry": good[:-1] + ', "n": 5}', "not UTF-8": good + "µ"}
        file.write_bytes(bad[spoil].encode("latin-1"))
    (file.parent / "bundles" / ("b" * 64 + ".tar")).write_bytes(b"x")
    for rev in (8, 9):
        with owner(state) as found:
            found.prune()
            found.keep("other", Entry(rev, "", "", "", None))
            found.prune()
        assert kept in lying(state)
    aside = file.with_name("deployed.json.bad")
    assert aside.exists()
    # What it does not speak of is removed, where that can be told.
    assert (len(lying(state)) == 1) == (spoil == "a key")
    assert json.loads(file.read_text())["other"]["rev"] == 9
    if spoil == "one entry":
        assert "m" in json.loads(file.read_text())
    file.write_text(good)
    assert versions(state, state.parent / "one") == [2]


def test_of_files_set_aside_the_last_one_stays(state: Path) -> None:
    """Whatever is damaged how often, no more lies there than one of them and the bundles it names."""
    file, good, (kept,) = file_of(state), file_of(state).read_text(), lying(state)
    other = good.replace(kept.split(".")[0], "b" * 64)
    for text in (good, other):
        file.write_text(text.replace('"rev"', '"Rev"'))
        (file.parent / "bundles" / ("b" * 64 + ".tar")).write_bytes(b"x")
        with owner(state) as found:
            found.keep("other", Entry(8, "", "", "", None))
    with owner(state) as found:
        found.prune()
    assert "b" * 64 in file.with_name("deployed.json.bad").read_text()
    assert lying(state) == {"b" * 64 + ".tar"}


def test_one_bad_entry_costs_no_other(state: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is told of which model it was."""
    file_of(state).write_text(file_of(state).read_text()[:-1] + ', "n": {"rev": "x"}}')
    with caplog.at_level(logging.WARNING):
        assert versions(state, state.parent / "one") == [2]
    assert "model n: KeyError" in caplog.text


def test_a_file_that_cannot_be_written_stays_where_it_was(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that could not be read, and then the disk is full."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    file_of(state).write_text("{")
    monkeypatch.setattr(wholefile, "write", full)
    with owner(state) as found, pytest.raises(OSError, match="full"):
        found.keep("m", Entry(8, "", "", "", None))
    assert (file_of(state).read_text(), file_of(state).with_name("deployed.json.bad").exists()) == ("{", False)


def test_two_devices_of_one_state_directory_do_not_disturb_each_other(state: Path) -> None:
    """Each has a directory of its own, whatever it is called."""
    for device in ("other", "..", "Ü x", "x" * 255):
        with owner(state, device) as found:
            assert found.entries == {}
            found.keep("m", Entry(1, "", "", "", None))
            found.prune()
            assert found.folder.parent.parent == (state / "deployed").absolute()
    assert versions(state, state.parent / "one") == [2]
    assert len(list((state / "deployed").iterdir())) == 5


def test_a_second_process_of_the_same_device_writes_and_removes_nothing(state: Path) -> None:
    """It serves what is kept. When the first one has ended it may be the one that keeps, with what is there then."""
    left = file_of(state).parent / "bundles" / ("a" * 64 + ".part")
    with owner(state) as first:
        left.write_bytes(b"x")
        second = Deployed(state, "box")
        assert "another process keeps the bundles" in second.own()
        assert list(second.bundles({"m": state.parent / "one"})) == ["m"]
        second.prune()
        with pytest.raises(OSError, match="another process keeps"):
            second.keep("m", Entry(8, "", "", "", None))
        assert left.exists()
        first.keep("n", Entry(9, "", "", "", None))
    assert second.own() == ""
    assert second.entries["n"].rev == 9
    second.prune()
    assert not left.exists()
    second.close()


def test_who_wants_to_keep_nothing_reads_only(state: Path) -> None:
    """As a measurement in a process of its own does, also where nobody else keeps anything."""
    left = file_of(state).parent / "bundles" / ("a" * 64 + ".part")
    left.write_bytes(b"x")
    before, other = file_of(state).read_text(), tinymodel.write_dense_bundle(state.parent / "three", version=3)
    found = Deployed(state, "box", keeps=False)
    assert list(found.bundles({"m": state.parent / "one"})) == ["m"]
    assert found.bundles({"m": other}) == {}
    found.prune()
    assert (left.exists(), file_of(state).read_text(), found.told) == (True, before, False)
    assert "keeps no bundles" in found.own()


def test_a_device_that_was_never_told_anything_makes_nothing(tmp_path: Path) -> None:
    """No directory, no lock; and when it was told, it knows at its next start."""
    found = Deployed(tmp_path / "state", "box")
    found.prune()
    assert (found.told, list(tmp_path.iterdir())) == (False, [])
    with owner(tmp_path / "state"):
        pass
    assert Deployed(tmp_path / "state", "box").told


def test_what_a_killed_process_left_half_written_is_removed(state: Path) -> None:
    """At the next start."""
    left = file_of(state).with_name("deployed.json.4711.part")
    left.write_text("{")
    with owner(state):
        assert not left.exists()


def test_what_nobody_needs_is_removed(state: Path) -> None:
    """Half-fetched files, bundles of before; not the one that serves, nor the one before it."""
    with owner(state) as found:
        folder = found.folder
        (folder / ("a" * 64 + ".part")).write_bytes(b"x")
        (folder / ("b" * 64)).mkdir()
        (folder / ("b" * 64) / "model.tflite").write_bytes(b"x")
        (folder / ("c" * 64 + ".tar")).write_bytes(b"x")
        (folder / ("d" * 64 + ".tar")).write_bytes(b"x")
        entry = dataclasses.replace(found.entries["m"], previous=Kept("c" * 64 + ".tar", "c" * 64, 1))
        found.keep("m", entry)
        found.prune([folder / ("d" * 64 + ".tar"), Path("/elsewhere/x.tar")])
        assert entry.current is not None
        assert lying(state) == {entry.current.name, "c" * 64 + ".tar", "d" * 64 + ".tar"}
        found.prune()
        assert len(lying(state)) == 2


def test_what_cannot_be_written_is_as_before(state: Path) -> None:
    """A full disk: the old entry is still there, in memory and on disk."""
    with owner(state) as found:
        before = found.entries["m"]
        state.rename(state.parent / "moved")
        (state.parent / "state").write_text("no directory")
        with pytest.raises(OSError, match="state"):
            found.keep("m", dataclasses.replace(before, rev=8))
        assert found.entries["m"] == before


def test_content_of_what_is_no_bundle(tmp_path: Path) -> None:
    """Nothing, rather than an error: a start must not fail for it."""
    assert content_of(tmp_path) == ""
    assert content_of(tmp_path / "gone.tar") == ""


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """Neither in place of a .tar nor in a directory."""
    os.mkfifo(tmp_path / "x.tar")
    os.mkfifo(tmp_path / "bundle.json")
    assert (content_of(tmp_path / "x.tar"), content_of(tmp_path)) == ("", "")

"""What serves over restarts: the kept bundle, until the configuration says otherwise or it is damaged."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path

import pytest
from support import tinymodel

from edged.deployed import Deployed, Entry, Kept, content_of


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory in which version 2 serves `m` in place of the configured version 1."""
    configured = tinymodel.write_dense_bundle(tmp_path / "one")
    source = tinymodel.write_dense_bundle(tmp_path / "two.tar", version=2)
    sha = content_of(source)
    state = tmp_path / "state"
    (state / "bundles").mkdir(parents=True)
    source.rename(state / "bundles" / f"{sha}.tar")
    Deployed(state).keep("m", Entry(7, sha, str(configured), content_of(configured), Kept(f"{sha}.tar", sha, 2)))
    return state


def versions(state: Path, configured: Path) -> list[int]:
    """Of the bundles that a start would take from there."""
    return [found.manifest.version for found in Deployed(state).bundles({"m": configured}).values()]


def test_the_kept_bundle_serves(state: Path) -> None:
    """At every start; of a model that was never sent one, nothing."""
    assert versions(state, state.parent / "one") == [2]
    assert versions(state, state.parent / "one") == [2]
    assert Deployed(state).bundles({"other": state.parent / "one"}) == {}


def test_another_configured_path_or_content_wins_for_good(state: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also when the old configuration is put back: it is the later word."""
    other = tinymodel.write_dense_bundle(state.parent / "three", version=3)
    with caplog.at_level(logging.WARNING):
        assert versions(state, other) == []
    assert "the configuration changed; version 2 no longer serves" in caplog.text
    assert versions(state, state.parent / "one") == []
    kept = Deployed(state).entries["m"]
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
    (kept,) = (state / "bundles").iterdir()
    kept.write_bytes(kept.read_bytes()[:4000])
    found = Deployed(state)
    with caplog.at_level(logging.WARNING):
        assert found.bundles({"m": state.parent / "one"}) == {}
    assert "the configured bundle serves" in caplog.text
    assert "m" in found.damaged
    assert Deployed(state).entries["m"].current is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"m": 1}', '{"m": {"rev": 1}}', "\x00", '{"m": null}', json.dumps({"m": {
        "rev": 1, "asked": "", "configured": "", "content": "", "previous": None,
        "current": {"name": "../../etc", "sha256": "", "version": 1},
    }})],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_told(state: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing in it is followed, least of all a path that leads elsewhere."""
    (state / "deployed.json").write_text(text)
    with caplog.at_level(logging.WARNING):
        assert Deployed(state).entries == {}
    assert "the configured bundles serve" in caplog.text


def test_what_nobody_needs_is_removed(state: Path) -> None:
    """Half-fetched files, bundles of before; not the one that serves, nor the one before it."""
    folder = state / "bundles"
    (folder / ("a" * 64 + ".part")).write_bytes(b"x")
    (folder / ("b" * 64)).mkdir()
    (folder / ("b" * 64) / "model.tflite").write_bytes(b"x")
    (folder / ("c" * 64 + ".tar")).write_bytes(b"x")
    (folder / ("d" * 64 + ".tar")).write_bytes(b"x")
    found = Deployed(state)
    entry = dataclasses.replace(found.entries["m"], previous=Kept("c" * 64 + ".tar", "c" * 64, 1))
    found.keep("m", entry)
    found.prune([folder / ("d" * 64 + ".tar"), Path("/elsewhere/x.tar")])
    assert entry.current is not None
    assert {path.name for path in folder.iterdir()} == {entry.current.name, "c" * 64 + ".tar", "d" * 64 + ".tar"}
    found.prune()
    assert len(list(folder.iterdir())) == 2


def test_what_cannot_be_written_is_as_before(state: Path) -> None:
    """A full disk: the old entry is still there, in memory and on disk."""
    found = Deployed(state)
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

"""Putting a bundle in its place."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import tinymodel

from converters import place
from edged import bundle
from edged.bundle import Manifest
from edged.errors import UnavailableError, UsageError


def manifest(version: int) -> Manifest:
    specs = (tinymodel.spec("x", (1, 3)),), (tinymodel.spec("y", (1, 2)),)
    return Manifest(1, "m", version, {}, "serving_default", *specs)


def files() -> dict[str, bytes]:
    return {bundle.MODEL: tinymodel.dense_model()}


@pytest.mark.parametrize("name", ["out", "out.tar"])
def test_force_replaces_a_bundle_and_only_then(tmp_path: Path, name: str) -> None:
    """Without --force an existing bundle is refused; with it the new one is there, and nothing else."""
    path = tmp_path / name
    place.write(path, manifest(1), files(), force=False)
    with pytest.raises(UsageError, match="--force replaces it"):
        place.check_output(path, force=False)
    place.check_output(path, force=True)
    place.write(path, manifest(2), files(), force=True)
    assert bundle.read(path).manifest.version == 2
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_force_never_removes_what_is_no_bundle(tmp_path: Path) -> None:
    """A directory with a person's files, and a foreign file, stay."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("years of work")
    (tmp_path / "x.tar").write_text("not a tar")
    for name in ("home", "x.tar"):
        with pytest.raises(UsageError, match="is no bundle, so --force leaves it alone"):
            place.check_output(tmp_path / name, force=True)


def test_the_old_bundle_survives_a_failed_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second rename fails: the old bundle is put back, no half of the new one is left."""
    place.write(tmp_path / "out", manifest(1), files(), force=False)
    real = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if self.name == "new" and Path(target) == tmp_path / "out":
            raise OSError(28, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(UnavailableError, match="No space"):
        place.write(tmp_path / "out", manifest(2), files(), force=True)
    assert bundle.read(tmp_path / "out").manifest.version == 1
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def appears(monkeypatch: pytest.MonkeyPatch, what: Callable[[], object]) -> None:
    """Let `what` happen when the new bundle has been written beside its place."""
    real = bundle.write

    def write(path: Path, *args: Any) -> None:
        real(path, *args)
        what()

    monkeypatch.setattr(bundle, "write", write)


@pytest.mark.parametrize("force", [True, False])
@pytest.mark.parametrize("name", ["out", "out.tar"])
@pytest.mark.parametrize("kind", ["directory", "file", "empty"])
def test_what_appears_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str, *, force: bool
) -> None:
    """Files that somebody puts at the output while the model is converted are there afterwards, --force or not."""
    path = tmp_path / name

    def come() -> None:
        if kind == "file":
            path.write_text("mine")
        else:
            path.mkdir()
        if kind == "directory":
            (path / "mine.txt").write_text("mine")

    appears(monkeypatch, come)
    with pytest.raises(UsageError, match=r"has appeared meanwhile|is no bundle"):
        place.write(path, manifest(1), files(), force=force)
    if kind != "empty":
        assert (path if kind == "file" else path / "mine.txt").read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["out", "out.tar"])
def test_of_two_conversions_into_one_output_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The bundle that came first stays whole, and the second conversion says so."""
    first = tmp_path / "first" / name
    place.write(first, manifest(1), files(), force=False)
    appears(monkeypatch, lambda: first.rename(tmp_path / name))
    with pytest.raises(UsageError, match="has appeared meanwhile"):
        place.write(tmp_path / name, manifest(2), files(), force=False)
    assert bundle.read(tmp_path / name).manifest.version == 1


def test_force_leaves_a_bundle_with_other_files_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person's file inside the old bundle is not thrown away with it, not even one that has just come."""
    path, mine = tmp_path / "out", tmp_path / "out" / "mine.txt"
    place.write(path, manifest(1), files(), force=False)
    real = place.check_output
    looks: list[Path] = []

    def look(path: Path, *, force: bool) -> None:
        real(path, force=force)
        looks.append(path)
        if len(looks) == 2:
            mine.write_text("x")

    monkeypatch.setattr(place, "check_output", look)
    with pytest.raises(UsageError, match="was changed meanwhile"):
        place.write(path, manifest(2), files(), force=True)
    assert (mine.read_text(), bundle.read(path).manifest.version) == ("x", 1)
    with pytest.raises(UsageError, match=r"is no part of the bundle: mine\.txt"):
        real(path, force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(("old", "new"), [("dir", "x.tar"), ("y.tar", "x")])
def test_force_replaces_one_form_by_the_other(tmp_path: Path, old: str, new: str) -> None:
    """A directory called x.tar, and a .tar called x: both are bundles, so both are replaced."""
    place.write(tmp_path / old, manifest(1), files(), force=False)
    (tmp_path / old).rename(tmp_path / new)
    place.write(tmp_path / new, manifest(2), files(), force=True)
    assert bundle.read(tmp_path / new).manifest.version == 2
    assert (tmp_path / new).is_file() == new.endswith(".tar")
    assert [p.name for p in tmp_path.iterdir()] == [new]


@pytest.mark.parametrize("name", ["out", "out.tar"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interruption_loses_no_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, when: str) -> None:
    """Ctrl-C between the two renames puts the old bundle back; after the second the new one stays. No litter."""
    path = tmp_path / name
    place.write(path, manifest(1), files(), force=False)
    real, calls = place._put, []

    def put(fresh: Path, path: Path) -> None:
        calls.append(fresh)
        if len(calls) == 1 and when == "before":
            raise KeyboardInterrupt
        real(fresh, path)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(place, "_put", put)
    with pytest.raises(KeyboardInterrupt):
        place.write(path, manifest(2), files(), force=True)
    assert bundle.read(path).manifest.version == (1 if when == "before" else 2)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_an_old_bundle_whose_place_is_taken_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody takes the name between the two renames: both are left, and the line says where the old bundle is."""
    path = tmp_path / "out"
    place.write(path, manifest(1), files(), force=False)
    real = place._check_same
    monkeypatch.setattr(place, "_check_same", lambda *args: (real(*args), path.write_text("mine")))
    with pytest.raises(UsageError, match="the bundle that was there is") as caught:
        place.write(path, manifest(2), files(), force=True)
    assert path.read_text() == "mine"
    assert bundle.read(Path(caught.value.hint.rpartition(" ")[2])).manifest.version == 1


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A .tar takes its name there as well, and replaces nothing."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    place.write(tmp_path / "o.tar", manifest(1), files(), force=False)
    assert bundle.read(tmp_path / "o.tar").manifest.version == 1
    appears(monkeypatch, lambda: (tmp_path / "p.tar").write_text("mine"))
    with pytest.raises(UsageError, match="has appeared meanwhile"):
        place.write(tmp_path / "p.tar", manifest(1), files(), force=False)
    assert (tmp_path / "p.tar").read_text() == "mine"


def test_names_that_no_bundle_can_have(tmp_path: Path) -> None:
    """The root, what is above, and names or paths longer than the file system takes: told before the work."""
    for path, says in (
        (Path("/"), "names no bundle"),
        (tmp_path / "..", "names no bundle"),
        (tmp_path / ("n" * 256), "is a name of 256 bytes, 255 is the most"),
        (tmp_path / ("ä" * 130) / "out", "is a name of 260 bytes"),
        (tmp_path.joinpath(*["n" * 200] * 21), "is a path of"),
        (Path("/proc"), "is a mount point|cannot be written"),
    ):
        with pytest.raises(UsageError, match=says):
            place.check_output(path, force=True)


def test_a_bundle_inside_a_bundle_is_refused(tmp_path: Path) -> None:
    """It would be a file that the outer bundle knows nothing of."""
    place.write(tmp_path / "out", manifest(1), files(), force=False)
    with pytest.raises(UsageError, match="lies inside the bundle"):
        place.check_output(tmp_path / "out" / "deep" / "in", force=False)


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line says that it is the output's disk, not that of TMPDIR, and nothing is left."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bundle, "write", full)
    with pytest.raises(UnavailableError, match=f"-o {tmp_path}/out: No space left"):
        place.write(tmp_path / "out", manifest(1), files(), force=False)
    assert list(tmp_path.iterdir()) == []


def test_outputs_that_cannot_be_written(tmp_path: Path) -> None:
    """A file where a directory should be is told before minutes of work."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=f"{tmp_path / 'file'} is no directory"):
        place.check_output(tmp_path / "file" / "deep" / "out", force=False)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written(tmp_path: Path) -> None:
    """The nearest directory that exists decides, and is named."""
    (tmp_path / "mine").mkdir(mode=0o500)
    with pytest.raises(UsageError, match=f"{tmp_path / 'mine'} cannot be written to"):
        place.check_output(tmp_path / "mine" / "deep" / "out", force=False)


@pytest.mark.parametrize("name", ["out", "out.tar"])
def test_missing_directories_are_made(tmp_path: Path, name: str) -> None:
    """`-o bundles/deep/out` in an empty directory: the check makes nothing, the write what is needed."""
    path = tmp_path / "bundles" / "deep" / name
    place.check_output(path, force=False)
    assert list(tmp_path.iterdir()) == []
    place.write(path, manifest(1), files(), force=False)
    assert bundle.read(path).manifest.version == 1

"""Putting a bundle in its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support import tinymodel

from converters import place
from edged import bundle
from edged.bundle import Manifest
from edged.errors import UsageError


def manifest(version: int) -> Manifest:
    specs = (tinymodel.spec("x", (1, 3)),), (tinymodel.spec("y", (1, 2)),)
    return Manifest(1, "m", version, {}, "serving_default", *specs)


def files() -> dict[str, bytes]:
    return {bundle.MODEL: tinymodel.dense_model()}


@pytest.mark.parametrize("name", ["out", "out.tar"])
def test_force_replaces_a_bundle_and_only_then(tmp_path: Path, name: str) -> None:
    """Without --force an existing bundle is refused; with it the new one is there, and nothing else."""
    path = tmp_path / name
    place.write(path, manifest(1), files())
    with pytest.raises(UsageError, match="--force replaces it"):
        place.check_output(path, force=False)
    place.check_output(path, force=True)
    place.write(path, manifest(2), files())
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
    place.write(tmp_path / "out", manifest(1), files())
    real = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if self.name != "old" and Path(target) == tmp_path / "out":
            raise OSError(28, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(OSError, match="No space"):
        place.write(tmp_path / "out", manifest(2), files())
    assert bundle.read(tmp_path / "out").manifest.version == 1
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


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
    place.write(path, manifest(1), files())
    assert bundle.read(path).manifest.version == 1

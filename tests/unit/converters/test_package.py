"""The small files a person gives, and putting a bundle in its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import tinymodel

from converters import package
from converters.options import Options
from edged import bundle
from edged.bundle import Manifest, Postprocess, TensorSpec
from edged.errors import BadDataError, UsageError

SCORES = TensorSpec("scores", "float32", (1, 3))
BOXES = TensorSpec("boxes", "float32", (1, 10, 4))


def options(tmp_path: Path, **changes: Any) -> Options:
    return Options(
        tmp_path / "model", changes.pop("output", tmp_path / "out"), **({"name": "m", "version": 1} | changes)
    )


def manifest(version: int = 1) -> Manifest:
    specs = (tinymodel.spec("x", (1, 3)),), (tinymodel.spec("y", (1, 2)),)
    return Manifest(1, "m", version, {}, "serving_default", *specs)


def files() -> dict[str, bytes]:
    return {bundle.MODEL: tinymodel.dense_model()}


def test_labels_are_one_a_line_and_fit_an_output(tmp_path: Path) -> None:
    """Three labels fit the output of three classes; the file's line ends and byte order mark do not matter."""
    (tmp_path / "labels").write_bytes("\ufeffsit\r\nwalk\r\nrun\r\n".encode())
    given = options(tmp_path, labels=str(tmp_path / "labels"))
    texts = package.Texts.read(given)
    assert texts.labels == ("sit", "walk", "run")
    texts.check_labels((BOXES, SCORES), given)
    with pytest.raises(BadDataError, match=r"3 labels fit no output: boxes \[1, 10, 4\]"):
        texts.check_labels((BOXES,), given)


@pytest.mark.parametrize(("text", "says"), [("", "holds no label"), ("a\n\nb\n", "line 2 is empty")])
def test_labels_that_are_none(tmp_path: Path, text: str, says: str) -> None:
    """An empty file and an empty line are mistakes that would shift every class."""
    (tmp_path / "labels").write_text(text)
    with pytest.raises(BadDataError, match=says):
        package.Texts.read(options(tmp_path, labels=str(tmp_path / "labels")))


def test_postprocessing_decides_which_output_the_labels_are_for(tmp_path: Path) -> None:
    """Four labels fit the boxes' last axis, but not the output that --postprocess names."""
    texts = package.Texts(("a", "b", "c", "d"), None, Postprocess(output="scores"))
    with pytest.raises(BadDataError, match="4 labels fit no output: scores"):
        texts.check_labels((BOXES, SCORES), options(tmp_path, labels="l"))
    wrong = package.Texts((), None, Postprocess(output="score"))
    with pytest.raises(BadDataError, match="no output 'score'"):
        wrong.check_labels((BOXES, SCORES), options(tmp_path, postprocess="p.yaml"))


def test_class_numbers_from_names() -> None:
    """Labels in --eval may be names of --labels; an unknown name is told."""
    texts = package.Texts(("sit", "walk"), None, Postprocess())
    assert texts.class_numbers(np.array(["walk", "sit", "walk"]), "e.npz").tolist() == [1, 0, 1]
    assert texts.class_numbers(np.array([1, 0]), "e.npz").tolist() == [1, 0]
    with pytest.raises(BadDataError, match="label 'fly' is not in --labels"):
        texts.class_numbers(np.array(["fly"]), "e.npz")
    with pytest.raises(BadDataError, match="labels of dtype float64"):
        texts.class_numbers(np.array([0.5]), "e.npz")


@pytest.mark.parametrize("name", ["postprocess", "preprocess"])
@pytest.mark.parametrize(
    ("text", "says"), [("top_kk: 3\nresizee: crop\n", "unknown key"), ("- 1\n", "no mapping"), (None, "cannot be read")]
)
def test_processing_files_are_checked_before_anything_runs(
    tmp_path: Path, name: str, text: str | None, says: str
) -> None:
    """A wrong key, another shape of file, no file: told at once."""
    if text is not None:
        (tmp_path / "f.yaml").write_text(text)
    with pytest.raises(BadDataError, match=says):
        package.Texts.read(options(tmp_path, **{name: str(tmp_path / "f.yaml")}))


def test_processing_files_are_yaml_or_json(tmp_path: Path) -> None:
    """Both give the same."""
    (tmp_path / "p.yaml").write_text("softmax: true\ntop_k: 3\n")
    (tmp_path / "p.json").write_text('{"softmax": true, "top_k": 3}')
    for name in ("p.yaml", "p.json"):
        texts = package.Texts.read(options(tmp_path, postprocess=str(tmp_path / name)))
        assert texts.postprocess == Postprocess(softmax=True, top_k=3)


def test_a_name_must_fit_a_topic(tmp_path: Path) -> None:
    """The name becomes a topic level."""
    with pytest.raises(UsageError, match="--name"):
        package.Texts.read(options(tmp_path, name="a/b"))


@pytest.mark.parametrize("name", ["out", "out.tar"])
def test_force_replaces_a_bundle_and_only_then(tmp_path: Path, name: str) -> None:
    """Without --force an existing bundle is refused; with it the new one is there, and nothing else."""
    path = tmp_path / name
    package.write(options(tmp_path, output=path), manifest(1), files())
    with pytest.raises(UsageError, match="--force replaces it"):
        package.check_output(path, force=False)
    package.check_output(path, force=True)
    package.write(options(tmp_path, output=path, force=True), manifest(2), files())
    assert bundle.read(path).manifest.version == 2
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_force_never_removes_what_is_no_bundle(tmp_path: Path) -> None:
    """A directory with a person's files, and a foreign file, stay."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("years of work")
    (tmp_path / "x.tar").write_text("not a tar")
    for name in ("home", "x.tar"):
        with pytest.raises(UsageError, match="is no bundle, so --force leaves it alone"):
            package.check_output(tmp_path / name, force=True)


def test_the_old_bundle_survives_a_failed_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second rename fails: the old bundle is put back, no half of the new one is left."""
    given = options(tmp_path, force=True)
    package.write(given, manifest(1), files())
    real = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if ".new" in self.name and not self.name.endswith(".part") and self.parent == target.parent == tmp_path:
            raise OSError(28, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(OSError, match="No space"):
        package.write(given, manifest(2), files())
    assert bundle.read(tmp_path / "out").manifest.version == 1
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_outputs_that_cannot_be_written(tmp_path: Path) -> None:
    """A missing parent directory is told before minutes of work."""
    with pytest.raises(UsageError, match=f"no directory {tmp_path / 'none'}"):
        package.check_output(tmp_path / "none" / "out", force=False)


def test_flags_hold_no_path(tmp_path: Path) -> None:
    """Where the files lay is not part of what was made."""
    given = options(tmp_path, calibration=str(tmp_path / "train.npz"), shapes={"x": (1, 3)}, min_agreement=0.9)
    found = {"signature": "serving_default", "tags": ["serve"], "evaluation": "test.npz"}
    flags = package.flags(given, found)
    assert not any(str(tmp_path) in value for value in flags.values())
    assert (flags["calibration"], flags["shape"], flags["min-agreement"]) == ("train.npz", "x=1,3", "0.9")

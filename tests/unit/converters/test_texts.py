"""The small files a person gives, checked before anything runs."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from converters.options import Options
from converters.texts import Texts
from edged.bundle import ImagePreprocess, Postprocess, TensorSpec
from edged.commands import sample
from edged.errors import BadDataError, UsageError

SCORES = TensorSpec("scores", "float32", (1, 3))
BOXES = TensorSpec("boxes", "float32", (1, 10, 4))
SHAPES = {"boxes": (1, 10, 4), "scores": (1, 3)}


def options(tmp_path: Path, **changes: Any) -> Options:
    return Options(tmp_path / "model", tmp_path / "out", **({"name": "m", "version": 1} | changes))


def test_labels_are_one_a_line_and_fit_an_output(tmp_path: Path) -> None:
    """Three labels fit the output of three classes; the file's line ends and byte order mark do not matter."""
    (tmp_path / "labels").write_bytes("\ufeffsit\r\nwalk\r\nrun\r\n".encode())
    given = options(tmp_path, labels=str(tmp_path / "labels"))
    texts = Texts.read(given)
    assert texts.labels == ("sit", "walk", "run")
    texts.check_labels(SHAPES, given)
    with pytest.raises(BadDataError, match=r"3 labels fit no output: boxes \[1, 10, 4\]"):
        texts.check_labels({"boxes": (1, 10, 4)}, given)


@pytest.mark.parametrize(("text", "says"), [("", "holds no label"), ("a\n\nb\n", "line 2 is empty")])
def test_labels_that_are_none(tmp_path: Path, text: str, says: str) -> None:
    """An empty file and an empty line are mistakes that would shift every class."""
    (tmp_path / "labels").write_text(text)
    with pytest.raises(BadDataError, match=says):
        Texts.read(options(tmp_path, labels=str(tmp_path / "labels")))


def test_postprocessing_decides_which_output_the_labels_are_for(tmp_path: Path) -> None:
    """Four labels fit the boxes' last axis, but not the output that --postprocess names."""
    texts = Texts(("a", "b", "c", "d"), None, Postprocess(output="scores"))
    with pytest.raises(BadDataError, match="4 labels fit no output: scores"):
        texts.check_labels(SHAPES, options(tmp_path, labels="l"))
    wrong = Texts((), None, Postprocess(output="score"))
    with pytest.raises(BadDataError, match="no output 'score'"):
        wrong.check_labels(SHAPES, options(tmp_path, postprocess="p.yaml"))


INT8 = TensorSpec("scores", "int8", (1, 3), 0.1, 3)
INDEX = TensorSpec("index", "int64", (1, 3))
OTHER = TensorSpec("other", "float32", (1, 3))
MANY = TensorSpec("scores", "float32", (1, 9))


@pytest.mark.parametrize(
    ("count", "outputs", "expected"),
    [
        (3, (SCORES,), Postprocess(output="scores", top_k=3)),
        (3, (BOXES, INDEX, INT8), Postprocess(output="scores", top_k=3)),
        (9, (MANY,), Postprocess(output="scores", top_k=5)),
        (0, (SCORES,), Postprocess()),
        (3, (SCORES, OTHER), Postprocess()),
        (4, (BOXES,), Postprocess()),
    ],
)
def test_labels_alone_make_answers_list_classes(
    tmp_path: Path, count: int, outputs: tuple[TensorSpec, ...], expected: Postprocess
) -> None:
    """The best five, or all where there are fewer, of the one output of scores; where that is a guess, nothing."""
    texts = Texts(tuple("abcdefghi"[:count]), None, Postprocess())
    assert texts.with_classes(outputs, options(tmp_path)).postprocess == expected


def test_a_postprocess_file_has_the_last_word(tmp_path: Path) -> None:
    """Who gives one without top_k wants no classes."""
    texts = Texts(("a", "b", "c"), None, Postprocess(softmax=True))
    assert texts.with_classes((SCORES,), options(tmp_path, postprocess="p.yaml")) == texts


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
        Texts.read(options(tmp_path, **{name: str(tmp_path / "f.yaml")}))


def test_processing_files_are_yaml_or_json(tmp_path: Path) -> None:
    """Both give the same."""
    (tmp_path / "p.yaml").write_text("softmax: true\ntop_k: 3\n")
    (tmp_path / "p.json").write_text('{"softmax": true, "top_k": 3}')
    for name in ("p.yaml", "p.json"):
        texts = Texts.read(options(tmp_path, postprocess=str(tmp_path / name)))
        assert texts.postprocess == Postprocess(softmax=True, top_k=3)


def test_a_name_must_fit_a_topic(tmp_path: Path) -> None:
    """The name becomes a topic level."""
    with pytest.raises(UsageError, match="--name"):
        Texts.read(options(tmp_path, name="a/b"))


def test_the_sample_files_are_read_and_name_every_key(tmp_path: Path) -> None:
    """What `edged sample` prints for both options is accepted as it stands, and documents each key there is."""
    files = sample.find()
    given = {name: str(files[name]) for name in ("preprocess", "postprocess")}
    texts = Texts.read(options(tmp_path, **given))
    assert texts.image is not None
    for cls, name in ((ImagePreprocess, "preprocess"), (Postprocess, "postprocess")):
        text = files[name].read_text()
        for field in dataclasses.fields(cls):
            assert re.search(rf"^(# )?{field.name}: ", text, re.MULTILINE), field.name


def test_the_commented_keys_of_the_samples_are_right_too(tmp_path: Path) -> None:
    """A person takes the `#` away and it still loads."""
    for name in ("preprocess", "postprocess"):
        text = sample.find()[name].read_text()
        (tmp_path / f"{name}.yaml").write_text(re.sub(r"^# (?=[a-z_]+: )", "", text, flags=re.MULTILINE))
    texts = Texts.read(options(tmp_path, **{n: str(tmp_path / f"{n}.yaml") for n in ("preprocess", "postprocess")}))
    assert texts.postprocess.top_k > 0
    assert texts.image is not None
    assert {field.name for field in dataclasses.fields(ImagePreprocess)} == set(texts.image)


def test_labels_that_never_end(tmp_path: Path) -> None:
    """A device is not read, and neither is what nobody wrote by hand."""
    with pytest.raises(BadDataError, match="/dev/zero: is no regular file"):
        Texts.read(options(tmp_path, labels="/dev/zero"))
    with (tmp_path / "huge").open("wb") as file:
        file.truncate((4 << 20) + 1)
    with pytest.raises(BadDataError, match="huge: is larger than 4,194,304 bytes"):
        Texts.read(options(tmp_path, labels=str(tmp_path / "huge")))

"""Choosing what to convert, without TensorFlow: paths, tag sets, signatures, shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from converters import savedmodel
from edged.errors import BadDataError, UsageError

SERVE, TRAIN = frozenset({"serve"}), frozenset({"serve", "train"})


def fake(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "saved_model.pb").write_bytes(b"")
    return path


@pytest.mark.parametrize("name", ["m.keras", "m.h5"])
def test_a_keras_file_is_named_as_what_it_is(tmp_path: Path, name: str) -> None:
    """The error says what the file is and how to get a SavedModel from it."""
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(BadDataError, match=r"is a Keras.*model\.export"):
        savedmodel.check_path(tmp_path / name)


def test_paths_that_are_near_a_savedmodel(tmp_path: Path) -> None:
    """Nothing there, an empty directory, the .pb itself: each says what to give."""
    with pytest.raises(BadDataError, match="no such SavedModel"):
        savedmodel.check_path(tmp_path / "none")
    with pytest.raises(BadDataError, match=r"no saved_model\.pb in it"):
        savedmodel.check_path(tmp_path)
    model = fake(tmp_path / "m")
    with pytest.raises(BadDataError, match=f"give its directory, {model}"):
        savedmodel.check_path(model / "saved_model.pb")
    savedmodel.check_path(model)


def test_a_serving_base_directory_names_its_newest_version(tmp_path: Path) -> None:
    """Versions 2, 9 and 10: the newest is 10, by number and not by text."""
    for version in ("2", "9", "10"):
        fake(tmp_path / version)
    with pytest.raises(BadDataError, match=f"give {tmp_path / '10'}"):
        savedmodel.check_path(tmp_path)


def test_a_folder_of_models_makes_no_choice(tmp_path: Path) -> None:
    """Several models that are no versions are listed; none is suggested."""
    fake(tmp_path / "a")
    fake(tmp_path / "b")
    with pytest.raises(BadDataError, match=r"\(a, b\).*give one of them"):
        savedmodel.check_path(tmp_path)


def test_tag_sets() -> None:
    """`serve` by default, another by flag in any order of its tags; a wrong one lists what exists."""
    assert savedmodel.choose_tags([TRAIN, SERVE], "", "m") == SERVE
    assert savedmodel.choose_tags([TRAIN, SERVE], "train,serve", "m") == TRAIN
    with pytest.raises(UsageError, match=r"no tag set 'serve'; it has: serve,train \(choose one with --tags\)"):
        savedmodel.choose_tags([TRAIN], "", "m")


def test_signatures() -> None:
    """Asked for, serving_default, or the only one; never one of several."""
    assert savedmodel.choose_signature(["a", "serving_default"], "", "m") == "serving_default"
    assert savedmodel.choose_signature(["a", "serving_default"], "a", "m") == "a"
    assert savedmodel.choose_signature(["predict"], "", "m") == "predict"
    with pytest.raises(UsageError, match="several signatures: a, b"):
        savedmodel.choose_signature(["a", "b"], "", "m")
    with pytest.raises(UsageError, match=r"no signature 'predcit' \(did you mean 'predict'\?\); it has: predict"):
        savedmodel.choose_signature(["predict"], "predcit", "m")
    with pytest.raises(BadDataError, match="has no signature"):
        savedmodel.choose_signature([], "", "m")


def test_the_free_first_dimension_is_the_batch() -> None:
    """--batch fills it; a given shape is taken as it is; fixed shapes stay."""
    dims = {"x": (None, 4), "fixed": (3, 2), "audio": (1, None)}
    shapes = savedmodel.pin_shapes(dims, 2, {"audio": (1, 16000)}, "m")
    assert shapes == {"x": (2, 4), "fixed": (3, 2), "audio": (1, 16000)}
    assert savedmodel.pin_shapes({"scalar": ()}, 1, {}, "m") == {"scalar": ()}
    assert savedmodel.pin_shapes({"any": None}, 1, {"any": (7,)}, "m") == {"any": (7,)}


@pytest.mark.parametrize(
    ("dims", "batch", "given", "says"),
    [
        ({"x": (None, None, 3)}, 1, {}, r"'x' has the open shape \[\?, \?, 3\] \(--shape x=1,64,3\)"),
        ({"x": None}, 1, {}, "'x' has the open shape"),
        ({"x": (None, 3)}, 1, {"x": (1, 4)}, r"x=\[1, 4\] does not fit the model's \[\?, 3\]"),
        ({"x": (None, 3)}, 1, {"x": (3,)}, "does not fit"),
        ({"xyz": (None, 3)}, 1, {"xyy": (1, 3)}, r"no input 'xyy' \(did you mean 'xyz'\?\)"),
        ({"x": (1, 3)}, 4, {}, "no input has a free first dimension"),
    ],
)
def test_shapes_that_cannot_be(
    dims: dict[str, savedmodel.Dims | None], batch: int, given: dict[str, tuple[int, ...]], says: str
) -> None:
    """An open or contradictory shape names the input and the flag to give."""
    with pytest.raises(UsageError, match=says):
        savedmodel.pin_shapes(dims, batch, given, "m")


def test_size_counts_every_file(tmp_path: Path) -> None:
    """Sub-directories included."""
    (tmp_path / "variables").mkdir()
    (tmp_path / "variables" / "v").write_bytes(b"12345")
    (tmp_path / "saved_model.pb").write_bytes(b"123")
    assert savedmodel.size(tmp_path) == 8

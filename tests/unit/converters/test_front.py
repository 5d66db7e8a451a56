"""What a path is, told by what lies there and without TensorFlow."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from converters import front
from edged.errors import BadDataError

# The first bytes of every HDF5 file, from its format specification.
HDF5 = bytes([137, 72, 68, 70, 13, 10, 26, 10])


def fake(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "saved_model.pb").write_bytes(b"123")
    return path


def zipped(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name in names:
            file.writestr(name, "{}")
    return path


def test_a_savedmodel(tmp_path: Path) -> None:
    """Its size is that of all its files, in sub-directories too."""
    path = fake(tmp_path / "m")
    (path / "variables").mkdir()
    (path / "variables" / "v").write_bytes(b"12345")
    assert front.find(path) == front.Given(path, "m", "SavedModel")
    assert front.find(path).size == 8


@pytest.mark.parametrize("name", ["saved_model.pbtxt", "saved_model.cpb"])
def test_other_forms_of_a_savedmodel(tmp_path: Path, name: str) -> None:
    """Text and split files are SavedModels too."""
    (tmp_path / name).write_bytes(b"")
    assert front.find(tmp_path).kind == "SavedModel"


def test_keras_files_by_their_content(tmp_path: Path) -> None:
    """A zip file with Keras' own parts, and HDF5; the size is the file's."""
    new = zipped(tmp_path / "m.keras", "config.json", "metadata.json", "model.weights.h5")
    assert front.find(new) == front.Given(new, "m.keras", "Keras file")
    assert front.find(new).size == new.stat().st_size
    old = tmp_path / "M.H5"
    old.write_bytes(HDF5 + b"rest")
    assert front.find(old).kind == "Keras HDF5 file"


def test_the_highest_version_by_number(tmp_path: Path) -> None:
    """Versions 2, 9 and 10: 10 is taken, by number and not by text, and the others are told."""
    for version in ("2", "9", "10"):
        fake(tmp_path / version)
    fake(tmp_path / "old")
    given = front.find(tmp_path)
    assert (given.path, given.shown) == (tmp_path / "10", f"{tmp_path.name}/10")
    (note,) = given.notes
    assert note.endswith("version 10 is taken, the highest; also there: 2, 9")
    assert str(tmp_path) not in note


def test_a_single_version_needs_no_note(tmp_path: Path) -> None:
    """Nothing was chosen."""
    fake(tmp_path / "m" / "7")
    given = front.find(tmp_path / "m")
    assert (given.shown, given.notes) == ("m/7", ())


def test_a_folder_of_models_makes_no_choice(tmp_path: Path) -> None:
    """Several models that are no versions are listed; of a single one the path is told."""
    fake(tmp_path / "a")
    with pytest.raises(BadDataError, match=rf"holds SavedModels \(a\) but is none itself \(give {tmp_path / 'a'}\)"):
        front.find(tmp_path)
    fake(tmp_path / "b")
    with pytest.raises(BadDataError, match=r"\(a, b\).*give one of them"):
        front.find(tmp_path)


def test_paths_that_are_near_a_savedmodel(tmp_path: Path) -> None:
    """Nothing there, an empty directory, the .pb itself: each says what to give."""
    with pytest.raises(BadDataError, match="no such SavedModel"):
        front.find(tmp_path / "none")
    with pytest.raises(BadDataError, match=r"no saved_model\.pb in it"):
        front.find(tmp_path)
    model = fake(tmp_path / "m")
    with pytest.raises(BadDataError, match=f"give its directory, {model}"):
        front.find(model / "saved_model.pb")


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["checkpoint"], "holds a checkpoint, weights without a model"),
        (["ckpt-1.index", "ckpt-1.data-00000-of-00001"], "holds a checkpoint"),
        (["config.json", "metadata.json", "model.weights.h5"], r"is an unpacked Keras file \(give the .keras file\)"),
    ],
)
def test_directories_of_something_else(tmp_path: Path, names: list[str], says: str) -> None:
    """Each is named for what it is."""
    for name in names:
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(BadDataError, match=says):
        front.find(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("m.keras", b"", r"is named \.keras but is no Keras file"),
        ("m.h5", b"<html>", r"is named \.h5 but is no Keras file"),
        ("m.weights.h5", HDF5, r"holds weights alone, not a model.*model\.export"),
        ("m.dat", HDF5, r"HDF5 file by another name \(rename it to m\.h5\)"),
        ("m.tflite", b"", r"is converted already.*edged inspect"),
        ("m.pb", b"", "is a frozen graph"),
        ("m.onnx", b"", "is an ONNX file"),
        ("m.tar.gz", b"", "is an archive.*unpack it"),
        ("m", b"", "is no SavedModel directory and no Keras file"),
    ],
)
def test_files_of_something_else(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    """Each is named for what it is, by its content before its name."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadDataError, match=says):
        front.find(tmp_path / name)


def test_archives(tmp_path: Path) -> None:
    """A zip file says which models it holds; a Keras file by another name is told its name."""
    inside = zipped(tmp_path / "clf.zip", "classifier.keras", "info.yml", "m/1/saved_model.pb")
    with pytest.raises(BadDataError, match=r"zip file that holds m/1, classifier\.keras \(unpack it, then give m/1\)"):
        front.find(inside)
    with pytest.raises(BadDataError, match="zip file that holds no model"):
        front.find(zipped(tmp_path / "z.keras", "a.txt"))
    with pytest.raises(BadDataError, match=r"rename it to k\.keras"):
        front.find(zipped(tmp_path / "k.zip", "config.json", "metadata.json"))


def test_a_damaged_archive(tmp_path: Path) -> None:
    """A zip file whose directory is cut is one line, not a traceback."""
    whole = zipped(tmp_path / "m.keras", "config.json", "metadata.json").read_bytes()
    (tmp_path / "m.keras").write_bytes(whole.replace(b"PK\1\2", b"PK\7\7"))
    with pytest.raises(BadDataError, match="cannot be read as a zip file"):
        front.find(tmp_path / "m.keras")


def test_what_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file or directory without the right to read it is one line."""

    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "m.keras").write_bytes(b"x")
    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "iterdir", refuse)
    for path in (tmp_path / "m.keras", tmp_path):
        with pytest.raises(BadDataError, match="cannot be read: Permission denied"):
            front.find(path)

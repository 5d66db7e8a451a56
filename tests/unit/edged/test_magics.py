"""First bytes and names, against those who define them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support import tflitefiles, tinymodel

from edged import magics


def test_a_tflite_file() -> None:
    """As the format's own generated class tells, and nothing shorter."""
    model = tinymodel.dense_model()
    assert tflitefiles.schema().Model.ModelBufferHasIdentifier(model, 0)
    assert magics.is_tflite(model)
    assert not magics.is_tflite(model[:7])
    assert not magics.is_tflite(model[4:])


def test_an_hdf5_file() -> None:
    """The eight bytes of the format's specification."""
    assert list(magics.HDF5) == [137, 72, 68, 70, 13, 10, 26, 10]


def test_what_is_no_file(tmp_path: Path) -> None:
    """Pipes, devices and links in a circle are named without being opened; what is not there is not special."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    found = {
        name: magics.special(tmp_path / name) for name in ("pipe", "loop", "file", "link", "missing", "file/x", ".")
    }
    assert {name: what for name, what in found.items() if what} == {
        "pipe": "is a named pipe, not a file",
        "loop": "is a link that leads to no file",
    }
    assert magics.special(Path("/dev/null")) == "is a device, not a file"


@pytest.mark.parametrize("name", ["saved_model.pb", "saved_model.pbtxt", "saved_model.cpb"])
def test_a_savedmodel(tmp_path: Path, name: str) -> None:
    """A directory with one of TensorFlow's three files; a directory of that name is none."""
    assert not magics.is_saved_model(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / name).mkdir()
    (tmp_path / name).write_bytes(b"")
    assert magics.is_saved_model(tmp_path)
    assert not magics.is_saved_model(tmp_path / "other")

"""First bytes and names, against those who define them."""

from __future__ import annotations

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


@pytest.mark.parametrize("name", ["saved_model.pb", "saved_model.pbtxt", "saved_model.cpb"])
def test_a_savedmodel(tmp_path: Path, name: str) -> None:
    """A directory with one of TensorFlow's three files; a directory of that name is none."""
    assert not magics.is_saved_model(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / name).mkdir()
    (tmp_path / name).write_bytes(b"")
    assert magics.is_saved_model(tmp_path)
    assert not magics.is_saved_model(tmp_path / "other")

"""The recorded file: as numpy reads it, and the same bytes for the same samples."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from edged.errors import BadDataError
from edged.recording import npzfile

ROWS = np.random.default_rng(0).normal(size=(5, 1, 3, 2)).astype(np.float32)


def write(path: Path, arrays: dict[str, npt.NDArray[np.generic]]) -> None:
    count = len(next(iter(arrays.values())))
    with path.open("wb") as file:
        npzfile.write(file, [{name: np.asarray(a[i], a.dtype) for name, a in arrays.items()} for i in range(count)], {})


def test_numpy_reads_what_was_written(tmp_path: Path) -> None:
    """Every dtype, bit for bit, also scalars, text and arrays that lie in memory another way."""
    arrays = {
        "x": ROWS, "a/b": np.arange(5, dtype=np.int64), "t": ROWS.transpose(0, 3, 2, 1), "u": np.eye(5, dtype=np.bool_),
        "y": np.array(["walk", "run", "sit", "é", ""]), "e": np.zeros((5, 0, 2), np.float16),
    }  # fmt: skip
    write(tmp_path / "c.npz", arrays)
    with np.load(tmp_path / "c.npz", allow_pickle=False) as found:
        assert sorted(found.files) == sorted(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
            assert found[name].dtype == array.dtype
    for name, array in npzfile.read(tmp_path / "c.npz").items():
        np.testing.assert_array_equal(array, arrays[name])


def test_the_same_samples_are_the_same_bytes(tmp_path: Path) -> None:
    """No clock and no name of a temporary file gets in."""
    write(tmp_path / "a.npz", {"x": ROWS})
    write(tmp_path / "b.npz", {"x": ROWS})
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_samples_are_added_to_those_before(tmp_path: Path) -> None:
    """The earlier samples first, unchanged; names of classes grow as long as the longest, whichever it is."""
    for old, new in (("sit", "walking"), ("walking", "sit")):
        before = {"x": ROWS[:2], "y": np.array([old, old])}
        with (tmp_path / "c.npz").open("wb") as file:
            npzfile.write(file, [{"x": row, "y": np.array(new)} for row in ROWS[2:]], before)
        with np.load(tmp_path / "c.npz") as found:
            np.testing.assert_array_equal(found["x"], ROWS)
            assert found["y"].tolist() == [old] * 2 + [new] * 3


@pytest.mark.parametrize("content", [b"", b"rubbish", b"PK\x03\x04cut"])
def test_what_is_no_recording_is_not_added_to(tmp_path: Path, content: bytes) -> None:
    """A damaged file is one line; so are arrays that do not belong together, and a pipe; no file is no samples."""
    (tmp_path / "c\n.npz").write_bytes(content)
    with pytest.raises(BadDataError, match="cannot be read") as caught:
        npzfile.read(tmp_path / "c\n.npz")
    assert "\n" not in str(caught.value)
    np.savez(tmp_path / "d.npz", a=np.zeros(3), b=np.zeros(4))
    with pytest.raises(BadDataError, match="is no recording"):
        npzfile.read(tmp_path / "d.npz")
    os.mkfifo(tmp_path / "f.npz")
    with pytest.raises(BadDataError, match="is not a regular file"):
        npzfile.read(tmp_path / "f.npz")
    assert npzfile.read(tmp_path / "e.npz") == {}


def test_names_that_no_archive_can_hold_are_known() -> None:
    """What zipfile refuses to write is said before the recording."""
    for name in ("\udcff", "", "a" * 65_535, "a\0b"):
        assert "cannot be the name of an array" in npzfile.name_problem(name)
    assert npzfile.name_problem("serving_default_x:0/é") == ""
    with pytest.raises(UnicodeEncodeError), zipfile.ZipFile(io.BytesIO(), "w") as archive:
        archive.writestr("\udcff.npy", b"")

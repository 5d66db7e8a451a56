"""The recorded file: as numpy reads it, whole or not there, and the same bytes for the same samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from edged.errors import BadDataError, UsageError
from edged.recording import npzfile
from edged.recording.npzfile import Output

ROWS = np.random.default_rng(0).normal(size=(5, 1, 3, 2)).astype(np.float32)


def write(path: Path, arrays: dict[str, npt.NDArray[np.generic]], *, replace: bool = False) -> None:
    count = len(next(iter(arrays.values())))
    with Output(path, replace=replace) as output:
        output.write([{name: np.asarray(a[i], a.dtype) for name, a in arrays.items()} for i in range(count)], {})


def test_numpy_reads_what_was_written(tmp_path: Path) -> None:
    """Every dtype, bit for bit, also scalars, text and arrays that lie in memory another way; nothing else is left."""
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
    assert [path.name for path in tmp_path.iterdir()] == ["c.npz"]


def test_the_same_samples_are_the_same_bytes(tmp_path: Path) -> None:
    """No clock and no name of a temporary file gets in."""
    write(tmp_path / "a.npz", {"x": ROWS})
    write(tmp_path / "b.npz", {"x": ROWS})
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_an_output_that_will_not_do_is_known_at_the_start(tmp_path: Path) -> None:
    """A file that is there, a directory that is not, another suffix: before anything was recorded."""
    write(tmp_path / "c.npz", {"x": ROWS})
    before = (tmp_path / "c.npz").read_bytes()
    for path, says in (
        (tmp_path / "c.npz", "exists"),
        (tmp_path / "no/c.npz", "cannot be written: No such file or directory"),
        (tmp_path / "c.csv", r"must end in \.npz"),
    ):
        with pytest.raises(UsageError, match=says), Output(path, replace=False):
            pass
    assert (tmp_path / "c.npz").read_bytes() == before
    write(tmp_path / "c.npz", {"x": ROWS[:2]}, replace=True)
    assert len(npzfile.read(tmp_path / "c.npz")["x"]) == 2


def test_nothing_is_left_of_a_recording_that_failed(tmp_path: Path) -> None:
    """Whatever ends it, the directory is as it was; with replace, the old file too."""
    write(tmp_path / "c.npz", {"x": ROWS})
    before = (tmp_path / "c.npz").read_bytes()
    with pytest.raises(KeyboardInterrupt), Output(tmp_path / "c.npz", replace=True):
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["c.npz"]
    assert (tmp_path / "c.npz").read_bytes() == before


def test_a_file_that_appeared_meanwhile_costs_neither(tmp_path: Path) -> None:
    """Somebody else's file of that name is not replaced, and an hour's recording is not lost either."""
    with Output(tmp_path / "c.npz", replace=False) as output:
        (tmp_path / "c.npz").write_bytes(b"somebody's")
        with pytest.raises(BadDataError, match=r"appeared meanwhile \(the recording is in .*npz\)") as caught:
            output.write([{"x": row} for row in ROWS], {})
    assert (tmp_path / "c.npz").read_bytes() == b"somebody's"
    np.testing.assert_array_equal(npzfile.read(Path(caught.value.hint.split(" is in ")[1]))["x"], ROWS)


def test_samples_are_added_to_those_before(tmp_path: Path) -> None:
    """The earlier samples first, unchanged; names of classes grow as long as the longest."""
    first = {"x": ROWS[:2], "y": np.array(["sit", "sit"])}
    label = np.array("walking")
    with Output(tmp_path / "c.npz", replace=False) as output:
        output.write([{"x": row, "y": label} for row in ROWS[2:]], first)
    found = npzfile.read(tmp_path / "c.npz")
    np.testing.assert_array_equal(found["x"], ROWS)
    assert found["y"].tolist() == ["sit", "sit", "walking", "walking", "walking"]


@pytest.mark.parametrize("content", [b"", b"rubbish", b"PK\x03\x04cut"])
def test_what_is_no_recording_is_not_added_to(tmp_path: Path, content: bytes) -> None:
    """A damaged file is one line; so are arrays that do not belong together; no file is no samples."""
    (tmp_path / "c.npz").write_bytes(content)
    with pytest.raises(BadDataError, match="cannot be read"):
        npzfile.read(tmp_path / "c.npz")
    np.savez(tmp_path / "d.npz", a=np.zeros(3), b=np.zeros(4))
    with pytest.raises(BadDataError, match="is no recording"):
        npzfile.read(tmp_path / "d.npz")
    assert npzfile.read(tmp_path / "e.npz") == {}

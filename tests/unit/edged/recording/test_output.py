"""The file to be: one recorder at a time, whole or not there, and nothing lost that can be helped."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from edged.errors import BadDataError, EdgedError, UnavailableError, UsageError
from edged.recording import npzfile
from edged.recording.output import Output

ROWS = np.random.default_rng(0).normal(size=(6, 1, 3, 2)).astype(np.float32)


def samples(first: int = 0, end: int = 6) -> list[dict[str, Any]]:
    return [{"x": row} for row in ROWS[first:end]]


def there(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def rows(path: Path) -> Any:
    with np.load(path) as found:
        return np.array(found["x"])


def told_path(error: EdgedError) -> Path:
    found = re.search(r"(?:is|are) in (\S+\.npz)", error.hint)
    assert found is not None, error
    return Path(found[1])


def test_an_output_that_will_not_do_is_known_at_the_start(tmp_path: Path) -> None:
    """A file that is there, a directory that is not, another suffix, what is no file; nothing is left behind."""
    (tmp_path / "c.npz").write_bytes(b"old")
    (tmp_path / "d.npz").mkdir()
    os.mkfifo(tmp_path / "f.npz")
    (tmp_path / "to.npz").symlink_to("nowhere.npz")
    (tmp_path / ".p.npz.part").mkdir()
    before = there(tmp_path)
    cases: list[tuple[str, dict[str, bool], type[EdgedError], str]] = [
        ("c.npz", {}, UsageError, "exists"),
        ("no/c.npz", {}, UsageError, "cannot be written: No such file or directory"),
        ("c.csv", {}, UsageError, r"must end in \.npz"),
        ("d.npz", {"replace": True}, UsageError, "is not a regular file"),
        ("f.npz", {"replace": True}, UsageError, "is not a regular file"),
        ("f.npz", {"append": True}, BadDataError, "is not a regular file"),
        ("c.npz", {"append": True}, BadDataError, "cannot be read"),
        ("to.npz", {"append": True}, UsageError, r"is a link to \S*nowhere\.npz, which does not exist"),
        ("p.npz", {}, UsageError, "cannot be written: Is a directory"),
        (f"{'a' * 250}.npz", {}, UsageError, "cannot be written: File name too long"),
        ("a\nb.csv", {}, UsageError, "ab.csv must end"),
    ]
    for name, how, error, says in cases:
        with pytest.raises(error, match=says) as caught, Output(tmp_path / name, **how):
            pass
        assert "\n" not in str(caught.value)
    assert there(tmp_path) == before
    assert (tmp_path / "c.npz").read_bytes() == b"old"


def test_nothing_is_left_of_a_recording_that_failed(tmp_path: Path) -> None:
    """Whatever ends it, the directory is as it was; with replace, the old file too."""
    with Output(tmp_path / "c.npz") as output:
        output.write(samples())
    before = (tmp_path / "c.npz").read_bytes()
    with pytest.raises(KeyboardInterrupt), Output(tmp_path / "c.npz", replace=True):
        raise KeyboardInterrupt
    assert there(tmp_path) == ["c.npz"]
    assert (tmp_path / "c.npz").read_bytes() == before


def test_recordings_are_joined(tmp_path: Path) -> None:
    """Append adds to what stands there when it is written, and says how many those were."""
    for first, end in ((0, 2), (2, 3), (3, 6)):
        with Output(tmp_path / "c.npz", append=True) as output:
            assert output.write(samples(first, end)) == first
    np.testing.assert_array_equal(rows(tmp_path / "c.npz"), ROWS)
    assert there(tmp_path) == ["c.npz"]


def test_one_recorder_at_a_time(tmp_path: Path) -> None:
    """A second one is refused at its start, also through a link; the first one's end makes room."""
    (tmp_path / "link.npz").symlink_to("c.npz")
    with Output(tmp_path / "c.npz", append=True) as first:
        for name in ("c.npz", "../" + tmp_path.name + "/c.npz"):
            with pytest.raises(UsageError, match="is being recorded by another process"):
                Output(tmp_path / name, append=True)
        first.write(samples())
        with Output(tmp_path / "link.npz", append=True) as next_one:  # the first is done, though not yet gone
            next_one.write(samples())
    assert len(rows(tmp_path / "c.npz")) == 12
    assert there(tmp_path) == ["c.npz", "link.npz"]


def test_the_end_of_one_leaves_the_part_of_the_next(tmp_path: Path) -> None:
    """What is removed at the end is one's own: the next recorder has a part of the same name by then."""
    with Output(tmp_path / "c.npz", append=True) as first:
        first.write(samples(0, 2))
        second = Output(tmp_path / "c.npz", append=True)
    assert ".c.npz.part" in there(tmp_path)
    with second:
        assert second.write(samples(2)) == 2
    np.testing.assert_array_equal(rows(tmp_path / "c.npz"), ROWS)


def test_a_link_stays_one(tmp_path: Path) -> None:
    """What it points to is written, in its own directory."""
    (tmp_path / "far").mkdir()
    with Output(tmp_path / "far/c.npz") as output:
        output.write(samples(0, 2))
    (tmp_path / "near.npz").symlink_to("far/c.npz")
    with Output(tmp_path / "near.npz", append=True) as output:
        output.write(samples(2))
    assert (tmp_path / "near.npz").is_symlink()
    np.testing.assert_array_equal(rows(tmp_path / "far/c.npz"), ROWS)
    assert (there(tmp_path), there(tmp_path / "far")) == (["far", "near.npz"], ["c.npz"])


def test_what_a_killed_process_left_is_taken_over(tmp_path: Path) -> None:
    """Its lock went with it, so the part is nobody's; the next recorder removes it."""
    held = "import sys; from pathlib import Path; from edged.recording.output import Output\n"
    held += "output = Output(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", held, str(tmp_path / "c.npz")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(UsageError, match="is being recorded by another process"):
            Output(tmp_path / "c.npz")
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert there(tmp_path) == [".c.npz.part"]
    (tmp_path / ".c.npz.part").write_bytes(bytes(100_000))
    with Output(tmp_path / "c.npz") as output:
        output.write(samples())
    np.testing.assert_array_equal(rows(tmp_path / "c.npz"), ROWS)
    assert there(tmp_path) == ["c.npz"]


def test_a_file_that_appeared_meanwhile_costs_neither(tmp_path: Path) -> None:
    """Somebody else's file of that name is not replaced, and an hour's recording is not lost either."""
    with Output(tmp_path / "c.npz") as output:
        (tmp_path / "c.npz").write_bytes(b"somebody's")
        with pytest.raises(BadDataError, match="appeared meanwhile") as caught:
            output.write(samples())
    assert (tmp_path / "c.npz").read_bytes() == b"somebody's"
    np.testing.assert_array_equal(rows(told_path(caught.value)), ROWS)
    assert len(there(tmp_path)) == 2


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (None, "cannot be read"),
        ({"x": ROWS[:, :, :2]}, r"was changed meanwhile: it holds 'x' float32 \[1, 2, 2\]"),
        ({"x": ROWS, "y": np.zeros(6)}, "was changed meanwhile"),
    ],
)
def test_a_file_that_changed_meanwhile_costs_neither(tmp_path: Path, now: dict[str, Any] | None, says: str) -> None:
    """What no longer goes together is not mixed: the file stays, and the new samples are beside it."""
    path = tmp_path / "c.npz"
    with Output(path, append=True) as output:
        if now is None:
            path.write_bytes(b"rubbish")
        else:
            np.savez(path, **now)
        kept = path.read_bytes()
        with pytest.raises(BadDataError, match=says) as caught:
            output.write(samples())
    assert path.read_bytes() == kept
    np.testing.assert_array_equal(rows(told_path(caught.value)), ROWS)


def test_a_full_disk_costs_nothing_where_another_has_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The samples go where temporary files go; the error says where, and the part no longer fills the disk."""
    (tmp_path / "full").mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    write = npzfile.write

    def full(file: IO[bytes], what: Any, before: Any) -> None:
        if Path(f"/proc/self/fd/{file.fileno()}").readlink().parent.name == "full":
            file.write(b"1" * 100)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(file, what, before)

    monkeypatch.setattr(npzfile, "write", full)
    says = r"c\.npz: cannot be written: No space left on device \(the recording, 6 samples, is in "
    with Output(tmp_path / "full/c.npz") as output, pytest.raises(UnavailableError, match=says) as caught:
        output.write(samples())
    np.testing.assert_array_equal(rows(told_path(caught.value)), ROWS)
    assert told_path(caught.value).parent == tmp_path / "tmp"
    assert there(tmp_path / "full") == []


_LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np
from edged.errors import EdgedError
from edged.recording.output import Output
with Output(Path(sys.argv[1])) as output:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
    try:
        output.write([{"x": np.full(1000, n, np.float32)} for n in range(100)])
    except EdgedError as error:
        print(error)
"""


@pytest.mark.parametrize(("room", "kept"), [(250_000, 50), (3000, 0)])
def test_where_there_is_no_room_what_fits_is_kept(tmp_path: Path, room: int, kept: int) -> None:
    """The kernel itself refuses larger files, everywhere: the first samples are kept, and the others told as lost."""
    (tmp_path / "tmp").mkdir()
    command = [sys.executable, "-c", _LIMITED, str(tmp_path / "c.npz"), str(room)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"TMPDIR": str(tmp_path / "tmp")}
    )
    assert "c.npz: cannot be written: File too large" in done.stdout
    if not kept:
        assert "(all 100 samples are lost)" in done.stdout
        assert there(tmp_path) == ["tmp"]
        return
    found = re.search(r"the first 50 of 100 samples are in (\S+), the other 50 are lost", done.stdout)
    assert found is not None, done.stdout
    np.testing.assert_array_equal(rows(Path(found[1]))[:, 0], np.arange(50))
    assert there(tmp_path) == sorted([Path(found[1]).name, "tmp"])


def test_a_closed_standard_output_is_not_the_file(tmp_path: Path) -> None:
    """Where 0 to 2 are closed the next file opened gets such a number: what is printed would go into it."""
    script = "import os, sys\nfrom pathlib import Path\nfrom edged.recording.output import Output\n"
    script += "for number in range(3): os.close(number)\n"
    script += "output = Output(Path(sys.argv[1])); sys.exit(output._file.fileno())"
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "c.npz")], check=False)
    assert done.returncode >= 3

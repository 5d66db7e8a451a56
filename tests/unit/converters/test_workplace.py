"""The folder of one conversion: gone at its end, and that of a killed one at the next start."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import converters
from converters import workplace
from edged.errors import UnavailableError

LONG_AGO = (1e9, 1e9)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """TMPDIR for the test alone."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_is_gone_at_the_end(folder: Path) -> None:
    """After an error as well."""

    def work(place: Path) -> None:
        place.mkdir()
        assert len(list(folder.iterdir())) == 1
        raise KeyError

    with pytest.raises(KeyError), workplace.made() as place:
        work(place)
    assert list(folder.iterdir()) == []


def test_a_killed_conversion_s_folder_goes_at_the_next_start(folder: Path) -> None:
    """The process was killed with SIGKILL: nobody else holds its lock, so the next conversion removes what it left."""
    code = "import os; from converters import workplace\nwith workplace.made() as w: w.mkdir(); os.kill(os.getpid(), 9)"
    env = os.environ | {"TMPDIR": str(folder), "PYTHONPATH": str(Path(converters.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", code], env=env, check=False)
    (left,) = folder.iterdir()
    os.utime(left, LONG_AGO)
    with workplace.made():
        assert not left.exists()


def test_what_is_in_use_or_not_ours_stays(folder: Path) -> None:
    """A running conversion has its lock; a new folder may be about to be locked; one without a lock is another's."""
    used, young, other = (folder / f"edged-convert-{name}" for name in ("used", "young", "other"))
    for made in (used, young, other):
        made.mkdir()
        if made is not other:
            (made / "lock").touch()
        if made is not young:
            os.utime(made, LONG_AGO)
    with (used / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with workplace.made():
            pass
    assert sorted(folder.iterdir()) == sorted([used, young, other])


def test_a_full_tmpdir_is_named(folder: Path) -> None:
    """The line says that it is TMPDIR that has no room; other faults stay what they are."""
    with pytest.raises(UnavailableError, match=f"TMPDIR, {folder}: No space left"), workplace.made():
        raise OSError(28, "No space left on device")
    with pytest.raises(FileNotFoundError), workplace.made():
        raise FileNotFoundError

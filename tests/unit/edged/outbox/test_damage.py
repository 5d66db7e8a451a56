"""Damaged and missing files: only what was in them is lost, it is counted, and nothing is made up."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.journals import book, numbered

from edged.outbox import age, record
from edged.outbox.record import FRAME, Stamp
from edged.transports.base import Message


def _starts(path: Path) -> list[int]:
    """Return where the records of a file begin, and where the last one ends."""
    data, starts = path.read_bytes(), [0]
    while starts[-1] < len(data):
        starts.append(starts[-1] + FRAME.size + FRAME.unpack_from(data, starts[-1])[0])
    return starts


def _flip(path: Path, *places: int) -> None:
    data = bytearray(path.read_bytes())
    for at in places:
        data[at] ^= 0x41
    path.write_bytes(data)


@pytest.mark.parametrize("within", [0, 2, 3, 4, 8, 9, 16, 60, 400], ids=lambda at: f"byte {at}")
@pytest.mark.parametrize("hit", [[0], [2], [2, 3], [1, 4], [6]], ids=str)
@pytest.mark.parametrize("which", [0, -1], ids=["the oldest file", "the newest file"])
def test_damage_costs_only_the_records_it_is_in(tmp_path: Path, which: int, hit: list[int], within: int) -> None:
    """Of any byte of a record, length, checksum, number or payload: all others come, and it is counted exactly."""
    with book(tmp_path) as made:
        made.add(*numbered(*range(28)))
    path = made.files()[which]
    starts, before = _starts(path), int(path.stem, 16) - 1
    assert len(starts) == 8
    _flip(path, *(starts[one] + within for one in hit))
    with book(tmp_path) as made:
        made.add(*numbered(28))
        lost = {before + one for one in hit}
        at_end = within < 4 and which < 0 and hit == [6]  # by its length it is a torn end
        assert made.rest() == numbered(*(number for number in range(29) if number not in lost))
        assert made.counted("dropped_damaged") == (0 if at_end else len(hit))
        assert made.counted("torn") == at_end


def test_nothing_whole_is_cut_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Damage and a torn end in the newest file: only the end goes, and the log says what is true."""
    with book(tmp_path) as made:
        made.add(*numbered(0, 1, 2, 3))
    path = made.files()[0]
    starts = _starts(path)
    _flip(path, starts[1] + 100)
    path.write_bytes(path.read_bytes()[:-100])
    with book(tmp_path) as made:
        assert made.rest() == numbered(0, 2)
        assert (made.counted("torn"), made.counted("dropped_damaged")) == (1, 1)
        assert path.stat().st_size == starts[3]
    cut, lost = caplog.messages
    assert f"cut off the last {starts[4] - 100 - starts[3]} bytes: no whole record is in them" in cut
    assert "damaged: 1 answers are lost (from number 2)" in lost


def test_a_file_that_cannot_be_read_is_told_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad sector in the newest file: nobody says that no record was in it."""

    def fail(_path: Path) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with book(tmp_path) as made:
        made.add(*numbered(0))
    monkeypatch.setattr(Path, "read_bytes", fail)
    with book(tmp_path) as made:
        assert made.counted("torn") == 1
    assert "Input/output error" in caplog.messages[0]


def test_what_may_pass_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many open files at the start: it is tried again, and everything is still there."""

    def fail(_path: Path) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with book(tmp_path) as made:
        made.add(*numbered(0))
    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(OSError, match="Too many open files"), book(tmp_path):
        pass
    monkeypatch.undo()
    with book(tmp_path) as made:
        assert made.counted("torn") == 0
        assert made.journal.take() is not None


def test_a_record_within_a_payload_is_none(tmp_path: Path) -> None:
    """What is published may hold bytes of a record: damage before them does not let them out."""
    inner = record.pack(record.Record(2, Stamp(0.0, 0.0, b"a" * 16), Message("t", b"forged", 1)))
    with book(tmp_path) as made:
        made.add(b"0" + inner, b"1", b"2")
    path = made.files()[0]
    _flip(path, 60)
    with book(tmp_path) as made:
        assert made.rest() == [b"1", b"2"]


@pytest.mark.parametrize("which", [0, 1])
def test_numbers_of_files_that_are_gone_are_counted(tmp_path: Path, which: int) -> None:
    """The oldest by the cursor, one in the middle by the names of the files around it; what was sent is not."""
    with book(tmp_path) as made:
        made.add(*numbered(*range(28)))
        for _ in range(2):
            made.journal.take()
        made.journal.forget(3)
    gone, behind = made.files()[which], made.files()[which + 1]
    first, end = max(3, int(gone.stem, 16)), int(behind.stem, 16)
    gone.unlink()
    with book(tmp_path) as made:
        assert made.rest() == numbered(*range(2, first - 1), *range(end - 1, 28))
        assert made.counted("dropped_damaged") == end - first


def test_what_was_dropped_is_not_missing_at_the_next_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Files that went for the bound were counted then."""
    with book(tmp_path) as made:
        made.add(*numbered(*range(1000)))
    with book(tmp_path) as made:
        assert made.rest()[-1:] == numbered(999)
        assert made.counted("dropped_damaged") == 0
    assert not caplog.messages


def test_after_a_power_cut_an_old_cursor_counts_nothing_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Files that were done with are gone, and the cursor does not say so: nobody can know, and that is told."""
    with book(tmp_path) as made:
        old = (tmp_path / "cursor").read_bytes()
        made.add(*numbered(*range(28)))
        for _ in range(20):
            made.journal.take()
        made.journal.forget(21)
        left = int(made.files()[0].stem, 16)
    (tmp_path / "cursor").write_bytes(old)
    monkeypatch.setattr(age.Clock, "since_boot", lambda _self, _then: False)
    with book(tmp_path) as made:
        assert made.rest() == numbered(*range(left - 1, 28))
        assert made.counted("dropped_damaged") == 0
    assert f"{left - 1} answers are gone (from number 1), sent or not" in caplog.messages[0]


@pytest.mark.parametrize("more", [[], [b"x" * 4000]], ids=["the newest file", "one before it"])
def test_damage_under_a_running_writer(tmp_path: Path, more: list[bytes]) -> None:
    """Somebody empties a file of the running daemon: what was in it is lost and counted, what came after is not."""
    with book(tmp_path) as made:
        made.add(*numbered(0, 1, 2))
        made.files()[0].write_bytes(b"")
        made.add(*numbered(3, 4), *more)
        assert made.rest() == [*numbered(3, 4), *more]
        assert made.counted("dropped_damaged") == 3
        made.add(*numbered(6, 7))
        assert made.rest() == numbered(6, 7)


def test_a_length_that_is_none_costs_no_memory(tmp_path: Path) -> None:
    """One flipped bit makes a record two gigabytes long: they are not even asked for."""
    with book(tmp_path) as made:
        made.add(*numbered(*range(40)))
    path = made.files()[0]
    data = bytearray(path.read_bytes())
    data[3] ^= 0x80
    path.write_bytes(data)
    with book(tmp_path) as made:
        tracemalloc.start()
        made.rest()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1 << 20
        assert made.counted("dropped_damaged") > 0


def _fill(directory: Path) -> list[bytes]:
    payloads = numbered(*range(24), size=400)
    with book(directory) as made:
        made.add(*payloads)
        for _ in range(5):
            made.journal.take()
        made.journal.forget(4)
    return payloads


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    directory = tmp_path_factory.mktemp("filled") / "outbox"
    return directory, _fill(directory)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_no_damage_whatever_raises_or_delivers_a_wrong_record(
    filled: tuple[Path, list[bytes]], data: st.DataObject
) -> None:
    """Cut, flip, blank, delete or swap any of the files: what comes is a part of what was written, in order.

    And the journal serves on: what is appended after comes, behind it.
    """
    source, payloads = filled
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "outbox"
        shutil.copytree(source, directory)
        for _ in range(data.draw(st.integers(1, 3))):
            _damage(data, sorted(directory.iterdir()))
        with book(directory) as made:
            made.add(b"after")
            found = made.rest()
        assert found[-1] == b"after"
        positions = [payloads.index(payload) for payload in found[:-1]]
        assert positions == sorted(set(positions))


def _damage(data: st.DataObject, files: list[Path]) -> None:
    if not files:
        return
    path = data.draw(st.sampled_from(files))
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, max(0, len(content) - 1)))
    match data.draw(st.sampled_from(["cut", "flip", "blank", "delete", "swap", "grow"])):
        case "cut":
            path.write_bytes(content[:at])
        case "flip" if content:
            content[at] ^= 1 << data.draw(st.integers(0, 7))
            path.write_bytes(content)
        case "blank":
            path.write_bytes(content[:at] + bytes(len(content) - at))
        case "delete":
            path.unlink()
        case "swap":
            other = data.draw(st.sampled_from(files))
            kept = other.read_bytes()
            other.write_bytes(content)
            path.write_bytes(kept)
        case "grow":
            path.write_bytes(content + data.draw(st.binary(max_size=30)))

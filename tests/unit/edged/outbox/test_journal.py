"""Records on disk: order, bounds, age, what a restart finds. For damage see test_damage."""

from __future__ import annotations

import errno
import os
import resource
import signal
from pathlib import Path

import pytest
from support.journals import MAX_BYTES, Book, book, numbered

from edged.outbox import age, record
from edged.outbox.journal import Journal
from edged.outbox.record import Stamp
from edged.transports.counters import Counters


def test_records_come_in_order_and_once(tmp_path: Path) -> None:
    """Read behind the writer, beside it, and over many files."""
    with book(tmp_path) as made:
        made.add(*numbered(*range(30)))
        assert made.rest() == numbered(*range(30))
        made.add(*numbered(30))
        assert made.rest() == numbered(30)
        made.add(*numbered(31, 32))
        assert made.rest() == numbered(31, 32)
        assert len(made.files()) > 3


def test_a_restart_finds_what_is_not_done_with(tmp_path: Path) -> None:
    """What was taken and not forgotten comes again, in order, before what is new; no file of the rest is left."""
    with book(tmp_path) as made:
        made.add(*numbered(*range(30)))
        made.rest()
        made.journal.forget(21)
    with book(tmp_path) as made:
        made.add(*numbered(30))
        assert made.rest() == numbered(*range(20, 31))
        made.journal.forget(made.journal.end)
        made.add(*numbered(31))
        assert made.rest() == numbered(31)
    assert [path.stem for path in made.files()] == [f"{31:016x}"]  # the one that is written to


def test_a_file_done_with_is_deleted_while_it_is_written_to(tmp_path: Path) -> None:
    """As long as the broker answers, what is on disk stays small and short-lived."""
    with book(tmp_path, max_bytes=64 << 20) as made:
        for number in range(400):
            made.add(*numbered(number))
            made.rest()
            made.journal.forget(made.journal.end)
            assert made.journal.bytes < 70_000
        assert not made.journal.unsynced  # and nothing of it need be written to flash


def test_the_oldest_are_dropped_and_counted_exactly(tmp_path: Path) -> None:
    """Beyond the bound files go, oldest first; what is left is the newest without a hole, and the sum is right."""
    with book(tmp_path) as made:
        made.add(*numbered(*range(1000)))
        assert sum(path.stat().st_size for path in made.files()) == made.journal.bytes <= MAX_BYTES
        left = made.rest()
        assert left == numbered(*range(1000 - len(left), 1000))
        assert len(left) > 90
        assert made.counted("dropped_oldest") == 1000 - len(left)


def test_what_was_taken_is_not_counted_as_dropped(tmp_path: Path) -> None:
    """A record in the transport's hands will be sent, although its file goes."""
    with book(tmp_path) as made:
        made.add(*numbered(*range(5)))
        assert made.rest() == numbered(*range(5))
        made.add(*numbered(*range(5, 1000)))
        left = made.rest()
        assert made.counted("dropped_oldest") == 995 - len(left)


def test_a_lower_bound_at_the_next_start_is_kept(tmp_path: Path) -> None:
    """What is there and too much is dropped at once."""
    with book(tmp_path, max_bytes=1 << 20) as made:
        made.add(*numbered(*range(1000)))
    with book(tmp_path) as made:
        assert made.journal.bytes <= MAX_BYTES
        left = made.rest()
        assert left == numbered(*range(1000 - len(left), 1000))
        assert made.counted("dropped_oldest") == 1000 - len(left)


@pytest.mark.parametrize("rebooted", [False, True])
def test_age_survives_clock_jumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, rebooted: bool) -> None:
    """Within one start of the machine the uptime tells, whatever the wall clock does; else the wall clock."""
    now = [Stamp(0.0, 100.0, b"a" * 16)]  # 1970: there was no time yet
    monkeypatch.setattr(age.Clock, "stamp", lambda _self: now[0])
    with book(tmp_path, max_age_s=60) as made:
        made.add(b"old")
        now[0] = Stamp(50.0, 150.0, b"a" * 16)
        made.add(b"young")
        boot = b"b" * 16 if rebooted else b"a" * 16
        now[0] = Stamp(100.0, 3.0, boot) if rebooted else Stamp(1.8e9, 200.0, boot)
        assert made.rest() == [b"young"]
        assert made.counted("dropped_old") == 1


def test_a_clock_put_back_makes_nothing_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a reboot into 1970 what was written in 2030 is young."""
    now = [Stamp(1.9e9, 100.0, b"a" * 16)]
    monkeypatch.setattr(age.Clock, "stamp", lambda _self: now[0])
    with book(tmp_path, max_age_s=60) as made:
        made.add(b"x")
        now[0] = Stamp(0.0, 9_999.0, b"b" * 16)
        assert made.rest() == [b"x"]


def test_two_processes_do_not_share_it(tmp_path: Path) -> None:
    """The second one is told, and gets it once the first is gone."""
    with book(tmp_path):
        second = Journal(tmp_path, MAX_BYTES, 60, Counters())
        with pytest.raises(OSError, match="another process uses it"):
            second.open()
        assert not second.is_open
    second.open()
    second.close()


def test_a_write_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    """A file that may not grow (as a full disk): an OSError, and the next record stands where this one would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with book(tmp_path) as made:
        made.add(*numbered(0))
        size = made.files()[0].stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, hard))
        try:
            with pytest.raises(OSError, match=r"No space left|File too large"):
                made.add(*numbered(1))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, before)
        assert made.files()[0].stat().st_size == size
        made.add(*numbered(2))
        assert made.rest() == numbered(0, 2)


def test_the_cursor_has_its_room_from_the_start(tmp_path: Path) -> None:
    """A disk that is full at the first acknowledgement cannot refuse it: it is there, and written over."""
    with book(tmp_path):
        assert (tmp_path / "cursor").read_bytes() == record.pack_cursor(1)


@pytest.mark.parametrize("waiting", [False, True])
def test_without_room_for_a_cursor_only_what_waits_is_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, waiting: bool
) -> None:
    """A new outbox on a full disk is none; one whose answers wait sends them, which makes room."""
    if waiting:
        with book(tmp_path) as made:
            made.add(*numbered(0))
        (tmp_path / "cursor").unlink()

    def full(*_args: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        if waiting:
            with book(tmp_path) as made:
                assert made.rest() == numbered(0)
                assert made.counted("write_errors") == 1
        else:
            with pytest.raises(OSError, match="No space left"):
                Book(tmp_path)
    with book(tmp_path) as made:  # nobody holds its lock any more
        assert made.rest() == numbered(*([0] if waiting else []))


def test_a_file_without_a_whole_record_is_begun_anew(tmp_path: Path) -> None:
    """Its number is used again, and what is forgotten of the old one takes nothing of the new one with it."""
    with book(tmp_path) as made:
        made.add(*numbered(*range(10)))
    last = made.files()[-1]
    last.write_bytes(b"abc")
    before = int(last.stem, 16)
    with book(tmp_path) as made:
        made.add(*numbered(10, 11))
        made.rest()
        made.journal.forget(before + 1)
    with book(tmp_path) as made:
        assert made.rest() == numbered(11)


@pytest.mark.parametrize("cut", [1, 7, 8, 60, 300])
def test_a_torn_end_is_cut_off_and_counted(tmp_path: Path, cut: int) -> None:
    """A kill in the middle of a write: the record was never sent, so nobody misses it; the others are whole."""
    with book(tmp_path) as made:
        made.add(*numbered(0, 1, 2))
    path = made.files()[0]
    path.write_bytes(path.read_bytes()[:-cut])
    with book(tmp_path) as made:
        made.add(*numbered(3))
        assert made.rest() == numbered(0, 1, 3)
        assert made.counted("torn") == 1


def test_what_is_not_its_own_is_left_alone(tmp_path: Path) -> None:
    """Other files, directories and names that are no number of a record."""
    (tmp_path / "0000000000000001.log").mkdir()
    (tmp_path / "0000000000000000.log").write_text("x")
    (tmp_path / "ffffffffffffffff.log").write_text("x")
    (tmp_path / "notes.txt").write_text("x")
    with book(tmp_path) as made:
        with pytest.raises(IsADirectoryError):
            made.add(b"x")
        (tmp_path / "0000000000000001.log").rmdir()
        made.add(b"x")
        assert made.rest() == [b"x"]
    assert (tmp_path / "ffffffffffffffff.log").exists()

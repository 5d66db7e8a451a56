"""Records on disk: order, bounds, age, what a restart finds, and any damage whatever."""

from __future__ import annotations

import contextlib
import resource
import shutil
import signal
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.outbox import age
from edged.outbox.journal import Journal
from edged.outbox.record import Stamp
from edged.transports.base import Message
from edged.transports.counters import Counters

MAX_BYTES = 64 << 10  # sixteen files of 4 KiB


class Book:
    """A journal with its counters, and the names of its files."""

    def __init__(self, directory: Path, max_bytes: int = MAX_BYTES, max_age_s: float = 3600) -> None:
        self.directory, self.counters = directory, Counters()
        self.journal = Journal(directory, max_bytes, max_age_s, self.counters)
        self.journal.open()

    def add(self, *payloads: bytes) -> None:
        for payload in payloads:
            self.journal.append(Message("t", payload, 1))

    def rest(self) -> list[bytes]:
        found = []
        while (taken := self.journal.take()) is not None:
            found.append(bytes(taken.message.payload))
        return found

    def counted(self, name: str) -> int:
        return self.counters.snapshot().get(name, 0)

    def files(self) -> list[Path]:
        return sorted(self.directory.glob("*.log"))


@contextlib.contextmanager
def book(directory: Path, **bounds: int) -> Iterator[Book]:
    made = Book(directory, **bounds)
    try:
        yield made
    finally:
        made.journal.close()


def numbered(*numbers: int, size: int = 500) -> list[bytes]:
    return [b"%06d" % number + b"." * (size - 6) for number in numbers]


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


def test_damage_costs_the_rest_of_one_file(tmp_path: Path) -> None:
    """A flipped bit in an old file: what stands before it and in other files comes, the rest is counted exactly."""
    with book(tmp_path) as made:
        made.add(*numbered(*range(40)))
    first, second = made.files()[0], made.files()[1]
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    with book(tmp_path) as made:
        left = made.rest()
        lost = made.counted("dropped_damaged")
        assert 0 < lost < 8
        whole = int(second.stem, 16) - 1
        assert left == numbered(*range(whole - lost), *range(whole, 40))


@pytest.mark.parametrize("more", [[], [b"x" * 4000]], ids=["the newest file", "one before it"])
def test_damage_under_a_running_writer(tmp_path: Path, more: list[bytes]) -> None:
    """Somebody empties a file of the running daemon: what was in it is lost and counted, what comes next is not."""
    with book(tmp_path) as made:
        made.add(*numbered(0, 1, 2))
        made.files()[0].write_bytes(b"")
        made.add(*numbered(3, 4), *more)
        assert made.rest() == more
        assert made.counted("dropped_damaged") == 5
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

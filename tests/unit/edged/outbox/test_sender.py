"""The outbox's thread, before a transport that takes, refuses and acknowledges as it is told."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.brokers import eventually

from edged.clock import NS_PER_S, now_ns
from edged.config import OutboxConfig
from edged.outbox import Outbox, record, sender
from edged.request import OnSent
from edged.transports.base import Message, OnDone, Subscription
from edged.transports.loopback import LoopbackBus, LoopbackTransport

TOPIC = "edged/v1/dev/box/out/imu"


class Wire:
    """A transport's outgoing half. `taken` are what it took; `acknowledge` tells the oldest ones done."""

    name = "wire"

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.tries = 0
        self.takes = True
        self.refuses: Callable[[Message], bool] = lambda _message: False
        self.marks: list[OnSent | None] = []
        self.qos: set[int] = set()
        self._done: list[OnDone] = []
        self.refused: list[OnDone | None] = []
        self._lock = threading.Lock()

    def publish(self, message: Message, on_sent: OnSent | None = None, on_done: OnDone | None = None) -> bool:
        with self._lock:
            self.tries += 1
            if not self.takes or self.refuses(message):
                return False
            assert on_done is not None
            self.taken.append(bytes(message.payload))
            self.marks.append(on_sent)
            self.qos.add(message.qos)
            self._done.append(on_done)
            self.refused.append(message.on_refused)
            return True

    def acknowledge(self, count: int = 1_000_000) -> None:
        with self._lock:
            done, self._done = self._done[:count], self._done[count:]
        for one in done:
            one()

    def refusal(self, message: Message) -> str:
        return "too large" if self.refuses(message) else ""

    def stats(self) -> dict[str, int]:
        return {"connected": int(self.takes)}


class Post:
    """An outbox on a wire. It is ended in order."""

    def __init__(self, directory: Path, wire: Wire | None = None, **bounds: float) -> None:
        self.wire = wire or Wire()
        self.troubles: list[str] = []
        config = OutboxConfig(**bounds)  # type: ignore[arg-type]
        self.box = Outbox(directory / "outbox", config, self.wire, lambda: self.troubles.append(self.box.trouble))  # type: ignore[arg-type]
        self.box.start()

    def send(self, *numbers: int, on_sent: OnSent | None = None) -> list[bool]:
        return [self.box.publish(Message(TOPIC, payload(number), 1), on_sent) for number in numbers]

    def count(self, name: str) -> object:
        return self.box.stats()[name]

    def all_taken(self, *numbers: int) -> None:
        """Acknowledge until everything was taken, in this order and once."""

        def taken() -> bool:
            self.wire.acknowledge()
            return len(self.wire.taken) >= len(numbers) and not self.box.load()["waiting"]

        eventually(taken, f"all is taken: {self.box.stats()}")
        assert self.wire.taken == [payload(number) for number in numbers]

    def end(self) -> None:
        self.box.stop(0.2)
        self.box.close(5)


def payload(number: int) -> bytes:
    return b"%06d" % number + b"." * 494


@contextlib.contextmanager
def post(directory: Path, wire: Wire | None = None, **bounds: float) -> Iterator[Post]:
    made = Post(directory, wire, **bounds)
    try:
        yield made
    finally:
        made.end()


def test_answers_go_out_in_order_once_and_leave_nothing(tmp_path: Path) -> None:
    """Every answer once, at QoS 1, in order; when all are acknowledged nothing waits and all are counted."""
    with post(tmp_path) as made:
        assert all(made.send(*range(300)))
        made.all_taken(*range(300))
        assert made.wire.qos == {1}
        assert (made.count("stored"), made.count("finished"), made.count("waiting")) == (300, 300, 0)


def test_no_more_than_a_window_is_in_the_transports_hands(tmp_path: Path) -> None:
    """The backlog does not move into the transport's queue; each acknowledgement lets one more out."""
    with post(tmp_path) as made:
        made.send(*range(100))
        eventually(lambda: made.count("stored") == 100, "all are on disk")
        assert len(made.wire.taken) == sender.WINDOW
        made.wire.acknowledge(3)
        eventually(lambda: len(made.wire.taken) == sender.WINDOW + 3, "three more")
        assert made.count("waiting") == 97


def test_large_answers_go_a_few_at_a_time(tmp_path: Path) -> None:
    """The window is one of bytes as well: a slow line is not filled for seconds."""
    with post(tmp_path) as made:
        for _ in range(5):
            made.box.publish(Message(TOPIC, bytes(40_000), 1))
        eventually(lambda: made.count("stored") == 5, "all are on disk")
        assert len(made.wire.taken) == 2  # the second began below 64 KiB


def test_what_the_broker_did_not_take_is_not_finished(tmp_path: Path) -> None:
    """It is counted as refused; the others are, and nothing waits."""
    with post(tmp_path) as made:
        made.send(0, 1, 2)
        eventually(lambda: len(made.wire.taken) == 3, "all are with the transport")
        tell = made.wire.refused[1]
        assert tell is not None
        tell()
        made.wire.acknowledge()
        eventually(lambda: made.count("waiting") == 0, "nothing waits")
        assert (made.count("finished"), made.count("dropped_refused")) == (2, 1)


def test_it_is_on_disk_before_it_is_sent(tmp_path: Path) -> None:
    """When the transport gets an answer its record can be read from the file."""
    seen = []

    class Looking(Wire):
        def publish(self, message: Message, on_sent: OnSent | None = None, on_done: OnDone | None = None) -> bool:
            files = b"".join(path.read_bytes() for path in (tmp_path / "outbox").glob("*.log"))
            seen.append(bytes(message.payload) in files)
            return super().publish(message, on_sent, on_done)

    with post(tmp_path, Looking()) as made:
        made.send(*range(5))
        made.all_taken(*range(5))
    assert seen == [True] * 5


def test_what_was_not_acknowledged_is_sent_again_at_the_next_start(tmp_path: Path) -> None:
    """Before what is new, in order, from the first one that was not acknowledged."""
    with post(tmp_path) as made:
        made.send(*range(30))
        eventually(lambda: len(made.wire.taken) == sender.WINDOW, "the first ones")
        made.wire.acknowledge(4)
        eventually(lambda: made.count("finished") == 4, "four are done with")
    with post(tmp_path) as made:
        eventually(lambda: made.count("waiting") == 26, "they are found")
        made.send(30)
        made.all_taken(*range(4, 31))


def test_acknowledgements_out_of_turn_forget_nothing(tmp_path: Path) -> None:
    """A later answer that is done does not let an earlier one be forgotten."""
    with post(tmp_path) as made:
        made.send(0, 1, 2)
        eventually(lambda: len(made.wire.taken) == 3, "all are sent")
        made.wire._done.reverse()
        made.wire.acknowledge(2)
        eventually(lambda: made.count("finished") == 2, "two are done with")
    with post(tmp_path) as made:
        made.all_taken(0, 1, 2)


def test_a_full_transport_is_tried_again_and_keeps_the_order(tmp_path: Path) -> None:
    """Refused for now: nothing is lost, nothing overtakes, and it is not tried without pause."""
    with post(tmp_path) as made:
        made.wire.takes = False
        made.send(*range(20))
        eventually(lambda: made.count("stored") == 20, "all are on disk")
        assert made.wire.tries < 5
        made.wire.takes = True
        made.all_taken(*range(20))


def test_what_can_never_be_sent_is_given_up_and_counted(tmp_path: Path) -> None:
    """One answer that the broker takes in no case does not hold up those behind it."""
    wire = Wire()
    wire.refuses = lambda message: bytes(message.payload[:6]) == b"000001"
    with post(tmp_path, wire) as made:
        made.send(0, 1, 2)
        made.all_taken(0, 2)
        assert made.count("dropped_refused") == 1
    with post(tmp_path, Wire()) as made:
        made.send(3)
        made.all_taken(3)


def test_the_mark_is_passed_on_when_the_answer_goes_at_once(tmp_path: Path) -> None:
    """The latency of an answer is recorded when it is sent as it comes; not an hour later."""
    mark: OnSent = lambda _ns: None  # noqa: E731
    with post(tmp_path) as made:
        for number in range(3):
            made.send(number, on_sent=mark)
            eventually(lambda: len(made.wire.taken) == number + 1, "it is sent")  # noqa: B023
        assert made.wire.marks == [mark] * 3
        made.wire.takes = False
        made.send(3, 4, 5, on_sent=mark)
        eventually(lambda: made.count("stored") == 6, "all are on disk")
        made.wire.takes = True
        made.all_taken(*range(6))
        assert made.wire.marks[4] is None


def test_what_is_too_old_is_not_sent(tmp_path: Path) -> None:
    """Counted, and its file goes as well."""
    with post(tmp_path, max_age_s=0.01) as made:
        made.wire.takes = False
        made.send(*range(200))
        eventually(lambda: made.count("stored") == 200, "all are on disk")
        made.wire.takes = True
        eventually(lambda: made.wire.acknowledge() or not made.count("waiting"), "nothing waits")
        assert made.count("dropped_old") == 200 - len(made.wire.taken)
        assert len(made.wire.taken) <= 2
        eventually(lambda: int(str(made.count("bytes"))) < 70_000, "the files are gone")


def test_old_answers_of_an_earlier_start_leave_the_disk(tmp_path: Path) -> None:
    """None of them is sent, so nothing is acknowledged: their files go all the same."""
    with post(tmp_path) as made:
        made.wire.takes = False
        made.send(*range(200))
        eventually(lambda: made.count("stored") == 200, "all are on disk")
    with post(tmp_path, max_age_s=0.000_001) as made:
        eventually(lambda: made.count("dropped_old") == 200, "all are too old")
        eventually(lambda: made.count("bytes") == 0, "the files are gone")
        assert made.wire.taken == []


def test_a_directory_that_cannot_be_used(tmp_path: Path) -> None:
    """A file in its place: answers are sent all the same, counted and told; when it is mended they are kept again."""
    (tmp_path / "outbox").write_text("in the way")
    with post(tmp_path) as made:
        made.send(0, 1)
        eventually(lambda: len(made.wire.taken) == 2, "they are sent")
        made.wire.acknowledge()
        eventually(lambda: not made.count("waiting"), "they are done with")
        assert made.troubles == ["File exists"]
        assert (made.count("unstored"), made.count("stored"), made.count("finished")) == (2, 0, 2)
        (tmp_path / "outbox").unlink()
        made.send(2)
        made.all_taken(0, 1, 2)
        eventually(lambda: made.troubles == ["File exists", ""], "the trouble is over")


def test_nothing_to_write_says_nothing_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills up after the start: the trouble is told until an answer is on disk again, not while none comes."""
    monkeypatch.setattr(sender, "_DISK_RETRY_NS", 0)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with post(tmp_path) as made:
        made.send(0)
        made.all_taken(0)
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", full)
            for number in range(1, 4):
                made.send(number)
                made.all_taken(*range(number + 1))
            assert made.troubles == ["No space left on device"]
        made.send(4)
        made.all_taken(*range(5))
        eventually(lambda: made.troubles == ["No space left on device", ""], "the trouble is over")


@pytest.mark.parametrize("online", [True, False])
def test_an_answer_of_which_no_record_can_be_made_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, online: bool
) -> None:
    """It is counted and logged, those before and behind it go on, to the disk as well."""
    pack = record.pack

    def failing(made: record.Record) -> bytes:
        if made.message.payload == payload(1):
            raise RecursionError("no record")
        return pack(made)

    monkeypatch.setattr(record, "pack", failing)
    with post(tmp_path) as made:
        made.wire.takes = online
        made.send(*range(20))
        eventually(lambda: made.count("stored") == 19, "the others are on disk")
        assert made.count("errors") == 1
        made.wire.takes = True
        made.all_taken(0, *range(2, 20))
        assert made.troubles == []


def test_an_answer_that_the_transport_fails_on_keeps_no_place(tmp_path: Path) -> None:
    """However many there are: the others are sent, and the disk forgets them all."""

    class Failing(Wire):
        def publish(self, message: Message, on_sent: OnSent | None = None, on_done: OnDone | None = None) -> bool:
            if int(message.payload[:6]) % 2:
                raise RecursionError("not this one")
            return super().publish(message, on_sent, on_done)

    count = 4 * sender.WINDOW
    with post(tmp_path, Failing()) as made:
        made.send(*range(count))
        made.all_taken(*range(0, count, 2))
        assert made.count("errors") == count // 2
    with post(tmp_path) as again:
        assert again.count("waiting") == 0


def test_memory_is_bounded_while_the_disk_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No disk, no broker: what is more than memory may hold is refused and counted, what was taken goes in order."""
    monkeypatch.setattr(sender, "HANDOVER_BYTES", 50 * 1524)
    (tmp_path / "outbox").write_text("in the way")
    with post(tmp_path) as made:
        begun_ns, made.wire.takes = now_ns(), False
        taken = made.send(*range(200))
        held = taken.count(True)
        assert 50 <= held <= 51  # one may be in hand
        assert made.count("dropped_handover") == 200 - held
        made.wire.takes = True
        made.all_taken(*(number for number in range(200) if taken[number]))
        seconds = (now_ns() - begun_ns) / NS_PER_S
        assert int(str(made.count("write_errors"))) <= seconds + 1  # the disk is not tried for each answer


def test_what_memory_held_at_the_end_is_counted(tmp_path: Path) -> None:
    """A stop with no disk and no broker: lost, and said so."""
    (tmp_path / "outbox").write_text("in the way")
    made = Post(tmp_path)
    made.wire.takes = False
    made.send(0, 1, 2)
    made.end()
    assert made.count("dropped_unwritten") == 3
    assert made.send(3) == [False]


def test_a_disk_that_hangs_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a write does not return, whoever publishes goes on; all is sent when it does."""
    stuck, go_on, write = threading.Event(), threading.Event(), os.pwrite

    def hanging(fd: int, data: memoryview, at: int) -> int:
        stuck.set()
        go_on.wait(20)
        return write(fd, data, at)

    monkeypatch.setattr(os, "pwrite", hanging)
    with post(tmp_path) as made:
        made.send(0)
        assert stuck.wait(10)
        assert all(made.send(*range(1, 100)))
        assert made.count("waiting") == 100
        go_on.set()
        made.all_taken(*range(100))


def test_an_answer_larger_than_the_outbox_is_refused(tmp_path: Path) -> None:
    """It could never be kept; whoever publishes hears of it."""
    with post(tmp_path, max_bytes=65_536) as made:
        assert not made.box.publish(Message(TOPIC, bytes(70_000), 1))
        assert made.count("dropped_handover") == 1


def test_a_stop_lets_what_waits_go_when_there_is_a_connection(tmp_path: Path) -> None:
    """More than a window waits at the stop: it is sent within the time, and nothing is left."""
    made = Post(tmp_path)
    made.send(*range(50))
    acknowledging = threading.Event()

    def acknowledge() -> None:
        while not acknowledging.wait(0.002):
            made.wire.acknowledge()

    helper = threading.Thread(target=acknowledge)
    helper.start()
    made.box.stop(5)
    made.box.close(5)
    acknowledging.set()
    helper.join()
    assert made.wire.taken == [payload(number) for number in range(50)]
    assert made.count("waiting") == 0


def test_beside_a_loopback_transport(tmp_path: Path) -> None:
    """A transport that says "done" inside `publish`: nothing waits for itself, the subscriber hears all in order."""
    bus = LoopbackBus()
    out, ear = LoopbackTransport(bus), LoopbackTransport(bus)
    heard: list[bytes] = []
    ear.start(lambda message: heard.append(bytes(message.payload)), [Subscription(TOPIC, 1)])
    box = Outbox(tmp_path / "outbox", OutboxConfig(), out, lambda: None)
    box.start()  # before the transport: the first ones must wait
    assert all(box.publish(Message(TOPIC, payload(number), 1)) for number in range(50))
    out.start(lambda _message: None, [])
    assert all(box.publish(Message(TOPIC, payload(number), 1)) for number in range(50, 100))
    eventually(lambda: len(heard) == 100, "all are heard")
    assert heard == [payload(number) for number in range(100)]
    box.stop(1)
    out.stop()
    box.close(5)
    ear.stop()

"""Local producers that die, hang or mean harm, and a daemon that does: a real one, in a process of its own."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import require, tinymodel
from support.brokers import eventually
from support.localbox import LocalBox
from support.memory import rss_kib
from support.rawproducer import RawProducer

from edged import LocalProducer
from edged.errors import Code, RequestError

X = np.array([[0.5, -1.25, 3.0]], np.float32)
Y = tinymodel.dense_expected(X)

# Asks as fast as it can, never waits, and writes into slots all the time.
_WRITER = """
import sys
from edged import LocalProducer, RequestError
with LocalProducer(sys.argv[1], model=sys.argv[2]) as producer:
    producer.connect()
    print("on", flush=True)
    while True:
        try:
            with producer.slot() as slot:
                slot.array[:] = 7
                slot.send(int(sys.argv[3]), deadline_ms=60_000)
        except RequestError:
            pass
"""


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require.any_runtime()
    return tinymodel.write_slow_bundle(tmp_path_factory.mktemp("slow") / "slow", 300, 4)


@pytest.fixture
def box(slow: Path) -> Iterator[LocalBox]:
    with LocalBox({"slow": slow}, slots=2, slot_bytes="1MiB", max_producers=4) as box:
        yield box


@pytest.fixture
def good(box: LocalBox) -> Iterator[LocalProducer]:
    """A producer who asks each model once, so that the daemon is ready."""
    with LocalProducer(box.socket, model="dense") as producer:
        producer.infer(np.ones(1, np.float32), model="slow", deadline_ms=60_000)
        asked(producer, 60_000)
        yield producer


def asked(producer: LocalProducer, deadline_ms: int = 20_000) -> None:
    """It answers, and rightly."""
    result = producer.infer(X, deadline_ms=deadline_ms)
    np.testing.assert_allclose(result.outputs["y"], Y, rtol=1e-6)


def used(box: LocalBox) -> tuple[int, int, int]:
    """Descriptors, threads and mappings of producers' memory that the daemon has."""
    proc = Path(f"/proc/{box.process.pid}")
    maps = (proc / "maps").read_text().count("memfd:edged-local")
    return len(list((proc / "fd").iterdir())), len(list((proc / "task").iterdir())), maps


def entered(box: LocalBox) -> RawProducer:
    """A producer that was let in: the daemon may take a moment to notice that others have left."""
    producer = RawProducer(box.socket)
    while producer.memory is None:
        producer.close()
        time.sleep(0.01)
        producer = RawProducer(box.socket)
    return producer


def test_500_producers_come_and_go(box: LocalBox, good: LocalProducer) -> None:
    """Requests are under way whose answers nobody will hear: no descriptor, thread or memory stays."""

    def come_and_go(number: int) -> None:
        with entered(box) as producer:
            producer.send(0, X.tobytes(), model="dense")
            if number % 3 == 0:
                producer.reply()
            if number % 3 == 1:
                producer.send(1, b"\x00" * 4, model="slow")

    for number in range(50):
        come_and_go(number)
    eventually(lambda: used(box)[2] == 1, "only the good one's memory is left")
    before, rss = used(box), rss_kib(box.process.pid)
    for number in range(500):
        come_and_go(number)
    eventually(lambda: used(box) == before, f"as before: {before}", 30)
    asked(good)
    assert rss_kib(box.process.pid) - rss < 2048


def test_who_asks_and_hangs_up_keeps_no_memory(box: LocalBox, good: LocalProducer) -> None:
    """Long deadlines, a busy model, again and again: never more memory than agreed, and soon room for others."""
    before, most = used(box), 0
    for _ in range(60):
        with entered(box) as producer:
            for slot in range(2):
                producer.send(slot, b"\x00" * 4, model="slow", deadline_ms=600_000)
            most = max(most, used(box)[2])
    assert most <= 4
    eventually(lambda: used(box) == before, f"as before: {before}", 30)
    asked(good)


def test_writers_killed_in_the_middle(box: LocalBox, good: LocalProducer) -> None:
    """SIGKILL while slots are being written and the model is busy with others; the good one is answered throughout."""
    before = used(box)
    for turn in range(4):
        model, size = (("slow", "4"), ("dense", "12"))[turn % 2]
        command = [sys.executable, "-c", _WRITER, str(box.socket), model, size]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"on\n"
            time.sleep(random.random() * 0.1)
            asked(good)
            writer.kill()
        asked(good)
    eventually(lambda: used(box) == before, f"as before: {before}", 30)


def states(box: LocalBox) -> set[str]:
    """The states of its threads, as proc(5) names them."""
    tasks = Path(f"/proc/{box.process.pid}/task").iterdir()
    return {(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks}


def halt(box: LocalBox) -> None:
    """SIGSTOP."""
    os.kill(box.process.pid, signal.SIGSTOP)
    eventually(lambda: states(box) == {"T"}, "all its threads are stopped")


def hostile(box: LocalBox, stop: threading.Event) -> None:
    """Break a rule, be sent off, come again; or ask and never read; or change what is being read."""
    while not stop.is_set():
        with contextlib.suppress(OSError, AssertionError), RawProducer(box.socket, 1) as producer:
            attack(producer, random.randrange(4))


def attack(producer: RawProducer, how: int) -> None:
    for number in range(20):
        producer.send(number % 2, X.tobytes(), model="dense", content_type=["", "application/x-npy"][how % 2])
        producer.write(number % 2, random.randbytes(4000))
        if how == 0:
            producer.socket.send(random.randbytes(random.randrange(1, 2000)))
        if how == 1:
            producer.announce(random.randrange(2**32), random.randrange(2**64), model="slow")
        if how == 2:
            time.sleep(0.02)  # reads nothing
        if how == 3:
            producer.reply()


def test_hostile_producers_harm_themselves(box: LocalBox, good: LocalProducer) -> None:
    """Two of them for a while: every answer of the good one is right, and the daemon's memory stays where it was."""
    stop = threading.Event()
    threads = [threading.Thread(target=hostile, args=(box, stop)) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(50):
            asked(good)
        rss = rss_kib(box.process.pid)
        for _ in range(300):
            asked(good)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert rss_kib(box.process.pid) - rss < 6144  # two producers' memory of 2 MiB each may be there or not
    assert "Traceback" not in box.log.read_text()
    assert good.stats()["interrupted"] == 0


def test_a_killed_daemon_comes_back(box: LocalBox, good: LocalProducer) -> None:
    """SIGKILL in the middle of requests: each ends, UNAVAILABLE; the next one replaces the file it left, and serves."""
    halt(box)  # so that nothing is answered before
    futures = [good.submit(X, deadline_ms=60_000) for _ in range(2)]
    box.kill()
    errors = [future.exception(20) for future in futures]
    assert [(e.code, e.retryable) for e in errors if isinstance(e, RequestError)] == [(Code.UNAVAILABLE, True)] * 2
    assert box.socket.exists()
    box.restart()
    asked(good, 60_000)
    assert good.stats()["connects"] == 2


def test_an_orderly_stop_answers_what_was_admitted(box: LocalBox, good: LocalProducer) -> None:
    """SIGTERM: every admitted request is answered, the socket's file is gone."""
    futures = [good.submit(np.ones(1, np.float32), model="slow", deadline_ms=60_000) for _ in range(2)]
    eventually(lambda: good.stats()["sent"] == 4, "both are announced")
    asked_first = good.submit(X, deadline_ms=60_000)
    assert asked_first.result(30).outputs
    assert box.stop() == 0
    assert all(future.result(10).outputs for future in futures)
    assert not box.socket.exists()


def test_a_second_daemon_does_not_take_the_socket(box: LocalBox, good: LocalProducer) -> None:
    """It says why it does not start, and the first goes on."""
    second = box.spawn()
    assert second.wait(30) != 0
    assert "another process listens at" in box.log.read_text()
    asked(good)
    assert good.stats()["connects"] == 1


def test_a_stopped_daemon_keeps_nobody_waiting(box: LocalBox, good: LocalProducer) -> None:
    """SIGSTOP: deadlines pass here, slots run out, in words; SIGCONT: all is well, the late answers are counted."""
    halt(box)
    try:
        codes = []
        for _ in range(4):
            with pytest.raises(RequestError) as caught:
                good.infer(X, deadline_ms=100)
            codes.append(caught.value.code)
        assert codes == [Code.DEADLINE_EXCEEDED] * 2 + [Code.RESOURCE_EXHAUSTED] * 2
    finally:
        os.kill(box.process.pid, signal.SIGCONT)
    asked(good)
    eventually(lambda: good.stats()["late"] == 2, "two late answers")

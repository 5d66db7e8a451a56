"""The producer's side, against the real transport and a daemon that is a function: every request ends in one way."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.brokers import eventually
from support.shmbox import Box

from edged.client import local_payload, payloads
from edged.client.local import LocalProducer
from edged.client.local_link import Link
from edged.client.local_payload import Payload
from edged.client.local_session import Session
from edged.errors import BadDataError, Code, RequestError, UnavailableError, UsageError
from edged.transports import shm_memory, shm_wire
from edged.transports.base import Message
from edged.transports.shm_memory import SlotMemory

X = np.arange(12, dtype=np.float32).reshape(1, 3, 4)


@pytest.fixture
def box(box: Box) -> Box:
    """It answers each request with the payload it got, unless told otherwise."""
    box.hook = lambda message: echo(box, message)
    return box


@pytest.fixture
def producer(box: Box) -> Iterator[LocalProducer]:
    with LocalProducer(box.path, model="m") as producer:
        yield producer


def echo(box: Box, message: Message) -> None:
    meta = "v=7;path=local;o=y:float32:1x3x4"
    reply = Message(
        message.response_topic or "", bytes(message.payload), content_type=message.content_type,
        user=(("status", "ok"), ("meta", meta)),
    )  # fmt: skip
    box.transport.publish(reply)


def keep(_message: Message) -> None:
    """Answer nothing yet."""


def fails(code: Code, what: str, call: Any) -> None:
    with pytest.raises(RequestError, match=what) as caught:
        call()
    assert caught.value.code is code


def test_an_answer_is_a_result(producer: LocalProducer) -> None:
    """As of `Client.infer`: arrays by name, meta, payload, a round trip."""
    result = producer.infer(X, codec="raw")
    np.testing.assert_array_equal(result.outputs["y"], X)
    assert (result.codec, result.meta.version, result.resends) == ("raw", 7, 0)
    assert (result.payload, result.round_trip_ms > 0) == (X.tobytes(), True)


@pytest.mark.parametrize("codec", [None, "npy", "json", "raw"])
def test_every_codec_says_which_it_is(box: Box, producer: LocalProducer, codec: str | None) -> None:
    """Content type and payload as the device reads them; numpy and json are the judges."""
    producer.infer(X, codec=codec)
    (message,) = box.messages
    payload = bytes(message.payload)
    if codec == "json":
        assert (message.content_type, json.loads(payload)) == ("application/json", {"inputs": X.tolist()})
    elif codec == "raw":
        assert (message.content_type, payload) == (None, X.tobytes())
    else:
        assert message.content_type == "application/x-npy"
        np.testing.assert_array_equal(np.load(io.BytesIO(payload)), X)


@pytest.mark.parametrize("shape", [(), (1,), (3, 0), (1, 224, 224, 3), (2,) * 12])
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "|u1", "|b1", "<i8"])
def test_an_array_lies_in_a_slot_as_numpy_would_save_it(shape: tuple[int, ...], dtype: str) -> None:
    """Byte for byte; big-endian numbers as little-endian ones, whatever the strides."""
    array = np.ones(shape, dtype)
    for given in (array, np.asfortranarray(array)):
        laid = local_payload.lay_out(given, "npy")
        into = bytearray(laid.size + 10)
        laid.write(memoryview(into))
        saved = io.BytesIO()
        np.save(saved, np.ascontiguousarray(given).reshape(given.shape).astype(array.dtype.newbyteorder("<")))
        assert bytes(into) == saved.getvalue() + bytes(10)


def test_several_arrays_go_in_order_or_by_name() -> None:
    """Raw and npy one after another; the default for several carries names."""
    pair = {"a": X, "b": X[0] + 1}
    laid = local_payload.lay_out(pair, "raw")
    into = bytearray(laid.size)
    laid.write(memoryview(into))
    assert bytes(into) == X.tobytes() + (X[0] + 1).tobytes()
    assert local_payload.lay_out(pair, None).codec in ("cbor", "json")


VIEWS = [
    memoryview(np.arange(24, dtype=np.float32))[::2],
    memoryview(np.asfortranarray(X[0])),
    memoryview(b""),
    memoryview(np.zeros((0, 3), np.float32)),
    memoryview(X[:, ::-1]),
    memoryview(np.arange(4, dtype=">f4")),
    memoryview(np.arange(4, dtype=np.complex64)),
    memoryview(X),
]


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: f"{view.format}{view.shape}")
def test_a_view_goes_as_the_bytes_of_its_elements(producer: LocalProducer, view: memoryview) -> None:
    """Strided, Fortran, empty, of any format: in C order, as over the broker."""
    assert producer.infer(view).payload == bytes(view) == payloads.encode(view, None).payload


def test_objects_are_no_payload(producer: LocalProducer) -> None:
    """Their bytes would be addresses."""
    with pytest.raises(BadDataError, match="objects"):
        producer.infer(memoryview(np.array([object()])))


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((1 << 62, 4), "uint8"), ((1 << 32, 1 << 32), "uint8"), ((-1,), "uint8"), ((-5, -5), "uint8"), ((4,), "O"),
        ((4,), "S0"), ((0, 1 << 63), "uint8"), ((1,) * 65, "uint8"), ((25_001,), "float32"), ((1 << 80,), "uint8"),
    ],
    ids=str,
)  # fmt: skip
def test_what_no_slot_can_hold(producer: LocalProducer, shape: tuple[int, ...], dtype: str) -> None:
    """An error in the words of the client, and the slot is still one."""
    producer.connect()
    with producer.slot() as slot:
        fails(Code.INVALID_ARGUMENT, "array|shape|dimension|payload", lambda: slot.view(shape, dtype))
        fails(Code.INVALID_ARGUMENT, "-1 bytes", lambda: slot.send(-1))
        assert slot.view((), "float32").shape == ()
        assert slot.view((0, 3), "float32").shape == (0, 3)
        slot.view(X.shape, X.dtype)[:] = X
        assert slot.infer(X.nbytes).payload == X.tobytes()


def test_what_cannot_be_sent_is_the_callers_mistake(producer: LocalProducer) -> None:
    """Nothing of it reaches the daemon."""
    with pytest.raises(BadDataError):
        producer.infer(np.array(["text"]))
    with pytest.raises(UsageError, match="unknown codec 'xml'"):
        producer.infer(b"<a/>", codec="xml")
    with pytest.raises(UsageError, match="deadline_ms"):
        producer.infer(X, deadline_ms=0)
    with pytest.raises(UsageError, match="model"):
        producer.infer(X, model="a/b")
    fails(Code.INVALID_ARGUMENT, "200000 bytes, a slot has 100000", lambda: producer.infer(bytes(200_000)))
    assert producer.stats()["sent"] == 0
    assert producer.infer(X).codec == "npy"  # no slot was lost


def test_a_model_must_be_named(box: Box) -> None:
    """Once for all requests, or with each."""
    with LocalProducer(box.path) as producer:
        with pytest.raises(UsageError, match="none is named"):
            producer.infer(X)
        producer.infer(X, model="other")
    assert box.messages[0].topic.split("/")[5] == "other"


def test_a_slot_is_written_without_a_copy(box: Box, producer: LocalProducer) -> None:
    """What is written into its view is what arrives; the answer frees it."""
    with producer.slot() as slot:
        view = slot.view(X.shape, X.dtype)
        assert (view.ctypes.data % 4096, slot.array.nbytes, slot.nbytes) == (0, 100_000, 100_000)
        view[:] = X
        result = slot.send(X.nbytes, deadline_ms=5000).result()
        with pytest.raises(UsageError, match="sent or given back"):
            slot.send(1)
    assert result.payload == X.tobytes()
    assert box.stat("slots_busy") == 0
    with producer.slot() as slot:
        slot.view(X.shape, X.dtype)[:] = X
        assert slot.infer(X.nbytes).payload == X.tobytes()
    with producer.slot() as slot:
        fails(Code.INVALID_ARGUMENT, "a payload of 400000 bytes", lambda: slot.view((100_000,), np.float32))


def test_a_slot_that_was_not_sent_goes_back(producer: LocalProducer) -> None:
    """Also when the camera fails in between: three slots, ten failures."""
    producer.connect()
    for _ in range(10):
        with pytest.raises(RuntimeError), producer.slot(timeout=0):
            raise RuntimeError("no frame")
    assert producer.infer(X).payload


def test_all_slots_taken(box: Box, producer: LocalProducer) -> None:
    """Waits for the next answer; else an error that may be tried again, counted."""
    producer.connect()
    box.hook = keep
    futures = [producer.submit(X) for _ in range(3)]
    fails(Code.RESOURCE_EXHAUSTED, r"no slot is free: 3 requests .*local\.slots", lambda: producer.slot(timeout=0))
    fails(Code.RESOURCE_EXHAUSTED, "no slot is free", lambda: producer.infer(X, deadline_ms=50))
    assert producer.stats()["no_slot"] == 2
    box.wait(3)
    threading.Timer(0.1, lambda: echo(box, box.messages[1])).start()
    with producer.slot(timeout=10):
        assert futures[1].done()
    for number in (0, 2):
        echo(box, box.messages[number])
    assert all(future.result(10).payload for future in futures)


def test_a_deadline_passes(box: Box, producer: LocalProducer) -> None:
    """At once here, whatever the daemon does; its late answer frees the slot and is counted."""
    producer.connect()
    box.hook = keep
    future = producer.submit(X, deadline_ms=80)
    fails(Code.DEADLINE_EXCEEDED, "no answer from .* within 80 ms", lambda: future.result(10))
    fails(Code.DEADLINE_EXCEEDED, "no answer", lambda: producer.infer(X, deadline_ms=60))
    assert int(dict(box.messages[0].user)["deadline-ms"]) <= 80
    for message in box.wait(2):
        echo(box, message)
    eventually(lambda: producer.stats()["late"] == 2, "late answers")
    assert producer.stats()["lost"] == 2
    box.hook = lambda message: echo(box, message)
    assert all(producer.infer(X).payload for _ in range(6))


def test_deadlines_are_kept_in_any_order(box: Box, producer: LocalProducer) -> None:
    """An earlier one that comes later is not overlooked."""
    producer.connect()
    box.hook = keep
    late, early = producer.submit(X, deadline_ms=20_000), producer.submit(X, deadline_ms=50)
    fails(Code.DEADLINE_EXCEEDED, "within", lambda: early.result(10))
    assert not late.done()


def test_an_error_of_the_daemon_is_raised(box: Box, producer: LocalProducer) -> None:
    """With its code, and whether it may be tried again."""
    error = RequestError(Code.NOT_FOUND, "no model 'm' here")

    def refuse(message: Message) -> None:
        body = Message(message.response_topic or "", error.to_json(), user=(("status", "error"),))
        box.transport.publish(body)

    box.hook = refuse
    fails(Code.NOT_FOUND, "no model 'm' here", lambda: producer.infer(X))
    assert producer.stats()["errors"] == 1


def test_many_threads_at_once(producer: LocalProducer) -> None:
    """Each gets its own answer, whoever reads it; three slots for eight threads."""
    wrong: list[object] = []

    def ask(number: int) -> None:
        for turn in range(60):
            array = np.full((1, 3, 4), number * 1000 + turn, np.float32)
            future = producer.submit(array, deadline_ms=30_000, codec="raw") if turn % 3 else None
            result = future.result(30) if future else producer.infer(array, deadline_ms=30_000, codec="raw")
            if result.payload != array.tobytes():
                wrong.append((number, turn))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    assert producer.stats()["answered"] == 480


def test_callbacks_may_ask_but_not_wait(box: Box, producer: LocalProducer) -> None:
    """The thread that would bring the answer is the one that would wait for it: thread's own and a caller's."""
    seen: list[object] = []

    def ask(_future: object) -> None:
        for wait in (lambda: producer.infer(X), producer.connect):
            with pytest.raises(UsageError, match="cannot be waited for"):
                wait()
        seen.append(producer.submit(X))

    producer.connect()
    producer.submit(X).add_done_callback(ask)
    eventually(lambda: len(seen) == 1, "the callback on the thread")
    box.hook = keep
    future = producer.submit(X)
    future.add_done_callback(ask)

    def answer(message: Message) -> None:
        for one in box.messages[-2:]:
            echo(box, one)

    box.hook = answer
    producer.infer(X)  # which reads the other's answer too
    eventually(lambda: len(seen) == 2, "the callback in infer")
    assert all(one.result(10).payload for one in seen)  # type: ignore[attr-defined]


def test_the_daemon_goes_and_comes_back(socket_path: Path) -> None:
    """What is under way fails and may be tried again; what is asked meanwhile waits for the new memory."""
    first = Box(socket_path).start()
    with LocalProducer(socket_path, model="m") as producer:
        producer.connect()
        future, held = producer.submit(X, deadline_ms=60_000), producer.slot()
        first.wait(1)
        view = held.array
        first.transport.stop()
        fails(Code.UNAVAILABLE, "ended before the answer: the daemon stops", lambda: future.result(10))
        with pytest.raises(RequestError) as caught:
            held.send(1)
        assert (caught.value.code, caught.value.retryable) == (Code.UNAVAILABLE, True)
        view[:] = 1  # its memory is still there
        fails(Code.UNAVAILABLE, "nobody listens there", lambda: producer.infer(X, deadline_ms=30))
        threading.Timer(0.2, lambda: restarted.append(Box(socket_path).start())).start()
        restarted: list[Box] = []
        waiting = producer.submit(X, deadline_ms=20_000)
        eventually(lambda: restarted and restarted[0].messages, "the request at the new daemon")
        echo(restarted[0], restarted[0].messages[0])
        assert waiting.result(10).payload
        stats = producer.stats()
        assert (stats["connects"], stats["interrupted"]) == (2, 1)
    restarted[0].transport.stop()


def test_a_daemon_that_is_gone_and_not_yet_missed(socket_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next request finds it out before the producer's thread does: it waits for the new one like any other."""
    first = Box(socket_path).start()
    missed = threading.Event()
    lose = Link._lose
    monkeypatch.setattr(Link, "_lose", lambda self, *args: (missed.wait(20), lose(self, *args)))
    with LocalProducer(socket_path, model="m") as producer:
        producer.connect()
        held = producer.slot()
        first.transport.stop()
        fails(Code.UNAVAILABLE, "the daemon takes no request: the daemon is gone", lambda: held.send(1))
        fails(Code.UNAVAILABLE, "no connection to .*: the daemon is gone", lambda: producer.infer(X, deadline_ms=30))
        second = Box(socket_path).start()
        second.hook = lambda message: echo(second, message)
        threading.Timer(0.2, missed.set).start()
        assert producer.infer(X, deadline_ms=20_000).payload
        assert (producer.stats()["connects"], producer.stats()["sent"]) == (2, 1)
    second.transport.stop()


def test_a_request_over_a_connection_that_has_just_ended_waits(
    socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slot was taken, and its payload written, when the daemon went: it is sent again, whole, to the next one."""
    boxes = [Box(socket_path).start()]
    write = Payload.write

    def restart_and_write(self: Payload, into: memoryview) -> None:
        if len(boxes) == 1:
            boxes[0].transport.stop()
            boxes.append(Box(socket_path).start())
            boxes[1].hook = lambda message: echo(boxes[1], message)
        write(self, into)

    monkeypatch.setattr(Payload, "write", restart_and_write)
    with LocalProducer(socket_path, model="m") as producer:
        producer.connect()
        assert producer.infer(X, deadline_ms=20_000, codec="raw").payload == X.tobytes()
    boxes[1].transport.stop()


def test_the_last_words_are_heard() -> None:
    """The daemon goes with a request unread: the kernel says that first, and what the daemon said comes after it."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    shape = shm_wire.Hello(1, 4096)
    fd = shm_memory.create(shape)
    session = Session(near, SlotMemory(fd, shape, populate=False))
    os.close(fd)
    near.send(b"unread")
    far.send(shm_wire.write_bye("the daemon stops"))
    far.close()
    for _ in range(2):  # and to whoever asks later
        with pytest.raises(ConnectionError, match="the daemon stops"):
            session.read()
    near.close()


class NeverIdle:
    """A poller that always finds something: what it wraps, or a wake-up."""

    def __init__(self, poller: Any, fd: int) -> None:
        self._poller, self._fd = poller, fd

    def poll(self, _timeout: object = None) -> list[tuple[int, int]]:
        return self._poller.poll(0) or [(self._fd, 1)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._poller, name)


def test_deadlines_are_kept_while_answers_come(box: Box, producer: LocalProducer) -> None:
    """Steady traffic must not hide a request that nobody answers."""
    producer.connect()
    box.hook = keep
    link = producer._link
    assert link is not None
    link._poller = NeverIdle(link._poller, link._woken.fileno())  # type: ignore[assignment]
    fails(Code.DEADLINE_EXCEEDED, "within 100 ms", lambda: producer.submit(X, deadline_ms=100).result(5))


def test_a_caller_who_reads_hears_of_the_end(socket_path: Path) -> None:
    """`infer` waits on the socket itself: the daemon's end wakes it."""
    box = Box(socket_path).start()
    box.hook = lambda _message: threading.Timer(0.1, box.transport.stop).start()
    with LocalProducer(socket_path, model="m") as producer:
        fails(Code.UNAVAILABLE, "the daemon stops", lambda: producer.infer(X, deadline_ms=60_000))


def test_close_ends_everything(box: Box, producer: LocalProducer) -> None:
    """Futures CANCELLED, a caller who waits too, no thread left; afterwards nothing can be asked."""
    producer.connect()
    box.hook = keep
    future, ended = producer.submit(X, deadline_ms=60_000), []

    def wait() -> None:
        with pytest.raises(RequestError) as caught:
            producer.infer(X, deadline_ms=60_000)
        ended.append(caught.value.code)

    thread = threading.Thread(target=wait)
    thread.start()
    box.wait(2)
    producer.close()
    producer.close()
    thread.join(10)
    fails(Code.CANCELLED, "closed", lambda: future.result(10))
    assert ended == [Code.CANCELLED]
    with pytest.raises(UnavailableError, match="it was closed"):
        producer.infer(X)


def test_close_in_a_callback(box: Box) -> None:
    """On the producer's own thread, which then ends by itself."""
    producer = LocalProducer(box.path, model="m")
    closed = threading.Event()
    producer.submit(X).add_done_callback(lambda _: (producer.close(), closed.set()))
    assert closed.wait(10)
    eventually(lambda: box.stat("producers") == 0, "it has left")


def test_a_cancelled_future_frees_its_slot(box: Box, producer: LocalProducer) -> None:
    """When the answer comes: until then the daemon reads it."""
    producer.connect()
    box.hook = keep
    for turn in range(6):
        future = producer.submit(X, deadline_ms=60_000)
        box.wait(turn + 1)
        assert future.cancel()
        echo(box, box.messages[turn])
    eventually(lambda: producer.stats()["answered"] == 6, "six answers to nobody")


def test_connect_tells_why_not(socket_path: Path) -> None:
    """Nobody there; too many there."""
    with LocalProducer(socket_path) as producer, pytest.raises(UnavailableError, match="nobody listens there"):
        producer.connect(0.1)
    box = Box(socket_path, max_producers=1).start()
    with LocalProducer(socket_path) as first:
        first.connect()
        with LocalProducer(socket_path) as second, pytest.raises(UnavailableError, match=r"1 producers are connected"):
            second.connect(0.3)
    box.transport.stop()


def test_somebody_else_listens_there(socket_path: Path) -> None:
    """What is no daemon of ours is said to be none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.bind(os.fspath(socket_path))
        other.listen()

        def greet() -> None:
            connection, _ = other.accept()
            with connection:
                connection.send(b"220 mail.example ESMTP")

        threading.Thread(target=greet, daemon=True).start()
        with LocalProducer(socket_path) as producer:
            eventually(lambda: "no edged daemon" in producer._link.trouble, "the reason")  # type: ignore[union-attr]


def test_another_process_makes_its_own(producer: LocalProducer) -> None:
    """A forked one is told so, and leaves the parent's alone."""
    producer.infer(X)
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe()

    def ask() -> None:
        try:
            producer.infer(X)
        except UsageError as exc:
            theirs.send(str(exc))
        producer.close()

    child = context.Process(target=ask)
    child.start()
    assert "forked" in mine.recv()
    child.join(10)
    mine.close()
    theirs.close()
    assert producer.infer(X).payload


def test_it_brings_no_broker_client_and_no_tensorflow() -> None:
    """A camera process is small; `edged.LocalProducer` is imported when it is asked for."""
    code = (
        "import sys, edged\n"
        "assert 'edged.client' not in sys.modules\n"
        "edged.LocalProducer\n"
        "sys.exit(any(name in sys.modules for name in ('paho', 'tensorflow', 'ai_edge_litert', 'tflite_runtime')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

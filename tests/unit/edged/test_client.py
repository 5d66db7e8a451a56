"""The SDK against a device in memory that answers well, badly, twice, late or not at all."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor

import numpy as np
import pytest
from support.brokers import eventually
from support.fakedevice import FakeTransport, answer, echo, failure

from edged import Client
from edged.client.wire import read_reply
from edged.errors import BadDataError, Code, RequestError, UnavailableError, UsageError
from edged.request import OnSent
from edged.transports import open_transport
from edged.transports.base import Denied, Message, OnDone, Subscription

META = ("meta", "v=3;path=local;delegate=cpu;q=12;i=345;o=y:float32:1x3")
WINDOW = np.array([[1, 2.5, -3]], np.float32)


def _npy(array):
    """What numpy itself writes of an array."""
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def _answer_float32(transport, request):
    transport.deliver(answer(request, bytes(request.payload), user=(("status", "ok"), META)))


def _silent(transport, request):
    """A device that is not there."""


def _is_third(transport, request):
    return len(transport.published) > 2 and request is transport.published[2]


def _client(transport, **options):
    return Client(transport=transport, user="line", **{"resend_s": 0.02, **options})


def _status(device, **facts):
    return Message(f"edged/v1/dev/{device}/status", json.dumps(facts).encode(), retain=True)


def test_answer_over_mqtt_5():
    """The arrays come back as the reply's meta describes them, with the facts beside."""
    with _client(FakeTransport(_answer_float32)) as client:
        result = client.infer("press-07", "har", WINDOW)
    assert list(result.outputs) == ["y"]
    np.testing.assert_array_equal(result.outputs["y"], WINDOW)
    assert result.outputs["y"].dtype == np.float32
    assert (result.meta.version, result.meta.delegate, result.meta.infer_us) == (3, "cpu", 345)
    assert result.resends == 0
    assert result.round_trip_ms >= 0


def test_request_over_mqtt_5_keeps_the_contract():
    """Topic, Response Topic under the user, correlation, content type, deadline and expiry, as the contract says."""
    transport = FakeTransport()
    with _client(transport) as client:
        client.infer("press-07", "har", WINDOW, deadline_ms=1500)
    request = transport.published[0]
    assert request.topic == "edged/v1/dev/press-07/req/har/c/line"
    assert request.response_topic.startswith("edged/v1/resp/line/")
    assert len(request.correlation) == 16
    assert request.content_type == "application/x-npy"
    assert request.payload == _npy(WINDOW)
    assert (request.qos, request.retain, request.expiry_s) == (1, False, 2)
    name, left_ms = request.user[0]
    assert name == "deadline-ms"
    assert 0 < int(left_ms) <= 1500


def test_a_state_key_travels_as_the_user_property_of_the_contract():
    """Beside the deadline, in every send of the request; without one there is no such property."""
    transport = FakeTransport(_silent)
    with _client(transport) as client:
        asked = client.infer_async("press-07", "gru", WINDOW, state_key="line/3")
        eventually(lambda: len(transport.published) > 1, "it is sent again")
        client.infer_async("press-07", "other", WINDOW)
        assert asked.cancel()
    first, again, *others = transport.published
    assert [dict(request.user)["state-key"] for request in (first, again)] == ["line/3"] * 2
    assert "state-key" not in dict(next(one.user for one in others if "/other/" in one.topic))


@pytest.mark.parametrize("connected", [True, False])
def test_a_state_key_does_not_go_over_mqtt_311(connected):
    """The topic of 3.1.1 has no place for it: an error that says so, never another one's state."""
    transport = FakeTransport(protocol="MQTT 3.1.1" if connected else "")
    with _client(transport) as client:
        asked = client.infer_async("press-07", "gru", WINDOW, state_key="line/3", deadline_ms=20_000)
        if not connected:
            transport.connect("MQTT 3.1.1")
        with pytest.raises(
            RequestError, match=r"a state key needs MQTT 5, and the connection is MQTT 3\.1\.1"
        ) as caught:
            asked.result(10)
        assert caught.value.code is Code.INVALID_ARGUMENT
        assert client.stats()["refused"] == 1
    assert transport.published == []


@pytest.mark.parametrize("key", ["", "a\nb", "é" * 128, "\ud800", b"a", 7])
def test_impossible_state_keys_are_refused(key):
    """As the device would, before anything is sent; and what is no text."""
    with _client(FakeTransport()) as client, pytest.raises(UsageError, match="state_key"):
        client.infer("press-07", "gru", WINDOW, state_key=key)


def test_request_over_mqtt_311_keeps_the_contract():
    """Everything is in the topic; the default codec describes itself, since the reply has no meta."""
    transport = FakeTransport(protocol="MQTT 3.1.1")
    with _client(transport) as client:
        result = client.infer("press-07", "har", WINDOW, deadline_ms=1500)
    request = transport.published[0]
    levels = request.topic.split("/")
    assert levels[:8] == ["edged", "v1", "dev", "press-07", "req", "har", "c", "line"]
    assert len(bytes.fromhex(levels[8])) == 16
    assert levels[9] == "npy"
    assert 0 < int(levels[10]) <= 1500
    assert request.response_topic is request.correlation is request.content_type is request.expiry_s is None
    np.testing.assert_array_equal(result.outputs["output_0"], WINDOW)


def test_reply_topics_are_subscribed_before_any_request():
    """An MQTT 5 client hears its own replies only; one that may speak 3.1.1 must hear the user's."""
    for protocol, last in (("5", None), ("auto", "+"), ("3.1.1", "+")):
        transport = FakeTransport()
        with _client(transport, protocol=protocol) as client:
            client.infer("press-07", "har", WINDOW)
        topic = transport.published[0].response_topic
        assert [s.filter for s in transport.filters] == [topic if last is None else "edged/v1/resp/line/+"]


@pytest.mark.parametrize("protocol", ["MQTT 5", "MQTT 3.1.1"])
def test_lost_messages_are_made_up_for(protocol):
    """Two requests vanish; the third send, under the same correlation and address, is answered once."""
    transport = FakeTransport(protocol=protocol)
    transport.behaviour = lambda t, request: echo(t, request) if _is_third(t, request) else None
    with _client(transport) as client:
        result = client.infer("press-07", "har", WINDOW, deadline_ms=20_000)
        stats = client.stats()
    assert result.resends == 2
    # The deadline level or property shrinks; who asks and what for stays.
    sends = {(m.topic.rpartition("/")[0], m.response_topic, m.correlation, m.payload) for m in transport.published}
    assert len(sends) == 1
    assert (stats["sent"], stats["resent"], stats["answered"], stats["lost"]) == (1, 2, 1, 0)


def test_resend_tells_what_is_left_of_the_deadline():
    """A device that gets only the resend must not work past the requester's deadline."""
    transport = FakeTransport()
    transport.behaviour = lambda t, request: echo(t, request) if _is_third(t, request) else None
    with _client(transport) as client:
        client.infer("press-07", "har", WINDOW, deadline_ms=20_000)
    left = [int(request.user[0][1]) for request in transport.published]
    assert left == sorted(left, reverse=True)
    assert left[2] <= 20_000 - 20 - 40  # two waits of resend_s, doubled


def test_duplicate_replies_are_dropped_and_counted():
    """QoS 1 may deliver an answer twice: the caller sees one."""

    def twice(transport, request):
        echo(transport, request)
        echo(transport, request)

    with _client(FakeTransport(twice)) as client:
        client.infer("press-07", "har", WINDOW)
        client.infer("press-07", "har", WINDOW)
        stats = client.stats()
    assert (stats["answered"], stats["duplicates"], stats["late"], stats["foreign"]) == (2, 2, 0, 0)


def test_late_reply_is_counted_and_answers_nobody():
    """After the deadline the answer changes nothing any more."""
    transport = FakeTransport(_silent)
    with _client(transport) as client:
        with pytest.raises(RequestError) as caught:
            client.infer("press-07", "har", WINDOW, deadline_ms=30)
        transport.deliver(answer(transport.published[0], b"late"))
        stats = client.stats()
    assert caught.value.code is Code.DEADLINE_EXCEEDED
    assert (stats["late"], stats["lost"], stats["answered"]) == (1, 1, 0)


def test_reply_to_another_client_is_foreign():
    """Replies of the user's other clients are counted apart; junk on the reply topics harms nothing."""
    transport = FakeTransport(_silent)
    with _client(transport) as client:
        client.connect()
        transport.deliver(Message("edged/v1/resp/line/0011", b"x"))
        transport.deliver(Message("edged/v1/resp/line/not-hex", b"x"))
        transport.deliver(Message("edged/v1/resp/line/i", b"x", correlation=b""))
        assert client.stats()["foreign"] == 3


@pytest.mark.parametrize("protocol", ["MQTT 5", "MQTT 3.1.1"])
@pytest.mark.parametrize(
    "error", [RequestError(Code.RESOURCE_EXHAUSTED, "queue full", 40), RequestError(Code.NOT_FOUND, "no model x")]
)
def test_error_reply_is_raised_as_it_was(protocol, error):
    """Code, message and retry hint reach the caller; over 3.1.1 the payload alone tells that it is an error."""
    transport = FakeTransport(lambda t, request: t.deliver(failure(request, error)), protocol)
    with _client(transport) as client:
        with pytest.raises(RequestError) as caught:
            client.infer("press-07", "har", WINDOW)
        assert client.stats()["errors"] == 1
    found = caught.value
    assert (found.code, found.message, found.retry_after_ms) == (error.code, error.message, error.retry_after_ms)


@pytest.mark.parametrize(
    "payload",
    [b"", b"not json", b"{}", b'{"error": {"code": "NO_SUCH_CODE", "message": ""}}', b'{"error": 3}', b"[" * 100_000],
)
def test_error_that_cannot_be_read_is_still_an_error(payload):
    """A broken error reply ends the request too."""
    transport = FakeTransport(lambda t, r: t.deliver(answer(r, payload, user=(("status", "error"),))))
    with _client(transport) as client, pytest.raises(RequestError, match="cannot be read") as caught:
        client.infer("press-07", "har", WINDOW)
    assert caught.value.code is Code.INTERNAL


def test_answer_that_begins_like_an_error_is_told_by_its_status():
    """Over MQTT 5 the status property decides, not the bytes."""
    payload = b'{"error": {"code": "NOT_FOUND", "message": "m"}}'
    transport = FakeTransport(lambda t, r: t.deliver(answer(r, payload)))
    with _client(transport) as client:
        assert client.infer("press-07", "har", WINDOW).payload == payload


def test_missing_answer_is_explained_by_the_devices_state():
    """The deadline error says what the device last said of itself, and that it was asked more than once."""
    transport = FakeTransport(_silent)
    with _client(transport, devices=["press-07"]) as client:
        transport.deliver(_status("press-07", state="lost", boot="a"))
        with pytest.raises(RequestError, match="'lost'") as caught:
            client.infer("press-07", "har", WINDOW, deadline_ms=100)
        with pytest.raises(RequestError, match=r"sent 1 time, its state is not followed"):
            client.infer("press-08", "har", WINDOW, deadline_ms=20)
    assert re.search(r"sent \d+ times", caught.value.message)


def test_missing_connection_is_explained():
    """Without a broker the error names the reason the transport gave, and nothing was published."""
    transport = FakeTransport(protocol="")
    with _client(transport) as client:
        transport.disconnect("connection refused")
        with pytest.raises(RequestError, match="not connected to the broker: connection refused"):
            client.infer("press-07", "har", WINDOW, deadline_ms=30)
        with pytest.raises(UnavailableError, match="connection refused"):
            client.connect(timeout=0.01)
    assert transport.published == []


def test_request_made_before_the_connection_is_sent_with_it():
    """It waits within its own deadline, in the self-describing codec."""
    transport = FakeTransport(protocol="")
    with _client(transport) as client:
        future = client.infer_async("press-07", "har", WINDOW, deadline_ms=20_000)
        assert transport.published == []
        transport.connect("MQTT 5")
        result = future.result(20)
    np.testing.assert_array_equal(result.outputs["output_0"], WINDOW)
    assert result.resends == 0


def test_reconnect_sends_open_requests_again_at_once():
    """Whatever the old connection lost is asked again without waiting for the resend timer."""
    transport = FakeTransport(_silent)
    with _client(transport, resend_s=1000) as client:
        client.connect()
        future = client.infer_async("press-07", "har", WINDOW, deadline_ms=60_000)
        transport.disconnect("connection lost")
        transport.behaviour = echo
        transport.connect("MQTT 5")
        assert future.result(20).resends == 1


def test_nothing_is_resent_while_disconnected():
    """A transport without a connection would only queue the copies."""
    transport = FakeTransport(_silent)
    with _client(transport, resend_s=0.01) as client:
        client.connect()
        transport.disconnect("gone")
        with pytest.raises(RequestError):
            client.infer("press-07", "har", WINDOW, deadline_ms=200)
    assert transport.published == []


def test_refused_publish_is_counted_and_tried_again():
    """A transport whose queue is full drops the send; the next one gets through."""
    transport = FakeTransport()
    transport.accepts = False
    with _client(transport) as client:
        client.connect()
        future = client.infer_async("press-07", "har", WINDOW, deadline_ms=20_000)
        assert client.stats()["dropped"] == 1
        transport.accepts = True
        assert future.result(20).resends == 0


def test_dropped_send_is_not_a_send():
    """What the transport never took was not sent: neither the counters nor the deadline's error say so."""
    transport = FakeTransport()
    transport.accepts = False
    with _client(transport) as client:
        client.connect()
        with pytest.raises(RequestError, match="never sent") as caught:
            client.infer("press-07", "har", WINDOW, deadline_ms=100)
        stats = client.stats()
    assert caught.value.code is Code.DEADLINE_EXCEEDED
    assert (stats["sent"], stats["resent"], stats["lost"]) == (0, 0, 1)
    assert stats["dropped"] >= 2


def test_request_that_cannot_be_sent_fails_at_once():
    """Too large or invalid: the transport's reason is the error, long before the deadline."""
    transport = FakeTransport()
    transport.refuses = "its packet has 9 bytes, the largest may have 5"
    with _client(transport) as client:
        client.connect()
        future = client.infer_async("press-07", "har", WINDOW, deadline_ms=600_000)
        with pytest.raises(RequestError, match="may have 5") as caught:
            future.result(20)
        stats = client.stats()
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert not caught.value.retryable
    assert (stats["sent"], stats["refused"], stats["dropped"], stats["lost"]) == (0, 1, 1, 0)


def test_transport_that_cannot_start_is_told_by_every_call():
    """A start that raised (a TLS file that is missing) is tried again, not taken for done."""
    transport = FakeTransport()
    transport.fails = BadDataError("ca.pem", "no such file")
    client = _client(transport)
    for call in (client.connect, client.__enter__, lambda: client.infer("press-07", "har", WINDOW)):
        with pytest.raises(BadDataError, match=r"ca\.pem"):
            call()
    assert transport.starts == 3
    transport.fails = None
    assert client.infer("press-07", "har", WINDOW, deadline_ms=20_000).payload
    client.close()


def test_client_closed_while_it_starts_leaves_no_connection():
    """`close` waits for the start that another thread is in, then stops the transport."""
    starting, go = threading.Event(), threading.Event()

    class Slow(FakeTransport):
        def start(self, *args, **options):
            starting.set()
            assert go.wait(20)
            super().start(*args, **options)

    transport = Slow()
    client = _client(transport)
    with ThreadPoolExecutor(2) as pool:
        started = pool.submit(client.connect, 20)
        assert starting.wait(20)
        closed = pool.submit(client.close)
        go.set()
        closed.result(20)
        started.exception(20)
    assert transport.stopped.is_set()


def test_new_request_is_sent_once_by_caller_and_connection():
    """A connection that comes up while a request is being made: one of the two sends it, the other leaves it."""
    transport = FakeTransport(_silent, protocol="")
    with _client(transport, resend_s=1000) as client:
        client.infer_async("press-07", "har", WINDOW, deadline_ms=60_000)
        (pending,) = client._conversation._exchange.all_open()
        transport.connect("MQTT 5")  # as if before the caller's own send
        client._conversation._send(pending, 0)
        stats = client.stats()
        assert (len(transport.published), stats["sent"], stats["resent"]) == (1, 1, 0)


def test_any_transport_of_the_registry_serves_a_client():
    """The URL alone picks the transport: here a bus in this process, with a device on it."""
    device = open_transport("loopback://client-test")
    device.start(lambda request: device.publish(answer(request, request.payload)), [Subscription("edged/v1/dev/#", 1)])
    with Client("loopback://client-test", user="line") as client:
        assert client.infer("press-07", "har", WINDOW, deadline_ms=20_000).payload == _npy(WINDOW)
    device.stop()


def test_hundred_in_flight_are_answered_right():
    """100 requests from 8 threads, answered in reverse order by another thread: each caller gets its own answer."""
    held, all_there = [], threading.Event()

    def hold(transport, request):
        held.append(request)
        if len(held) == 100:
            all_there.set()

    transport = FakeTransport(hold)
    with _client(transport, resend_s=1000) as client, ThreadPoolExecutor(8) as pool:
        client.connect()
        arrays = [np.full((1, 4), number, np.float32) for number in range(100)]
        ask = lambda array: client.infer_async("press-07", "har", array, deadline_ms=60_000)  # noqa: E731
        futures = list(pool.map(ask, arrays))
        assert all_there.wait(20)
        for request in reversed(held):
            transport.deliver(answer(request, bytes(request.payload)))
        for array, future in zip(arrays, futures, strict=True):
            assert future.result(20).payload == _npy(array)
        assert client.stats()["answered"] == 100


def test_asyncio_awaits_answers_and_errors():
    """`ainfer` overlaps requests and raises what `infer` raises."""
    held = []

    def pairwise(transport, request):
        held.append(request)
        if len(held) == 2:
            for one in held:
                echo(transport, one)

    async def ask(client):
        first, second = await asyncio.gather(
            client.ainfer("press-07", "har", WINDOW), client.ainfer("press-07", "har", WINDOW + 1)
        )
        with pytest.raises(RequestError, match="DEADLINE_EXCEEDED"):
            await client.ainfer("press-07", "har", WINDOW, deadline_ms=20)
        return first.payload, second.payload

    with _client(FakeTransport(pairwise)) as client:
        client.connect()
        assert asyncio.run(ask(client)) == (_npy(WINDOW), _npy(WINDOW + 1))


def test_cancelled_task_forgets_its_request():
    """A cancelled await is not sent again, and its answer is late, not an error."""
    transport = FakeTransport(_silent)

    async def give_up(client):
        task = asyncio.ensure_future(client.ainfer("press-07", "har", WINDOW, deadline_ms=60_000))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with _client(transport, resend_s=1000) as client:
        client.connect()
        asyncio.run(give_up(client))
        transport.deliver(answer(transport.published[0], b""))
        stats = client.stats()
    assert (stats["cancelled"], stats["late"], len(transport.published)) == (1, 1, 1)


def test_cancelled_future_does_not_break_the_timer():
    """After one future was cancelled another still meets its deadline."""
    with _client(FakeTransport(_silent)) as client:
        doomed = client.infer_async("press-07", "har", WINDOW, deadline_ms=60)
        assert doomed.cancel()
        with pytest.raises(RequestError, match="DEADLINE_EXCEEDED"):
            client.infer("press-07", "har", WINDOW, deadline_ms=120)
        with pytest.raises(CancelledError):
            doomed.result(0)


def test_future_cancelled_while_its_answer_comes_in(monkeypatch):
    """The answer and the cancellation meet: nothing is raised in the transport's thread."""

    def cancel_then_read(message, pending):
        assert pending.future.cancel()
        return read_reply(message, pending)

    monkeypatch.setattr("edged.client.conversation.read_reply", cancel_then_read)
    with _client(FakeTransport()) as client:
        client.connect()
        with pytest.raises(CancelledError):
            client.infer("press-07", "har", WINDOW, deadline_ms=20_000)
        assert client.stats()["answered"] == 1


def test_earlier_deadline_wakes_the_timer():
    """A short request made after a long one is not held up by the long one's timer."""
    with _client(FakeTransport(_silent), resend_s=1000) as client:
        client.infer_async("press-07", "har", WINDOW, deadline_ms=600_000)
        short = client.infer_async("press-07", "har", WINDOW, deadline_ms=30)
        with pytest.raises(RequestError, match="within 30 ms"):
            short.result(20)


def test_close_ends_open_requests():
    """Nobody waits for ever: what is open ends CANCELLED, and a closed client says so."""
    transport = FakeTransport(_silent)
    client = _client(transport)
    future = client.infer_async("press-07", "har", WINDOW, deadline_ms=60_000)
    client.close()
    client.close()
    with pytest.raises(RequestError, match="closed") as caught:
        future.result(20)
    assert caught.value.code is Code.CANCELLED
    assert transport.stopped.is_set()
    with pytest.raises(UnavailableError, match="closed"):
        client.infer("press-07", "har", WINDOW)


def test_client_may_be_closed_by_what_hangs_on_a_future():
    """A callback on the client's own timer thread can close it without a deadlock."""
    transport = FakeTransport(_silent)
    client = _client(transport)
    client.infer_async("press-07", "har", WINDOW, deadline_ms=20).add_done_callback(lambda _: client.close())
    assert transport.stopped.wait(20)


def test_callback_may_ask_again():
    """What hangs on a future can use the client from the network thread: no lock is held while it runs."""
    second, done = [], threading.Event()

    def ask_again(_):
        client.infer_async("press-07", "har", WINDOW + 1).add_done_callback(lambda f: (second.append(f), done.set()))

    with _client(FakeTransport()) as client:
        client.connect()
        client.infer_async("press-07", "har", WINDOW, deadline_ms=20_000).add_done_callback(ask_again)
        assert done.wait(20)
    assert second[0].result(0).payload == _npy(WINDOW + 1)


@pytest.mark.parametrize("what", ["infer", "connect", "status"])
def test_callback_must_not_wait(what):
    """The thread that completes a future brings every answer: what waits there is told so, not left to its deadline."""
    wait = {
        "infer": lambda client: client.infer("press-07", "har", WINDOW, deadline_ms=60_000),
        "connect": lambda client: client.connect(60),
        "status": lambda client: client.status("press-07", 60),
    }[what]
    raised, done = [], threading.Event()

    def call(_):
        try:
            wait(client)
        except UsageError as error:
            raised.append(error)
        done.set()

    transport = FakeTransport(lambda t, request: go.wait(20) and echo(t, request))
    go = threading.Event()
    with _client(transport, devices=["press-07"]) as client:
        client.infer_async("press-07", "har", WINDOW, deadline_ms=60_000).add_done_callback(call)
        go.set()
        assert done.wait(20)
        assert "infer_async" in str(raised[0])
        # Elsewhere, and in the same thread afterwards, waiting is what these calls are for.
        assert client.infer("press-07", "har", WINDOW, deadline_ms=60_000).payload == _npy(WINDOW)


def test_status_is_read_and_an_old_boots_will_ignored():
    """The broker may send the will of the old connection after the new one has spoken."""
    transport = FakeTransport()
    with _client(transport, devices=["press-07"]) as client:
        assert client.status("press-07", timeout=0.01) is None
        transport.deliver(
            _status("press-07", state="ready", boot="new", seq=3, version="0.1.0", models={"har": {"state": "ready"}})
        )
        transport.deliver(_status("press-07", state="lost", boot="old"))
        status = client.status("press-07")
        assert (status.state, status.boot, status.seq, status.version) == ("ready", "new", 3, "0.1.0")
        assert status.models == {"har": {"state": "ready"}}
        transport.deliver(_status("press-07", state="lost", boot="new"))
        assert client.status("press-07").state == "lost"


@pytest.mark.parametrize(
    "payload", [b"\xff", b"[]", b"{}", b'{"state": "happy"}', b'{"state": 3}', b'{"state": []}', b"[" * 100_000]
)
def test_malformed_status_is_counted(payload):
    """A status that is none changes nothing."""
    transport = FakeTransport()
    with _client(transport, devices=["press-07"]) as client:
        transport.deliver(Message("edged/v1/dev/press-07/status", payload))
        assert client.status("press-07", timeout=0.001) is None
        assert client.stats()["malformed"] == 1


def test_status_of_a_device_not_followed_needs_a_url():
    """On a transport of the caller's there is no second connection to read it by."""
    with _client(FakeTransport()) as client, pytest.raises(UsageError, match="not followed"):
        client.status("press-08")


@pytest.mark.parametrize(
    ("device", "model", "deadline_ms", "what"),
    [
        ("a/b", "m", 1, "device"),
        ("", "m", 1, "device"),
        ("d", "#", 1, "model"),
        ("d", "m\x07", 1, "model"),
        ("d", "m\ufffe", 1, "model"),
        ("d", "m", 0, "deadline"),
        ("d", "m", 10**9, "deadline"),
        ("d", "m", True, "deadline"),
        ("d", "m", 1.5, "deadline"),
        ("d", "m", float("nan"), "deadline"),
    ],
)
def test_impossible_requests_are_refused(device, model, deadline_ms, what):
    """A name that would change the topic, or a deadline the contract forbids, never reaches the broker."""
    transport = FakeTransport()
    with _client(transport) as client, pytest.raises(UsageError, match=what):
        client.infer(device, model, WINDOW, deadline_ms=deadline_ms)
    assert transport.published == []


def test_impossible_options_are_refused():
    """A user that is no level, a URL that is none, an option that does not exist."""
    with pytest.raises(UsageError, match="user"):
        Client(transport=FakeTransport(), user="a/b")
    with pytest.raises(UsageError, match="loopback, mqtt, mqtts"):
        Client("http://x")
    for qos in (-1, 3, "1", True):
        with pytest.raises(UsageError, match="qos"):
            Client(transport=FakeTransport(), qos=qos)
    for resend_s in (-1, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="resend_s"):
            Client(transport=FakeTransport(), resend_s=resend_s)
    with _client(FakeTransport()) as client:
        for timeout in (-1, float("nan"), float("inf")):
            with pytest.raises(UsageError, match="timeout"):
                client.connect(timeout)
    with pytest.raises(UsageError, match="no_such"):
        Client("mqtt://x", no_such=1)


def test_reply_that_cannot_be_read_raises_where_it_is_used():
    """The payload and the timing stay readable; the arrays say what is wrong."""
    meta = ("meta", "o=y:float32:1x4")
    transport = FakeTransport(lambda t, r: t.deliver(answer(r, b"abc", user=(("status", "ok"), meta))))
    with _client(transport) as client:
        result = client.infer("press-07", "har", WINDOW, codec="raw")
    assert result.payload == b"abc"
    with pytest.raises(RequestError, match="bytes 0 to 16") as caught:
        _ = result.outputs
    assert caught.value.code is Code.INTERNAL


def test_inputs_that_cannot_be_sent_raise_before_anything_is_sent():
    """Bad inputs are the caller's mistake, told at the call."""
    transport = FakeTransport()
    with _client(transport) as client, pytest.raises(BadDataError):
        client.infer("press-07", "har", np.array(["text"]))
    assert transport.published == []


def test_importing_edged_brings_neither_paho_nor_numpy():
    """The daemon's start pays for nothing of the SDK; `Client` is there when asked for."""
    code = (
        "import sys, edged; assert not {'numpy', 'paho', 'asyncio'} & set(sys.modules); edged.Client;"
        "assert 'asyncio' not in sys.modules; assert 'paho' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    import edged

    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = edged.nothing_like_it


@pytest.mark.parametrize("protocol", ["MQTT 5", "MQTT 3.1.1"])
def test_arrays_say_what_they_are(protocol):
    """From the first request on, over either protocol: one array, named or not, is npy; raw only where asked for."""
    transport = FakeTransport(protocol=protocol)
    with _client(transport) as client:
        for inputs in (WINDOW, {"x": WINDOW}, WINDOW.tolist()):
            assert client.infer("press-07", "har", inputs).codec == "npy"
        assert client.infer("press-07", "har", WINDOW, codec="raw").payload == WINDOW.tobytes()
        assert client.infer("press-07", "har", b"abc").codec == "raw"
    found = np.load(io.BytesIO(bytes(transport.published[0].payload)))
    np.testing.assert_array_equal(found, WINDOW)
    assert found.dtype == np.float32


def test_refused_login_ends_the_waiting_at_once():
    """Waiting longer mends no password; the error is the broker's words."""
    transport = FakeTransport(protocol="")
    with _client(transport) as client:
        transport.disconnect(Denied("refused by the broker: Not authorized"))
        with pytest.raises(UnavailableError, match=r"fake: refused by the broker: Not authorized$"):
            client.connect(timeout=1000)


def test_a_forked_client_refuses_at_once():
    """Threads do not survive a fork: in the child every call raises instead of waiting, and closing does nothing."""
    with _client(FakeTransport()) as client:
        client.infer("press-07", "har", WINDOW)
        calls = (lambda: client.infer("d", "m", WINDOW), client.connect, client.stats, lambda: client.status("d"))
        child = os.fork()
        if child == 0:
            try:
                told = [_raised(call) for call in calls]
                client.close()
                os._exit(0 if all("forked" in text for text in told) else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _raised(call):
    try:
        call()
    except UsageError as error:
        return str(error)
    return ""


def test_result_is_short_as_text():
    """A large payload does not flood a console."""
    with _client(FakeTransport()) as client:
        result = client.infer("press-07", "har", np.zeros((1, 10_000), np.float32))
    assert re.fullmatch(r"<Result: 40\d\d\d bytes of npy, model version None, [\d.]+ ms, 0 resends>", repr(result))


def test_errors_are_there_where_the_client_is():
    """`edged.RequestError` is what a caller catches, without knowing our modules."""
    import edged

    assert (edged.RequestError, edged.EdgedError) == (RequestError, UsageError.__base__)


def test_what_waited_for_the_connection_goes_before_anything_newer() -> None:
    """A request made while a new connection sends what waited goes out behind it: steps of a state keep their order."""

    class Slow(FakeTransport):
        """The first message of a new connection lets the test ask once more before it goes on."""

        def publish(self, message: Message, on_sent: OnSent | None = None, on_done: OnDone | None = None) -> bool:
            if not self.published:
                self.published.append(message)
                client.infer_async("box", "m", np.full(1, 9, np.float32), codec="raw")
                return True
            return super().publish(message, on_sent, on_done)

    transport = Slow(protocol="")
    client = Client(transport=transport, user="ann")
    with client:
        for number in range(3):
            client.infer_async("box", "m", np.full(1, number, np.float32), codec="raw")
        transport.connect("MQTT 5")
        sent = [float(np.frombuffer(bytes(m.payload), np.float32)[0]) for m in transport.published]
    assert sent == [0.0, 1.0, 2.0, 9.0]

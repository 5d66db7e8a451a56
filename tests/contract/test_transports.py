"""The rules of edged/transports/base.py, on every transport of the registry and each broker we can start here."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.brokers import eventually, require_iotcore, require_mosquitto, tls_files

from edged.broker import EmbeddedBroker
from edged.clock import now_ns
from edged.errors import InternalError, UsageError
from edged.transports import MODULES, mqtt_paho, open_transport
from edged.transports.base import Message, OnMessage, Subscription, Transport
from edged.transports.loopback import LoopbackTransport
from edged.transports.mqtt import MqttTransport

_numbers = itertools.count()


@dataclass
class Rig:
    """One way to run a transport: how to open one, whether MQTT 5 properties travel, and the publisher's QoS."""

    name: str
    open: Callable[[], Transport]
    properties: bool = True
    exact_qos: bool = True


def _mosquitto(_directory: Path) -> Iterator[Rig]:
    require_mosquitto()
    with EmbeddedBroker("mosquitto") as broker:
        yield Rig("mqtt", lambda: open_transport(broker.url_v5))


def _mosquitto_v3(_directory: Path) -> Iterator[Rig]:
    require_mosquitto()
    with EmbeddedBroker("mosquitto") as broker:
        yield Rig("mqtt", lambda: open_transport(broker.url_v3, protocol="3.1.1"), properties=False)


def _stock(_directory: Path) -> Iterator[Rig]:
    """A paho that our marks were not written for."""
    require_mosquitto()
    with pytest.MonkeyPatch.context() as patch, EmbeddedBroker("mosquitto") as broker:
        patch.setattr(mqtt_paho, "hooks_fit", lambda: False)
        yield Rig("mqtt", lambda: open_transport(broker.url_v5))


def _tls(directory: Path) -> Iterator[Rig]:
    require_mosquitto()
    files = tls_files(directory)
    lines = [f"cafile {files['ca.pem']}", f"certfile {files['server.pem']}", f"keyfile {files['server.key']}"]
    with EmbeddedBroker("mosquitto", lines=lines) as broker:
        yield Rig("mqtts", lambda: open_transport(f"mqtts://127.0.0.1:{broker.port}", ca_file=files["ca.pem"]))


def _iotcore(_directory: Path) -> Iterator[Rig]:
    require_iotcore()
    with EmbeddedBroker("iotcore") as broker:
        # rumqttd delivers at the subscription's QoS, whatever the publisher's.
        yield Rig("mqtt", lambda: open_transport(broker.url_v5), exact_qos=False)


def _loopback(_directory: Path) -> Iterator[Rig]:
    keeper = open_transport("loopback://contract")  # a bus lives as long as somebody is on it
    yield Rig("loopback", lambda: open_transport("loopback://contract"))
    del keeper


_RIGS = {
    "loopback": _loopback,
    "mosquitto": _mosquitto,
    "mosquitto-3.1.1": _mosquitto_v3,
    "mosquitto-stock-paho": _stock,
    "mosquitto-tls": _tls,
    "iotcore": _iotcore,
}


@pytest.fixture(scope="module", params=_RIGS)
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Each rig in turn, its broker started once."""
    yield from _RIGS[request.param](tmp_path_factory.mktemp("rig"))


class Peer:
    """A started transport that keeps what it receives."""

    def __init__(
        self, transport: Transport, filters: Sequence[Subscription], will: Message | None, hook: OnMessage | None
    ) -> None:
        self.transport, self.messages, self.hook = transport, list[Message](), hook
        self.states: list[tuple[bool, str]] = []
        transport.start(self._take, filters, will=will, on_connection=lambda *state: self.states.append(state))
        eventually(lambda: transport.stats()["connects"] == 1 and self.states, "the connection")

    def _take(self, message: Message) -> None:
        self.messages.append(message)
        if self.hook is not None:
            self.hook(message)

    def wait(self, count: int) -> list[Message]:
        """Return the messages once there are `count`."""
        eventually(lambda: len(self.messages) >= count, f"{count} messages, have {len(self.messages)}")
        return self.messages

    def kill(self) -> None:
        """End as a killed process does."""
        if isinstance(self.transport, MqttTransport):
            link = self.transport._link
            assert link is not None
            connection = link.client.socket()
            assert isinstance(connection, socket.socket)
            link._stopping.set()
            connection.shutdown(socket.SHUT_RDWR)
        else:
            assert isinstance(self.transport, LoopbackTransport)
            self.transport.abort()


Join = Callable[..., Peer]


@pytest.fixture
def join(rig: Rig) -> Iterator[Join]:
    """Start a peer: `join("filter", …, qos=1, will=None, hook=None)`; all are stopped at the end."""
    peers: list[Peer] = []

    def start(*filters: str, qos: int = 1, will: Message | None = None, hook: OnMessage | None = None) -> Peer:
        wishes = [Subscription(filter_, qos) for filter_ in filters]
        peers.append(Peer(rig.open(), wishes, will, hook))
        if wishes:  # the subscription stands once a message of our own comes through
            _settle(peers[-1], filters[0])
        return peers[-1]

    yield start
    for peer in peers:
        peer.transport.stop()


def _settle(peer: Peer, filter_: str) -> None:
    probe = filter_.replace("#", "settle").replace("+", "settle")
    hook, peer.hook = peer.hook, None

    def came() -> bool:
        peer.transport.publish(Message(probe, b"settle"))
        return any(bytes(message.payload) == b"settle" for message in peer.messages)

    eventually(came, "the subscription")
    sent = peer.transport.stats()["sent"]
    eventually(lambda: peer.transport.stats()["sent"] >= sent, "the probes")
    quiet = -1
    while quiet != len(peer.messages):
        quiet = len(peer.messages)
        threading.Event().wait(0.03)
    peer.messages[:] = [message for message in peer.messages if bytes(message.payload) != b"settle"]
    peer.hook = hook


@pytest.fixture
def topic() -> str:
    """A topic of this test's own."""
    return f"edged-test/{next(_numbers)}"


def test_every_scheme_has_a_rig(rig: Rig) -> None:
    """A transport added to the registry is held to the contract."""
    covered = {"loopback", "mqtt", "mqtts"}
    assert covered == set(MODULES)
    assert rig.name in covered
    assert rig.open().name in rig.name


@pytest.mark.parametrize("qos", [0, 1])
def test_a_message_arrives_whole(rig: Rig, join: Join, topic: str, qos: int) -> None:
    """Topic, payload, QoS and each property arrive as they were sent; properties are lost only with MQTT 3.1.1."""
    sensor, box = join(), join(f"{topic}/#")
    sent = Message(
        f"{topic}/req", bytes(range(256)), qos, response_topic="edged/v1/resp/u/1", correlation=b"\0\xff" * 8,
        content_type="image/jpeg", expiry_s=60, user=(("deadline-ms", "200"), ("k", "é"), ("k", "")),
    )  # fmt: skip
    assert sensor.transport.publish(sent)
    got = box.wait(1)[0]
    assert (got.topic, bytes(got.payload), got.retain) == (f"{topic}/req", sent.payload, False)
    assert got.qos == (qos if rig.exact_qos else 1)
    found = (got.response_topic, got.correlation, got.content_type, got.user)
    if rig.properties:
        assert found == (sent.response_topic, sent.correlation, sent.content_type, sent.user)
        assert got.expiry_s in (59, 60)
    else:
        assert found == (None, None, None, ())


def test_qos_is_the_lower_of_the_two(join: Join, topic: str) -> None:
    """A subscription at QoS 0 gets QoS 0."""
    box = join(topic, qos=0)
    join().transport.publish(Message(topic, b"x", 1))
    assert box.wait(1)[0].qos == 0


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_a_payload_and_may_change_afterwards(
    join: Join, topic: str, kind: Callable[[bytes], bytes]
) -> None:
    """The caller may reuse its buffer as soon as `publish` returned."""
    box, source = join(topic), bytearray(b"before")
    payload = kind(source) if kind is not memoryview else memoryview(source)
    assert join().transport.publish(Message(topic, payload, 1))
    source[:] = b"after!"
    assert bytes(box.wait(1)[0].payload) == b"before"


def test_a_large_payload(join: Join, topic: str) -> None:
    """A megabyte crosses in many writes and reads, and is the same."""
    box, payload = join(topic), bytes(range(256)) * 4096
    assert join().transport.publish(Message(topic, payload, 1))
    assert box.wait(1)[0].payload == payload


def test_retained(rig: Rig, join: Join, topic: str) -> None:
    """A late subscriber gets the last retained message, marked so; a live one is not marked; empty clears it."""
    sensor, live = join(), join(topic)
    for payload in (b"old", b"new"):
        sensor.transport.publish(Message(topic, payload, 1, retain=True))
    assert [message.retain for message in live.wait(2)] == [False, False]
    late = Peer(rig.open(), [Subscription(topic, 1)], None, None)
    message = late.wait(1)[0]
    assert (bytes(message.payload), message.retain) == (b"new", True)
    sensor.transport.publish(Message(topic, b"", 1, retain=True))
    live.wait(3)
    later = Peer(rig.open(), [Subscription(topic, 1)], None, None)
    sensor.transport.publish(Message(topic, b"marker", 1))
    assert [bytes(message.payload) for message in later.wait(1)] == [b"marker"]
    late.transport.stop()
    later.transport.stop()


@pytest.mark.parametrize("qos", [0, 1])
def test_on_sent_is_called_once_with_a_mark_in_between(join: Join, topic: str, qos: int) -> None:
    """Monotonic ns, not before `publish` was called, not after now; the receiver's mark keeps the same order."""
    sensor, box = join(), join(topic)
    marks: list[int] = []
    before = now_ns()
    for size in (1, 300_000, 5):
        assert sensor.transport.publish(Message(topic, b"x" * size, qos), marks.append)
    messages = box.wait(3)
    eventually(lambda: len(marks) >= 3, "three marks")
    assert before <= marks[0] <= marks[1] <= marks[2] <= now_ns()
    received = [message.received_ns for message in messages]
    assert before < received[0] <= received[1] <= received[2] <= now_ns()
    sensor.transport.stop()
    assert len(marks) == 3


def test_nothing_a_callback_raises_stops_the_thread(join: Join, topic: str) -> None:
    """on_message and on_sent may fail: it is counted, and the next message is served."""

    def fail(_any: object) -> None:
        raise RuntimeError("the caller's own fault")

    sensor, box = join(), join(topic, hook=fail)
    for _ in range(2):
        sensor.transport.publish(Message(topic, b"x", 1), fail)
    box.wait(2)
    eventually(lambda: box.transport.stats()["callback_errors"] == 2, "two errors of on_message")
    eventually(lambda: sensor.transport.stats()["callback_errors"] == 2, "two errors of on_sent")


def test_publishing_in_a_callback(join: Join, topic: str) -> None:
    """An answer may be published from on_message, also when it is large."""
    box = join(f"{topic}/req", hook=lambda message: box.transport.publish(Message(f"{topic}/resp", message.payload, 1)))
    sensor = join(f"{topic}/resp")
    for _ in range(5):
        sensor.transport.publish(Message(f"{topic}/req", b"x" * 100_000, 1))
    assert [len(message.payload) for message in sensor.wait(5)] == [100_000] * 5


def test_many_threads_may_publish(join: Join, topic: str) -> None:
    """Four threads at once: each message arrives whole, each mark is called once."""
    sensor, box = join(), join(f"{topic}/#")
    marks: list[int] = []

    def publish(number: int) -> None:
        for _ in range(40):
            assert sensor.transport.publish(Message(f"{topic}/{number}", bytes((number,)) * 20_000, 1), marks.append)

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    messages = box.wait(160)
    eventually(lambda: len(marks) == 160, "all marks")
    for message in messages:
        assert bytes(message.payload) == bytes((int(message.topic[-1]),)) * 20_000


def test_stop_flushes(join: Join, topic: str) -> None:
    """What was accepted before `stop` is delivered."""
    sensor, box = join(), join(topic)
    accepted = [sensor.transport.publish(Message(topic, b"x" * 1000, 1)) for _ in range(100)]
    sensor.transport.stop(timeout_s=10)
    assert all(accepted)
    assert len(box.wait(100)) == 100
    assert sensor.transport.stats()["dropped_stopped"] == 0


def test_will_after_a_kill_and_not_after_stop(join: Join, topic: str) -> None:
    """A killed process leaves its will, a stopped one does not."""
    watch = join(f"{topic}/#")
    stopped = join(will=Message(f"{topic}/stopped", b"lost", 1))
    killed = join(will=Message(f"{topic}/killed", b"lost", 1, retain=True))
    stopped.transport.stop()
    killed.kill()
    watch.wait(1)
    join().transport.publish(Message(f"{topic}/marker", b"", 1))
    assert [message.topic for message in watch.wait(2)] == [f"{topic}/killed", f"{topic}/marker"]


@pytest.mark.parametrize("bad", [Message("a/+", b""), Message("", b""), Message("a\0b", b""), Message("a", b"", qos=3)])
def test_what_cannot_be_published_is_dropped_and_counted(join: Join, topic: str, bad: Message) -> None:
    """A topic that would make the broker hang up never reaches it; the connection goes on."""
    sensor, box = join(), join(topic)
    assert not sensor.transport.publish(bad)
    assert sensor.transport.stats()["dropped_invalid"] == 1
    assert sensor.transport.refusal(bad)
    assert not sensor.transport.refusal(Message(topic, b"x", 1))
    assert sensor.transport.publish(Message(topic, b"x", 1))
    box.wait(1)
    assert sensor.transport.stats()["disconnects"] == 0


def test_life_cycle(rig: Rig, join: Join, topic: str) -> None:
    """Starting twice and bad filters are errors; stopping twice, or before the start, is nothing."""
    rig.open().stop()
    peer = join(topic)
    with pytest.raises(InternalError):
        peer.transport.start(lambda _message: None, [])
    with pytest.raises(UsageError):
        rig.open().start(lambda _message: None, [Subscription("a/#/b", 0)])
    peer.transport.stop()
    peer.transport.stop()
    assert not peer.transport.publish(Message(topic, b"x", 1))
    assert peer.transport.stats()["dropped_stopped"] == 1
    assert peer.states[0][0] is True


def test_stop_in_a_callback(join: Join, topic: str) -> None:
    """A transport may be stopped from its own thread."""
    ended = threading.Event()

    def stop(_message: Message) -> None:
        box.transport.stop()
        ended.set()

    box = join(topic, hook=stop)
    join().transport.publish(Message(topic, b"x", 1))
    assert ended.wait(10)

"""The MQTT transport against a real mosquitto that stalls, restarts, cuts, refuses; and against other clients."""

from __future__ import annotations

import resource
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.brokers import FaultProxy, eventually, heard, mosquitto, require_mosquitto, tls_files

from edged.broker import EmbeddedBroker
from edged.errors import BadDataError
from edged.transports import mqtt_paho, mqtt_stock
from edged.transports.base import Message, Subscription
from edged.transports.mqtt import MqttSettings, MqttTransport

_FAST = {"reconnect_min_s": 0.02, "reconnect_max_s": 0.1}


class _Client:
    """A transport that keeps what it hears and how its connection fared."""

    def __init__(self, url: str, *filters: str, will: Message | None = None, **options: Any) -> None:
        self.transport = MqttTransport(MqttSettings.from_url(url, **{**_FAST, **options}))
        self.heard, self.states, self.marks = list[bytes](), list[tuple[bool, str]](), list[int]()
        self.transport.start(
            lambda message: self.heard.append(bytes(message.payload)),
            [Subscription(wish, 1) for wish in filters],
            will=will,
            on_connection=lambda *state: self.states.append(state),
        )

    def publish(self, topic: str, payload: bytes, qos: int = 1) -> bool:
        return self.transport.publish(Message(topic, payload, qos), self.marks.append)

    def stat(self, name: str) -> int:
        return self.transport.stats()[name]

    def reaches(self, name: str, value: int = 1) -> None:
        eventually(lambda: self.stat(name) >= value, f"{name} = {value}, stats {self.transport.stats()}")

    def socket(self) -> socket.socket:
        assert self.transport._link is not None
        found = self.transport._link.client.socket()
        assert isinstance(found, socket.socket)
        return found


Connect = Callable[..., _Client]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Make clients; they are stopped at the end."""
    clients: list[_Client] = []

    def make(url: str, *filters: str, wait: bool = True, **options: Any) -> _Client:
        clients.append(_Client(url, *filters, **options))
        if wait:
            clients[-1].reaches("connects")
        return clients[-1]

    yield make
    for client in clients:
        client.transport.stop(timeout_s=0.5)


@pytest.fixture(params=[True, False], ids=["marks", "stock-paho"])
def any_paho(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With our marks, and as if an unknown paho were installed."""
    if not request.param:
        monkeypatch.setattr(mqtt_paho, "hooks_fit", lambda: False)


def _subscribed(client: _Client, topic: str) -> None:
    """Wait until messages of its own come through, then forget them."""

    def came() -> bool:
        client.publish(topic, b"probe", 0)
        return b"probe" in client.heard

    eventually(came, "the subscription")
    eventually(lambda: client.stat("outgoing_messages") == 0, "the probes")
    time.sleep(0.05)
    client.heard.clear()
    client.marks.clear()


@pytest.mark.broker
def test_installed_paho_has_the_marks() -> None:
    """With the paho of this environment the precise path is the one in use (else the tests below test another)."""
    assert mqtt_paho.hooks_fit()


@pytest.mark.broker
def test_broker_comes_late(connect: Connect) -> None:
    """The daemon may start first: it keeps trying, says once why, and connects when the broker is there."""
    with mosquitto() as broker:
        broker.kill()
        client = connect(broker.url_v5, "t", wait=False)
        client.reaches("connect_failures", 3)
        assert client.states == [(False, "Connection refused")]
        broker.restart()
        client.reaches("connects")
        eventually(lambda: client.states[1:] == [(True, "MQTT 5")], "the report")
        _subscribed(client, "t")


@pytest.mark.broker
def test_unknown_host_is_a_reason(connect: Connect) -> None:
    """A name that does not resolve is told like any other failure."""
    client = connect("mqtt://host.invalid", wait=False)
    client.reaches("connect_failures")
    assert client.states[0][1]


@pytest.mark.broker
@pytest.mark.usefixtures("any_paho")
def test_broker_restart(connect: Connect) -> None:
    """After a crash of the broker: QoS 0 was refused and counted, QoS 1 kept and delivered, subscriptions made anew."""
    with mosquitto() as broker:
        client = connect(broker.url_v5, "t")
        _subscribed(client, "t")
        broker.kill()
        client.reaches("disconnects")
        assert not client.publish("t", b"lost", 0)
        assert client.stat("dropped_disconnected") == 1
        assert all(client.publish("t", b"kept %d" % n) for n in range(50))
        assert client.marks == []
        broker.restart()
        eventually(lambda: len(set(client.heard)) == 50, "50 kept messages")
        eventually(lambda: len(client.marks) == 50, "50 marks")
        assert list(dict.fromkeys(client.heard)) == [b"kept %d" % n for n in range(50)]
        assert [state[0] for state in client.states].count(True) == 2


@pytest.mark.broker
@pytest.mark.usefixtures("any_paho")
def test_a_stalled_broker_bounds_the_queue(connect: Connect) -> None:
    """SIGSTOP: publishing goes on at once, the bound is held, the rest is dropped and counted; then all flows."""
    bound = 4_000_000
    with mosquitto() as broker:
        client, box = connect(broker.url_v5, max_outgoing_bytes=bound), connect(broker.url_v5, "t")
        _subscribed(box, "t")
        broker.suspend()
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begun = time.monotonic()
        accepted = sum(client.publish("t", b"x" * 100_000, 0) for _ in range(1000))
        assert time.monotonic() - begun < 5  # far under the keepalive: nothing waited for the broker
        assert client.stat("dropped_outgoing_full") == 1000 - accepted > 0
        assert client.stat("outgoing_bytes") <= bound
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - rss < 60_000  # KiB; unbounded it is 100 MB
        broker.resume()
        eventually(lambda: len(client.marks) == accepted, "a mark for each accepted message")
        eventually(lambda: len(box.heard) == accepted, "each accepted message")


@pytest.mark.broker
def test_bound_in_messages(connect: Connect) -> None:
    """QoS 1 without a broker is held up to the bound in messages."""
    client = connect("mqtt://127.0.0.1:1", wait=False, max_outgoing_messages=5)
    assert [client.publish("t", b"x") for _ in range(7)] == [True] * 5 + [False] * 2
    assert client.stat("dropped_outgoing_full") == 2
    client.transport.stop(timeout_s=0.1)
    assert client.stat("dropped_stopped") == 5


@pytest.mark.broker
@pytest.mark.usefixtures("any_paho")
def test_a_cut_connection_loses_nothing_silently(connect: Connect) -> None:
    """Cut with full buffers: QoS 0 is sent or counted as lost; QoS 1 arrives; each mark comes once."""
    with mosquitto() as broker, FaultProxy(broker.port) as proxy:
        box = connect(broker.url_v5, "t")
        _subscribed(box, "t")
        client = connect(f"mqtt://127.0.0.1:{proxy.port}")
        proxy.blackhole()
        unacknowledged = sum(client.publish("zero", b"x" * 200_000, 0) for _ in range(100))
        zero_marks = client.marks
        client.marks = []
        assert all(client.publish("t", b"one %d" % n) for n in range(30))
        proxy.cut()
        proxy.unblock()
        client.reaches("connects", 2)
        eventually(lambda: set(box.heard) == {b"one %d" % n for n in range(30)}, "QoS 1")
        eventually(lambda: client.stat("outgoing_messages") == 0, "an empty queue")
        assert len(zero_marks) + client.stat("dropped_connection_lost") == unacknowledged == 100
        assert client.stat("dropped_connection_lost") > 0
        assert len(client.marks) == 30


@pytest.mark.broker
def test_a_half_open_connection_is_noticed(connect: Connect) -> None:
    """The peer is gone without a word: the keepalive finds out, and the client connects again."""
    with mosquitto() as broker, FaultProxy(broker.port) as proxy:
        client = connect(f"mqtt://127.0.0.1:{proxy.port}", keepalive_s=1)
        proxy.blackhole()
        client.reaches("disconnects")
        proxy.unblock()
        client.reaches("connects", 2)
        assert client.states[1][1] == "connection lost: Keep alive timeout"


@pytest.mark.broker
def test_too_large_for_the_broker_is_refused_here(connect: Connect) -> None:
    """CONNACK's Maximum Packet Size is kept to, to the byte; the connection stays up."""
    limit = 5000
    with mosquitto(f"max_packet_size {limit}") as broker:
        client = connect(broker.url_v5, "t")
        _subscribed(client, "t")
        overhead = 1 + 2 + 2 + 1 + 2 + 1  # type, remaining length, topic, packet id, no properties
        assert not client.publish("t", b"x" * (limit - overhead + 1))
        assert client.publish("t", b"x" * (limit - overhead))
        eventually(lambda: len(client.heard) == 1, "the largest message")
        assert (client.stat("dropped_too_large"), client.stat("disconnects")) == (1, 0)


@pytest.mark.broker
def test_too_large_before_the_limit_was_known(connect: Connect) -> None:
    """What waited for the first connection and turns out too large is taken out and counted; the rest is delivered."""
    with mosquitto("max_packet_size 5000") as broker:
        broker.kill()
        client = connect(broker.url_v5, "t", wait=False)
        for payload in (b"first", b"x" * 50_000, b"last"):
            assert client.publish("t", payload)
        broker.restart()
        eventually(lambda: client.heard == [b"first", b"last"], "the small ones")
        eventually(lambda: client.stat("outgoing_messages") == 0, "an empty queue")
        assert (client.stat("dropped_too_large"), client.stat("disconnects"), len(client.marks)) == (1, 0, 2)


@pytest.mark.broker
def test_a_poison_message_is_given_up(connect: Connect) -> None:
    """MQTT 3.1.1 tells no limit: a message that kills connection after connection is dropped, counted, not repeated."""
    with mosquitto("max_packet_size 5000") as broker:
        client = connect(broker.url_v3, "t", protocol="3.1.1")
        assert client.publish("t", b"x" * 50_000)
        assert client.publish("t", b"small")
        client.reaches("dropped_poison")
        eventually(lambda: b"small" in client.heard, "the small one")
        eventually(lambda: client.stat("outgoing_messages") == 0, "an empty queue")
        assert client.stat("dropped_poison") == 1


@pytest.mark.broker
def test_two_clients_with_one_id(connect: Connect) -> None:
    """They cut each other off: the delay grows, and the reason says what it looks like."""
    with mosquitto() as broker:
        first = connect(broker.url_v5, client_id="edged-press-07")
        connect(broker.url_v5, client_id="edged-press-07")
        first.reaches("disconnects", 4)
        eventually(
            lambda: any("another client use the client id edged-press-07?" in text for _, text in first.states),
            "the hint",
        )


@pytest.mark.broker
@pytest.mark.parametrize("resume", [True, False])
def test_session(connect: Connect, resume: bool) -> None:
    """With `resume` a new process gets what came while it was away, without it starts clean."""
    with mosquitto() as broker:
        options = {"client_id": "edged-press-07", "resume": resume}
        connect(broker.url_v5, "t", **options).transport.stop()
        subprocess.run(["mosquitto_pub", "-p", str(broker.port), "-q", "1", "-t", "t", "-m", "while away"], check=True)
        again = connect(broker.url_v5, "t", **options)
        _ = again.publish("t", b"marker")
        eventually(lambda: b"marker" in again.heard, "the marker")
        assert (b"while away" in again.heard) is resume


@pytest.mark.broker
@pytest.mark.parametrize("on", [True, False])
def test_socket_options(connect: Connect, on: bool) -> None:
    """Nagle is off on every connection, also after a reconnect, unless a benchmark asks for it."""
    with mosquitto() as broker, FaultProxy(broker.port) as proxy:
        client = connect(f"mqtt://127.0.0.1:{proxy.port}", nodelay=on)
        for connections in (1, 2):
            client.reaches("connects", connections)
            assert bool(client.socket().getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)) is on
            proxy.cut()
        client.reaches("connects", 3)


def _heard(client: _Client, count: int) -> bool:
    return len(client.heard) >= count


@pytest.mark.broker
@pytest.mark.usefixtures("any_paho")
def test_quickack_is_rearmed_at_each_packet(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time something arrives, in both ways to receive; never when it is switched off."""
    rearmed: list[object] = []
    monkeypatch.setattr(mqtt_stock, "rearm_quickack", rearmed.append)
    with mosquitto() as broker:
        silent = connect(broker.url_v5, "t", quickack=False)
        _subscribed(silent, "t")
        assert rearmed == []
        client = connect(broker.url_v5, "t")
        before = len(rearmed)
        for number in range(10):
            assert client.publish("t", b"x")
            eventually(partial(_heard, client, number + 1), "the message")
        assert len(rearmed) - before >= 10  # messages, whose acknowledgements may come with them


@pytest.mark.broker
def test_an_independent_requester(connect: Connect) -> None:
    """mosquitto_rr, which is not ours, gets its answer on its response topic with its correlation data."""
    require_mosquitto("mosquitto_rr")
    with mosquitto() as broker:
        transport = MqttTransport(MqttSettings.from_url(broker.url_v5))

        def answer(request: Message) -> None:
            topic = request.response_topic or ""
            transport.publish(Message(topic, b"re: " + bytes(request.payload), 1, correlation=request.correlation))

        transport.start(answer, [Subscription("req", 1)])
        eventually(lambda: transport.stats()["connects"] == 1, "the connection")
        command = ["mosquitto_rr", "-V", "5", "-p", str(broker.port), "-q", "1", "-t", "req", "-e", "resp/1", "-W", "5"]
        more = ["-m", "window", "-D", "publish", "correlation-data", "c-7", "-F", "%p %D"]
        said = subprocess.run([*command, *more], capture_output=True, text=True, check=True)
        transport.stop()
    assert said.stdout.split("\n")[0] == "re: window c-7"


@pytest.mark.broker
def test_an_independent_listener(connect: Connect) -> None:
    """mosquitto_sub sees content type, properties and the retained flag of what we publish."""
    with mosquitto(tools=("mosquitto_sub",)) as broker:
        client = connect(broker.url_v5)
        message = Message("s", b"ready", 1, True, content_type="application/json", user=(("boot", "b1"),))
        assert client.transport.publish(message)
        eventually(lambda: client.stat("sent") == 1, "the acknowledgement")
        assert heard(broker, "s", "%r %p %C %P") == ["1 ready application/json boot:b1"]


@pytest.mark.broker
def test_tls(connect: Connect, tmp_path: Path) -> None:
    """A certificate of another CA is refused with a TLS reason; a client certificate is the login."""
    files = tls_files(tmp_path)
    lines = [f"cafile {files['ca.pem']}", f"certfile {files['server.pem']}", f"keyfile {files['server.key']}"]
    lines += ["require_certificate true", "use_identity_as_username true", "allow_anonymous false"]
    (tmp_path / "acl").write_text("pattern readwrite own/%u/#\n")
    with mosquitto(*lines, f"acl_file {tmp_path / 'acl'}") as broker:
        url = f"mqtts://127.0.0.1:{broker.port}"
        certificate = {"cert_file": files["client.pem"], "key_file": files["client.key"]}
        client = connect(url, "own/press-07/#", ca_file=files["ca.pem"], **certificate)
        _subscribed(client, "own/press-07/x")
        assert client.publish("own/press-08/x", b"")
        client.reaches("publishes_refused")


@pytest.mark.broker
def test_tls_mistakes(connect: Connect, tmp_path: Path) -> None:
    """An unknown CA is a reason to report; a missing or wrong file is an error at the start."""
    files = tls_files(tmp_path)
    lines = [f"cafile {files['ca.pem']}", f"certfile {files['server.pem']}", f"keyfile {files['server.key']}"]
    with mosquitto(*lines) as broker:
        url = f"mqtts://127.0.0.1:{broker.port}"
        client = connect(url, wait=False)
        client.reaches("connect_failures")
        assert client.states[0][1].startswith("TLS: ")
        assert "CERTIFICATE_VERIFY_FAILED" in client.states[0][1]
    for wrong, what in ((tmp_path / "no.pem", "no such file"), (files["server.ext"], "not usable for TLS")):
        with pytest.raises(BadDataError, match=what):
            connect(url, ca_file=wrong)


@pytest.mark.broker
def test_tls_to_a_plain_port_is_explained(connect: Connect) -> None:
    """OpenSSL's words alone tell nobody that the port is the wrong one."""
    with mosquitto() as broker:
        client = connect(f"mqtts://127.0.0.1:{broker.port}", wait=False)
        client.reaches("connect_failures")
        assert "does this port speak TLS?" in client.states[0][1]


@pytest.mark.broker
def test_stop_while_the_broker_stalls_ends_in_time(connect: Connect) -> None:
    """The bound of `stop` holds when nothing can be written any more, and what was left is counted."""
    with mosquitto() as broker:
        client = connect(broker.url_v5)
        broker.suspend()
        assert client.publish("t", b"x")
        begun = time.monotonic()
        client.transport.stop(timeout_s=0.3)
        assert time.monotonic() - begun < 5
        assert client.stat("dropped_stopped") == 1
        broker.resume()


def test_embedded_broker_is_mosquitto_when_it_is_there() -> None:
    """What these tests ran on."""
    require_mosquitto()
    with EmbeddedBroker() as broker:
        assert broker.kind == "mosquitto"
        assert broker.url_v3 == broker.url_v5

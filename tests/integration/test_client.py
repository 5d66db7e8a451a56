"""The SDK over real brokers, against devices that hold no code of ours (bare paho), and through faults."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from support.brokers import FaultProxy, eventually, mosquitto, require_iotcore, require_mosquitto
from support.watcher import Watcher

from edged import Client
from edged.broker import EmbeddedBroker
from edged.errors import BadDataError, Code, RequestError, UnavailableError

DEVICE = "press-07"
WINDOW = np.array([[1, 2.5, -3]], np.float32)
Behaviour = Callable[["Device", Any, int], None]


class Device:
    """Answers requests by doubling float32 payloads. `seen` counts the requests of each correlation."""

    def __init__(self, port: int, *, protocol: int = paho.MQTTv5, behaviour: Behaviour | None = None) -> None:
        self.behaviour: Behaviour = behaviour or (lambda device, message, _nth: device.answer(message))
        self.seen: dict[object, int] = {}
        self._v5 = protocol == paho.MQTTv5
        self._subscribed = threading.Event()
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=protocol)
        self.client.on_connect = lambda client, *_: client.subscribe(f"edged/v1/dev/{DEVICE}/req/#", 1)
        self.client.on_subscribe = lambda *_: self._subscribed.set()
        self.client.on_message = self._on_message
        self.client.reconnect_delay_set(1, 1)
        self.client.connect("127.0.0.1", port)

    def __enter__(self) -> Device:
        self.client.loop_start()
        assert self._subscribed.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def _on_message(self, _client: paho.Client, _data: object, message: paho.MQTTMessage) -> None:
        key = message.properties.CorrelationData if self._v5 else message.topic.split("/")[8]
        self.seen[key] = self.seen.get(key, 0) + 1
        self.behaviour(self, message, self.seen[key])

    def answer(self, message: paho.MQTTMessage) -> None:
        """Send the doubled array, npy in and out."""
        header, data = message.payload[:128], np.frombuffer(message.payload[128:], "<f4")
        doubled = header + (data * 2).tobytes()
        if not self._v5:
            levels = message.topic.split("/")
            self.client.publish(f"edged/v1/resp/{levels[7]}/{levels[8]}", doubled, 1)
            return
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.CorrelationData = message.properties.CorrelationData
        properties.ContentType = message.properties.ContentType
        properties.UserProperty = [("status", "ok"), ("meta", f"v=1;o=y:float32:1x{data.size}")]
        self.client.publish(message.properties.ResponseTopic, doubled, 1, properties=properties)


@pytest.fixture(params=["5", "3.1.1"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _device(broker: EmbeddedBroker, protocol: str, **options: Any) -> Device:
    port = int((broker.url_v5 if protocol == "5" else broker.url_v3).rpartition(":")[2])
    return Device(port, protocol=paho.MQTTv5 if protocol == "5" else paho.MQTTv311, **options)


def _client(broker: EmbeddedBroker, protocol: str, **options: Any) -> Client:
    url = broker.url_v5 if protocol == "5" else broker.url_v3
    client = Client(url, user="line", protocol=protocol, **options)
    client.connect()
    return client


def _only(result: Any) -> Any:
    (array,) = result.outputs.values()
    return array


def test_each_protocol_on_each_broker(broker: EmbeddedBroker, protocol: str) -> None:
    """An answer comes back through mosquitto and rumqttd, in MQTT 5 and 3.1.1, sent once."""
    with _device(broker, protocol), _client(broker, protocol) as client:
        result = client.infer(DEVICE, "m", WINDOW, deadline_ms=20_000)
    np.testing.assert_array_equal(_only(result), WINDOW * 2)
    assert _only(result).dtype == np.float32


def test_auto_speaks_mqtt_5_where_it_can(mosquitto: EmbeddedBroker) -> None:
    """The default gets raw answers with their meta from a device that speaks MQTT 5 only."""
    with _device(mosquitto, "5"), _client(mosquitto, "auto") as client:
        assert client.infer(DEVICE, "m", WINDOW, deadline_ms=20_000).meta.version == 1


def test_auto_falls_back_to_311() -> None:
    """A listener that closes on MQTT 5 is asked again in 3.1.1, and the answer is read without properties."""
    require_iotcore()
    with (
        EmbeddedBroker("iotcore") as broker,
        _device(broker, "3.1.1"),
        Client(broker.url_v3, reconnect_min_s=0.05) as client,
    ):
        client.connect(30)
        result = client.infer(DEVICE, "m", WINDOW, deadline_ms=20_000)
    assert result.codec == "npy"
    np.testing.assert_array_equal(_only(result), WINDOW * 2)


def test_hundred_in_flight_are_answered_right(mosquitto: EmbeddedBroker, protocol: str) -> None:
    """100 requests at once from 8 threads, each with other numbers: each caller gets the double of its own."""
    with _device(mosquitto, protocol), _client(mosquitto, protocol) as client, ThreadPoolExecutor(8) as pool:
        arrays = [WINDOW + number for number in range(100)]
        futures = list(pool.map(lambda a: client.infer_async(DEVICE, "m", a, deadline_ms=60_000), arrays))
        for array, future in zip(arrays, futures, strict=True):
            np.testing.assert_array_equal(_only(future.result(60)), array * 2)
        stats = client.stats()
    assert (stats["sent"], stats["answered"], stats["lost"]) == (100, 100, 0)


def test_unanswered_request_is_sent_again_as_the_same(mosquitto: EmbeddedBroker, protocol: str) -> None:
    """The device hears one correlation three times and answers the third; the caller sees one answer."""
    third = lambda device, message, nth: device.answer(message) if nth == 3 else None  # noqa: E731
    with _device(mosquitto, protocol, behaviour=third) as device, _client(mosquitto, protocol, resend_s=0.05) as client:
        assert client.infer(DEVICE, "m", WINDOW, deadline_ms=30_000).resends >= 2
        assert len(device.seen) == 1
        assert client.stats()["answered"] == 1


def test_duplicate_replies_are_dropped(mosquitto: EmbeddedBroker, protocol: str) -> None:
    """A device that answers everything twice is seen to answer once."""

    def twice(device: Device, message: paho.MQTTMessage, _nth: int) -> None:
        device.answer(message)
        device.answer(message)

    with _device(mosquitto, protocol, behaviour=twice), _client(mosquitto, protocol) as client:
        for _ in range(3):
            client.infer(DEVICE, "m", WINDOW, deadline_ms=20_000)
        eventually(lambda: client.stats()["duplicates"] == 3, "three duplicates counted")
        assert client.stats()["answered"] == 3


def test_two_clients_of_one_user_do_not_mix_their_answers(mosquitto: EmbeddedBroker, protocol: str) -> None:
    """Replies go to their own client; what a 3.1.1 client hears of another's counts as foreign."""
    with _device(mosquitto, protocol), _client(mosquitto, protocol) as one, _client(mosquitto, protocol) as two:
        for number in range(5):
            np.testing.assert_array_equal(
                _only(one.infer(DEVICE, "m", WINDOW + number, deadline_ms=20_000)), (WINDOW + number) * 2
            )
            np.testing.assert_array_equal(
                _only(two.infer(DEVICE, "m", WINDOW - number, deadline_ms=20_000)), (WINDOW - number) * 2
            )
        heard = 0 if protocol == "5" else 5
        eventually(lambda: one.stats()["foreign"] == two.stats()["foreign"] == heard, f"{heard} foreign replies each")


def test_broker_killed_in_the_middle(protocol: str) -> None:
    """Requests in flight when the broker is killed are answered after its restart, each once, none lost."""
    with mosquitto() as broker, _device(broker, protocol) as device, _client(broker, protocol) as client:
        client.infer(DEVICE, "m", WINDOW, deadline_ms=20_000)
        device.behaviour = lambda *_: None
        futures = [client.infer_async(DEVICE, "m", WINDOW + n, deadline_ms=60_000) for n in range(20)]
        eventually(lambda: len(device.seen) == 21, "all requests at the device")
        broker.kill()
        device.behaviour = lambda device, message, _nth: device.answer(message)
        broker.restart()
        for number, future in enumerate(futures):
            np.testing.assert_array_equal(_only(future.result(60)), (WINDOW + number) * 2)
        stats = client.stats()
    assert (stats["answered"], stats["lost"]) == (21, 0)


def test_cut_connection_in_the_middle(mosquitto: EmbeddedBroker, protocol: str) -> None:
    """The client's own connection breaks while it waits: it comes back and asks again."""
    first_lost = lambda device, message, nth: device.answer(message) if nth > 1 else None  # noqa: E731
    with (
        _device(mosquitto, protocol, behaviour=first_lost) as device,
        FaultProxy(mosquitto.port) as proxy,
        Client(f"mqtt://127.0.0.1:{proxy.port}", protocol=protocol, resend_s=1000) as client,
    ):
        client.connect()
        future = client.infer_async(DEVICE, "m", WINDOW, deadline_ms=60_000)
        eventually(lambda: device.seen, "the request at the device")
        proxy.cut()
        np.testing.assert_array_equal(_only(future.result(60)), WINDOW * 2)


def test_request_too_large_for_the_broker_fails_at_once() -> None:
    """The broker's limit is known from CONNACK: the error names it, and what fits is still answered."""
    with mosquitto("max_packet_size 5000") as broker, _device(broker, "5"), _client(broker, "5") as client:
        with pytest.raises(RequestError, match="the largest may have 5000") as caught:
            client.infer(DEVICE, "m", np.zeros((1, 2000), np.float32), deadline_ms=600_000)
        assert caught.value.code is Code.INVALID_ARGUMENT
        np.testing.assert_array_equal(_only(client.infer(DEVICE, "m", WINDOW, deadline_ms=20_000)), WINDOW * 2)


def test_missing_tls_file_is_told_at_every_call(tmp_path: Path) -> None:
    """A mistake in the options is not a broker that does not answer."""
    client = Client("mqtts://127.0.0.1", ca_file=tmp_path / "none.pem")
    for _ in range(2):
        with pytest.raises(BadDataError, match=r"none\.pem"):
            client.infer(DEVICE, "m", WINDOW, deadline_ms=600_000)
    client.close()


def test_request_without_a_device_expires_at_the_broker(mosquitto: EmbeddedBroker) -> None:
    """Nobody answers: DEADLINE_EXCEEDED here, and the broker was told how long the request is worth keeping."""
    with Watcher(mosquitto.port, "edged/v1/dev/nobody/#") as watcher, _client(mosquitto, "5") as client:
        with pytest.raises(RequestError, match="no answer from nobody within 300 ms"):
            client.infer("nobody", "m", WINDOW, deadline_ms=300)
        assert watcher.get().properties.MessageExpiryInterval == 1


def test_retained_status_of_any_device(mosquitto: EmbeddedBroker) -> None:
    """A followed device's status is there after connecting; another's is read when asked for; a missing one is None."""
    with Watcher(mosquitto.port) as device, _client(mosquitto, "5", devices=["a"]) as client:
        device.publish("edged/v1/dev/a/status", b'{"state": "ready", "boot": "1"}', retain=True)
        device.publish("edged/v1/dev/b/status", b'{"state": "lost", "boot": "2"}', retain=True)
        assert client.status("a", timeout=10).state == "ready"
        eventually(lambda: client.status("b", timeout=5), "the other device's status")
        assert client.status("b", timeout=10).state == "lost"
        assert client.status("c", timeout=0.3) is None


def test_login_may_do_what_the_contract_says_and_no_more(tmp_path: Path) -> None:
    """With an ACL of exactly the contract's topics the SDK works; the user is the login; a wrong password is told."""
    passwords, acl = tmp_path / "passwords", tmp_path / "acl"
    passwords.write_text("line:secret\n")
    require_mosquitto("mosquitto_passwd")
    subprocess.run(["mosquitto_passwd", "-U", str(passwords)], check=True)
    rights = ["pattern write edged/v1/dev/+/req/+/c/%u/#", "pattern read edged/v1/resp/%u/#"]
    acl.write_text("\n".join(["topic readwrite #", *rights, ""]))  # the first line is the anonymous device's
    with mosquitto(f"password_file {passwords}", f"acl_file {acl}") as broker, _device(broker, "5"):
        for url in (f"mqtt://line:secret@127.0.0.1:{broker.port}", broker.url_v5):
            options = {} if "@" in url else {"username": "line", "password": "secret"}
            with Client(url, **options) as client:
                client.connect()
                assert client.user == "line"
                np.testing.assert_array_equal(_only(client.infer(DEVICE, "m", WINDOW, deadline_ms=20_000)), WINDOW * 2)
        with Client(broker.url_v5, username="line", password="wrong") as client:  # noqa: S106 - it is wrong
            eventually(lambda: "refused" in _trouble(client), "the refusal told")


def _trouble(client: Client) -> str:
    with pytest.raises(UnavailableError) as caught:
        client.connect(timeout=0.2)
    return str(caught.value)

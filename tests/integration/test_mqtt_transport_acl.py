"""The sample configuration under configs/mosquitto in a real mosquitto: nobody reads or writes in another's name."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import tinymodel
from support.brokers import eventually, require_mosquitto
from support.daemons import DaemonProcess

from edged.broker import EmbeddedBroker
from edged.cli import main
from edged.client import Client
from edged.errors import ExitCode
from edged.transports.base import Denied, Message, Subscription
from edged.transports.mqtt import MqttSettings, MqttTransport

_SAMPLES = Path(__file__).parents[2] / "configs" / "mosquitto"
_LOGINS = ("press-07", "press-08", "alice", "mallory", "operator")
_REQUEST = "edged/v1/dev/press-07/req/har/c"


def _lines(directory: Path) -> list[str]:
    """The sample's active lines, with its files in our directory and without its listener and its store."""
    text = (_SAMPLES / "edged.conf").read_text().replace("/etc/mosquitto", str(directory))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    ours = ("listener", "persistence")
    return [line for line in lines if not line.startswith(ours)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A mosquitto with the sample, its ACL and a password file by mosquitto_passwd; password = login."""
    require_mosquitto("mosquitto_passwd")
    directory = tmp_path_factory.mktemp("acl")
    for number, login in enumerate(_LOGINS):
        flags = ["-c", "-b"] if number == 0 else ["-b"]
        subprocess.run(["mosquitto_passwd", *flags, str(directory / "edged.passwd"), login, login], check=True)
    (directory / "edged.acl").write_text((_SAMPLES / "edged.acl").read_text())
    with EmbeddedBroker("mosquitto", lines=_lines(directory)) as running:
        yield running


class _Login:
    def __init__(self, broker: EmbeddedBroker, name: str, *filters: str) -> None:
        settings = MqttSettings.from_url(broker.url_v5, username=name, password=name)
        self.transport, self.heard = MqttTransport(settings), list[tuple[str, bytes]]()
        self.transport.start(
            lambda message: self.heard.append((message.topic, bytes(message.payload))),
            [Subscription(wish, 1) for wish in filters],
        )
        eventually(lambda: self.transport.stats()["connects"] == 1, f"{name} connected")

    def publish(self, topic: str, payload: bytes) -> bool:
        """Publish at QoS 1; whether the broker allowed it."""
        refused, sent = (self.transport.stats()[name] for name in ("publishes_refused", "sent"))
        assert self.transport.publish(Message(topic, payload, 1))
        eventually(lambda: self.transport.stats()["outgoing_messages"] == 0, "the acknowledgement")
        stats = self.transport.stats()
        assert stats["publishes_refused"] + stats["sent"] == refused + sent + 1
        return stats["sent"] == sent + 1


@pytest.fixture
def logins(broker: EmbeddedBroker) -> Iterator[dict[str, _Login]]:
    """The device, another one and a user who both subscribe to everything, an honest user, an operator."""
    all_ = {
        "press-07": _Login(broker, "press-07", "edged/v1/dev/press-07/req/#"),
        "press-08": _Login(broker, "press-08", "#", "edged/v1/dev/press-07/#", "edged/v1/resp/alice/#"),
        "alice": _Login(broker, "alice", "edged/v1/resp/alice/#"),
        "mallory": _Login(broker, "mallory", "#", "edged/v1/resp/alice/#", "edged/v1/dev/press-07/req/#"),
        "operator": _Login(broker, "operator"),
    }
    yield all_
    for login in all_.values():
        login.transport.stop()


def test_request_and_reply_pass_and_nobody_else_sees_them(logins: dict[str, _Login]) -> None:
    """Alice's request (both forms) reaches the device, the reply reaches Alice, and Mallory hears nothing of it."""
    press, alice, mallory = logins["press-07"], logins["alice"], logins["mallory"]
    for topic in (f"{_REQUEST}/alice", f"{_REQUEST}/alice/id7/raw/200"):
        assert alice.publish(topic, b"window")
        eventually(lambda wish=topic: (wish, b"window") in press.heard, "the request")  # type: ignore[misc]
    assert press.publish("edged/v1/resp/alice/1", b"walking")
    eventually(lambda: alice.heard == [("edged/v1/resp/alice/1", b"walking")], "the reply")
    assert press.publish("edged/v1/dev/press-07/status", b"ready")
    eventually(lambda: mallory.heard, "what Mallory may hear")
    assert mallory.heard == [("edged/v1/dev/press-07/status", b"ready")]
    assert {topic for topic, _payload in logins["press-08"].heard} <= {"edged/v1/dev/press-07/status"}


@pytest.mark.parametrize(
    ("login", "topic"),
    [
        ("mallory", f"{_REQUEST}/alice"),
        ("mallory", f"{_REQUEST}/alice/id7/raw"),
        ("mallory", "edged/v1/resp/alice/1"),
        ("mallory", "edged/v1/dev/press-07/status"),
        ("mallory", "edged/v1/dev/press-07/out/imu"),
        ("mallory", "edged/v1/dev/press-07/cmd/drain"),
        ("mallory", "edged/v1/dev/press-07/desired/models"),
        ("alice", "edged/v1/resp/mallory/1"),
        ("press-07", "edged/v1/dev/press-08/status"),
        ("press-08", f"{_REQUEST}/alice"),
        ("press-08", "edged/v1/dev/press-07/status"),
        ("press-08", "edged/v1/dev/press-07/metrics"),
        ("press-08", "edged/v1/dev/press-07/out/imu"),
        ("press-08", "edged/v1/dev/press-07/reported/models"),
        ("press-08", "edged/v1/dev/press-07/event/drain"),
        ("press-08", "edged/v1/dev/press-07/desired/models"),
        ("press-08", "edged/v1/dev/press-07/cmd/drain"),
        ("press-07", "edged/v1/dev/press-07/desired/models"),
        ("press-07", "edged/v1/dev/press-07/cmd/drain"),
        ("operator", "edged/v1/dev/press-07/reported/models"),
        ("operator", "edged/v1/dev/press-07/status"),
    ],
)
def test_what_the_acl_refuses(logins: dict[str, _Login], login: str, topic: str) -> None:
    """Writing in another's name, a forged reply, a forged status, another device's commands: not authorized."""
    assert not logins[login].publish(topic, b"forged")
    assert not any(payload == b"forged" for other in logins.values() for _topic, payload in other.heard)


@pytest.mark.parametrize(
    ("login", "topic"),
    [
        ("operator", "edged/v1/dev/press-07/cmd/drain"),
        ("operator", "edged/v1/dev/press-07/desired/models"),
        ("press-07", "edged/v1/dev/press-07/status"),
        ("press-07", "edged/v1/dev/press-07/metrics"),
        ("press-07", "edged/v1/dev/press-07/out/imu/left"),
        ("press-07", "edged/v1/dev/press-07/reported/models"),
        ("press-07", "edged/v1/dev/press-07/event/drain"),
    ],
)
def test_what_the_acl_allows(logins: dict[str, _Login], login: str, topic: str) -> None:
    """What Mallory may not, the operator may; a device says all that it has to say."""
    assert logins[login].publish(topic, b"{}")


def test_a_real_device_answers_nobody_in_anothers_name(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Under these rules a daemon serves Alice; Mallory, who names her topic for the reply, is refused and counted."""
    tinymodel.write_dense_bundle(tmp_path / "dense")
    (tmp_path / "pw").write_text("press-07\n")
    login = {"username": "press-07", "password_file": str(tmp_path / "pw")}
    config = {"device": "press-07", "broker": login, "models": [{"name": "dense", "bundle": "dense"}]}
    mallory = _Login(broker, "mallory", "edged/v1/dev/press-07/metrics")
    with (
        DaemonProcess(tmp_path, broker.port, config),
        Client(broker.url_v5, username="alice", password="alice") as alice,  # noqa: S106
    ):
        x = np.ones((1, 3), np.float32)
        expected = tinymodel.dense_expected(x)
        for _ in range(2):
            result = alice.infer("press-07", "dense", x, deadline_ms=30_000)
            np.testing.assert_allclose(result.outputs["y"], expected, rtol=1e-6)
            topic, own = "edged/v1/dev/press-07/req/dense/c/mallory", f"edged/v1/resp/alice/{alice._sender.instance}"
            forged = Message(topic, x.tobytes(), 1, response_topic=own, correlation=b"f")
            assert mallory.transport.publish(forged)
        eventually(lambda: mallory.heard and _refused(mallory.heard[-1][1]) == 2, "two refusals")
        assert alice.stats()["foreign"] == 0
    mallory.transport.stop()


def _refused(metrics: bytes) -> int:
    return int(json.loads(metrics)["transport"]["intake"].get("refused_response_topic", 0))


def test_a_wrong_password_is_told(broker: EmbeddedBroker) -> None:
    """The reason names what to check, once, while the attempts go on."""
    settings = MqttSettings.from_url(broker.url_v5, username="alice", password="x", reconnect_min_s=0.01)  # noqa: S106
    transport, states = MqttTransport(settings), list[tuple[bool, str]]()
    transport.start(lambda _message: None, [], on_connection=lambda *state: states.append(state))
    eventually(lambda: transport.stats()["connect_failures"] >= 3, "three refusals")
    transport.stop()
    assert states == [(False, "refused by the broker: Not authorized (check user name, password or certificate)")]
    assert isinstance(states[0][1], Denied)


@pytest.mark.parametrize("protocol", ["auto", "5", "3.1.1"])
def test_a_requester_need_not_wait_for_a_refused_login(
    broker: EmbeddedBroker, protocol: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """`edged infer` and `edged top` end at once, with 69 and one line of the broker's words, and log nothing beside."""
    place = broker.url_v5.replace("mqtt://", "mqtt://alice:wrong@")
    common = ["--broker", place, "--protocol", protocol, "--connect-timeout", "1000"]
    for words in (["infer", *common, "--device", "d", "--model", "m", __file__], ["top", "--once", *common]):
        assert main(words) == ExitCode.UNAVAILABLE
        (line,) = capfd.readouterr().err.splitlines()
        assert "refused by the broker: Not authorized (check user name" in line

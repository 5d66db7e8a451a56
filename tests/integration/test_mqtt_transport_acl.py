"""The sample configuration under configs/mosquitto in a real mosquitto: nobody reads or writes in another's name."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import tinymodel
from support.brokers import eventually, issue, require_mosquitto, tls_files
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
    ours = ("listener", "persistence")  # the store is where the broker of a test keeps it
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
            topic, own = (
                "edged/v1/dev/press-07/req/dense/c/mallory",
                f"edged/v1/resp/alice/{alice._conversation._sender.instance}",
            )
            forged = Message(topic, x.tobytes(), 1, response_topic=own, correlation=b"f")
            assert mallory.transport.publish(forged)
        eventually(lambda: mallory.heard and _refused(mallory.heard[-1][1]) == 2, "two refusals")
        assert alice.stats()["foreign"] == 0
    mallory.transport.stop()


def _refused(metrics: bytes) -> int:
    return int(json.loads(metrics)["transport"]["intake"].get("refused_response_topic", 0))


def test_the_sample_goes_beside_debians_configuration(tmp_path: Path) -> None:
    """In conf.d, where its text says: mosquitto starts, and warns of nothing but the lines for everybody in the ACL."""
    require_mosquitto("mosquitto_passwd")
    subprocess.run(["mosquitto_passwd", "-c", "-b", str(tmp_path / "edged.passwd"), "alice", "alice"], check=True)
    (tmp_path / "edged.acl").write_text((_SAMPLES / "edged.acl").read_text())
    for name in ("edged.passwd", "edged.acl"):
        (tmp_path / name).chmod(0o600)
    sample = (_SAMPLES / "edged.conf").read_text().replace("/etc/mosquitto", str(tmp_path))
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "edged.conf").write_text(sample.replace("listener 1883\n", ""))
    debians = (
        "persistence true",
        f"persistence_location {tmp_path}/",
        f"include_dir {tmp_path}/conf.d",
        "log_type all",
    )
    with EmbeddedBroker("mosquitto", lines=debians) as broker:
        log = broker.log.read_text()
    lines = log.splitlines()
    assert not [line for line in lines if "Error" in line]
    everybody = [line for line in (_SAMPLES / "edged.acl").read_text().splitlines() if line.startswith("pattern read")]
    meant = {line.split()[2] for line in everybody if "%u" not in line}
    assert len(meant) == 5
    warned = [line for line in lines if "arning" in line and "run as root" not in line]  # as this test may be
    assert {line.split("'")[1] for line in warned if "does not contain '%c' or '%u'" in line} == meant
    assert len(warned) == len(meant)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedBroker, dict[str, Path]]]:
    """The sample with its lines for TLS and client certificates in place of its listener, and the files."""
    require_mosquitto()
    directory = tmp_path_factory.mktemp("certificates")
    tls_files(directory)
    issue(directory, "alice", "alice")
    for name in ("edged.acl", "edged.passwd"):
        (directory / name).write_text((_SAMPLES / "edged.acl").read_text() if name == "edged.acl" else "")
    text = (_SAMPLES / "edged.conf").read_text().replace("/etc/mosquitto/certs/broker.", f"{directory}/server.")
    (sample := directory / "sample.conf").write_text(text.replace("/etc/mosquitto/certs", str(directory)))
    options = ("cafile", "certfile", "keyfile", "require_certificate", "use_identity_as_username")
    active = [
        line[1:] for line in sample.read_text().splitlines() if line.startswith(tuple(f"#{one}" for one in options))
    ]
    assert len(active) == len(options)
    with EmbeddedBroker("mosquitto", lines=[*active, *_lines(directory)]) as running:
        yield running, {path.name: path for path in directory.iterdir()}


def test_certificates_in_place_of_passwords(
    certificates: tuple[EmbeddedBroker, dict[str, Path]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A device and a requester, each with its own: `--user` is the CN; without it the error says so."""
    broker, files = certificates
    tinymodel.write_dense_bundle(tmp_path / "dense")
    np.save(tmp_path / "x.npy", np.ones((1, 3), np.float32))
    url = f"mqtts://127.0.0.1:{broker.port}"
    own = {"ca_file": files["ca.pem"], "cert_file": files["client.pem"], "key_file": files["client.key"]}
    told = {"url": url, **{name: str(path) for name, path in own.items()}}
    config = {"device": "press-07", "broker": told, "models": [{"name": "dense", "bundle": "dense"}]}
    tls = ["--ca-file", files["ca.pem"], "--cert-file", files["alice.pem"], "--key-file", files["alice.key"]]
    words = ["infer", "--broker", url, *tls, "--device", "press-07", "--model", "dense", tmp_path / "x.npy"]
    with DaemonProcess(tmp_path, broker.port, config):
        assert main([*map(str, words), "--user", "alice", "--deadline-ms", "30000"]) == ExitCode.OK
        assert "answered in" in capfd.readouterr().out
        assert main([*map(str, words), "--deadline-ms", "300"]) == ExitCode.UNAVAILABLE
        assert "takes a certificate's CN for the login, --user must be that CN" in capfd.readouterr().err


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

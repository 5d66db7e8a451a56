"""TLS files and passwords that change under a running daemon, and secrets that stay secret."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import tinymodel
from support.brokers import eventually, issue, mosquitto, tls_files
from support.daemons import DEVICE, DaemonProcess
from support.faulty import DENSE, Asked, serving

from edged import brokerurl
from edged.broker import EmbeddedBroker
from edged.client import Client
from edged.client.connection import requester
from edged.transports.base import Message, Subscription
from edged.transports.mqtt import MqttSettings, MqttTransport

pytestmark = pytest.mark.broker
SECRET = "s3cret-Xq7-never-to-be-seen"  # noqa: S105 (of the test)


class Plant:
    """A broker that wants certificates (their CN is the login), and a daemon with files of its own."""

    def __init__(self, directory: Path) -> None:
        self.files = tls_files(directory)
        lines = [f"cafile {self.files['ca.pem']}", f"certfile {self.files['server.pem']}"]
        lines += [f"keyfile {self.files['server.key']}", "require_certificate true", "use_identity_as_username true"]
        self.lines, self.directory = lines, directory
        for name in ("client.pem", "client.key", "ca.pem"):
            shutil.copy(self.files[name], directory / f"dev-{name}")

    def config(self, port: int) -> dict[str, Any]:
        named = {"ca_file": "dev-ca.pem", "cert_file": "dev-client.pem", "key_file": "dev-client.key"}
        broker = {"url": f"mqtts://127.0.0.1:{port}", **{key: str(self.directory / to) for key, to in named.items()}}
        return serving(DENSE, broker=broker)

    def install(self, name: str) -> None:
        """Replace the daemon's certificate and key, one after the other, as a script would."""
        for kind in ("pem", "key"):
            new = self.directory / f"new.{kind}"
            shutil.copy(self.directory / f"{name}.{kind}", new)
            new.replace(self.directory / f"dev-client.{kind}")

    def spoil(self) -> None:
        """Make files to install: `broken` cannot be read, `foreign` reads well and is of another CA."""
        elsewhere = self.directory / "elsewhere"
        elsewhere.mkdir()
        tls_files(elsewhere)
        for kind in ("pem", "key"):
            shutil.copy(elsewhere / f"client.{kind}", self.directory / f"foreign.{kind}")
            (self.directory / f"broken.{kind}").write_text("-----BEGIN NONSENSE-----\n")

    def client(self, port: int) -> Client:
        files = {"ca_file": self.files["ca.pem"], "cert_file": self.files["client.pem"]}
        return Client(f"mqtts://127.0.0.1:{port}", key_file=self.files["client.key"], devices=[DEVICE], **files)


class Board:
    """The last metrics of the daemon, over TLS."""

    def __init__(self, plant: Plant, port: int) -> None:
        files = {"ca_file": plant.files["ca.pem"], "cert_file": plant.files["client.pem"]}
        settings = MqttSettings.from_url(f"mqtts://127.0.0.1:{port}", key_file=plant.files["client.key"], **files)
        self._transport, self._last = MqttTransport(settings), dict[str, Any]()
        self._transport.start(self._take, [Subscription(f"edged/v1/dev/{DEVICE}/metrics", 0)])

    def _take(self, message: Message) -> None:
        self._last = json.loads(bytes(message.payload))["transport"]

    def reaches(self, name: str, value: int) -> None:
        eventually(lambda: self._last.get(name, 0) >= value, f"{name} = {value}: {self._last}", 20)

    def get(self, name: str) -> int:
        return int(self._last[name])

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *_: object) -> None:
        self._transport.stop()


def logins(broker: EmbeddedBroker) -> list[str]:
    """As whom the daemon connected, in order."""
    lines = broker.log.read_text().splitlines()
    return [line.rpartition("u'")[2].rstrip("').") for line in lines if f"as edged-{DEVICE} (" in line]


def test_certificates_rotate_without_a_restart(tmp_path: Path) -> None:
    """A new certificate is taken up within seconds, between requests: none is lost. Broken files, and files that the
    broker refuses, leave the old ones in use, in the connection and in the next, and are told."""
    plant = Plant(tmp_path)
    issue(tmp_path, "second", "press-08")
    tinymodel.write_dense_bundle(tmp_path / "dense")
    plant.spoil()
    with mosquitto(*plant.lines) as broker, DaemonProcess(tmp_path, 0, plant.config(broker.port)) as daemon:
        with plant.client(broker.port) as client, Board(plant, broker.port) as board:
            eventually(lambda: getattr(client.status(DEVICE), "state", "") == "ready", "ready", 30)
            with Steady(client) as steady:
                plant.install("second")
                board.reaches("renewals", 1)
                plant.install("broken")
                board.reaches("login_files_refused", 1)
                assert (board.get("disconnects"), board.get("connected")) == (1, 1)
                plant.install("foreign")  # reads well, but the broker knows no such CA
                board.reaches("login_files_refused", 2)
                board.reaches("connects", 3)
            assert steady.outcome.keys() == {"ok"}
            assert logins(broker) == ["press-07", "press-08", "press-08"]
            broker.kill()
            plant.install("client")
            broker.restart()
            board.reaches("connects", 4)
            assert Asked(client, 20).outcome() == {"ok": 20}
        assert logins(broker)[-1] == "press-07"
        assert daemon.stop() == 0
    log = daemon.log.read_text()
    assert "the new TLS files cannot be used, the former ones stay in use: " in log
    assert "the broker does not accept the new TLS files, the former ones are used: " in log


class Steady:
    """Requests one after the other in a thread, as long as the block runs."""

    def __init__(self, client: Client) -> None:
        self._client, self._stop, self.outcome = client, threading.Event(), Counter[str]()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            self.outcome += Asked(self._client, 1).outcome()

    def __enter__(self) -> Steady:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker with passwords: the device's is SECRET, that of `ann` is `ann`."""
    set_password(tmp_path, DEVICE, SECRET, "-c")
    set_password(tmp_path, "ann", "ann")
    lines = ("allow_anonymous false", f"password_file {tmp_path / 'passwd'}")
    with mosquitto(*lines, tools=("mosquitto_passwd", "mosquitto_sub")) as broker:
        yield broker


def set_password(directory: Path, login: str, password: str, *flags: str) -> None:
    command = ["mosquitto_passwd", *flags, "-b", str(directory / "passwd"), login, password]
    subprocess.run(command, check=True)


def test_the_password_is_read_at_each_connection(guarded: EmbeddedBroker, tmp_path: Path) -> None:
    """Changed on both sides while the connection is up: the next one logs in with the new. A file that is gone leaves
    the last one in use."""
    tinymodel.write_dense_bundle(tmp_path / "dense")
    (tmp_path / "pw").write_text(f"{SECRET}\n")
    broker = {"username": DEVICE, "password_file": str(tmp_path / "pw")}
    with (
        DaemonProcess(tmp_path, guarded.port, serving(DENSE, broker=broker)) as daemon,
        Client(guarded.url_v5, username="ann", password="ann") as client,  # noqa: S106
    ):
        assert Asked(client, 5).outcome() == {"ok": 5}
        (tmp_path / "pw").write_text("changed\n")
        set_password(tmp_path, DEVICE, "changed")
        guarded.kill()
        guarded.restart()
        assert Asked(client, 5).outcome() == {"ok": 5}
        (tmp_path / "pw").unlink()
        guarded.kill()
        guarded.restart()
        assert Asked(client, 5).outcome() == {"ok": 5}
        assert daemon.stop() == 0
    assert f"the last password stays: {tmp_path / 'pw'}: No such file or directory" in daemon.log.read_text()


def test_a_daemon_never_says_a_secret(guarded: EmbeddedBroker, tmp_path: Path) -> None:
    """The password, looked for in what is said at `debug`: log, status, metrics, `edged check`, the command line."""
    tinymodel.write_dense_bundle(tmp_path / "dense")
    (tmp_path / "pw").write_text(f"{SECRET}\n")
    broker = {"username": DEVICE, "password_file": str(tmp_path / "pw")}
    with DaemonProcess(tmp_path, guarded.port, serving(DENSE, broker=broker, log_level="debug")) as daemon:
        with Client(f"mqtt://ann:ann@127.0.0.1:{guarded.port}") as client:
            assert Asked(client, 3).outcome() == {"ok": 3}
        said = [everything(guarded.port), Path(f"/proc/{daemon.process.pid}/cmdline").read_bytes().decode()]
        set_password(tmp_path, DEVICE, "another")  # the daemon's is wrong now
        guarded.kill()
        guarded.restart()
        eventually(lambda: "refused by the broker: Not authorized" in daemon.log.read_text(), "the refusal")
        said += [edged("check", *json_too, "-c", str(daemon.config)) for json_too in ((), ("--json",))]
        daemon.stop()
    for text in (*said, daemon.log.read_text()):
        assert SECRET not in text


def everything(port: int) -> str:
    """Six messages, a status and a metrics message among them."""
    command = ["mosquitto_sub", "-p", str(port), "-u", "ann", "-P", "ann", "-t", "edged/#", "-C", "6", "-F", "%t %p"]
    said = subprocess.run([*command, "-W", "5"], capture_output=True, text=True, check=False).stdout
    assert f"{DEVICE}/status " in said
    assert f"{DEVICE}/metrics " in said
    return said


def test_a_requester_never_says_a_secret(guarded: EmbeddedBroker, tmp_path: Path) -> None:
    """A refused login, with the password in the URL or in the environment, at `debug`; and what `repr` shows."""
    x = tmp_path / "x.json"
    x.write_text('{"instances": [[1, 2, 3]]}')
    ask = ("infer", "--device", "d", "--model", "m", "--connect-timeout", "5", str(x), "--broker")
    place = f"127.0.0.1:{guarded.port}"
    wrong = f"mqtt://ann:{SECRET}@{place}"
    said = [edged(*ask, wrong), edged(*ask, f"mqtt://{place}", "--username", "ann", EDGED_PASSWORD=SECRET)]
    assert all("refused by the broker: Not authorized" in text for text in said)
    settings = MqttSettings.from_url(wrong)
    parsed = brokerurl.parse(wrong, allow_login=True)
    known = requester(wrong, {"password": SECRET})
    said += [repr(thing) for thing in (settings, MqttTransport(settings), parsed, known, Client(wrong))]
    assert repr(known) == f"Requester({place!r}, username='ann')"
    for text in said:
        assert SECRET not in text


def edged(*words: str, **environment: str) -> str:
    """All that a command says."""
    command = [sys.executable, "-m", "edged", *words, "--log-level", "debug"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)
    return done.stdout + done.stderr


def test_the_cli_speaks_tls_both_ways(tmp_path: Path) -> None:
    """`edged infer` with a certificate of its own gets its answer; without one, one line that says why not."""
    plant = Plant(tmp_path)
    tinymodel.write_dense_bundle(tmp_path / "dense")
    x = tmp_path / "x.json"
    x.write_text('{"instances": [[1, 2, 3]]}')
    with mosquitto(*plant.lines) as broker, DaemonProcess(tmp_path, 0, plant.config(broker.port)):
        files = plant.files
        ask = ["infer", "--broker", f"mqtts://127.0.0.1:{broker.port}", "--ca-file", str(files["ca.pem"])]
        ask += ["--device", DEVICE, "--model", "dense", "--deadline-ms", "20000", str(x)]
        own = ("--cert-file", str(files["client.pem"]), "--key-file", str(files["client.key"]))
        assert '"y"' in edged(*ask, *own, "--json")
        said = edged(*ask, "--connect-timeout", "3").splitlines()[-1]
        assert said.endswith("before the broker answered (does it accept this client's certificate?)")

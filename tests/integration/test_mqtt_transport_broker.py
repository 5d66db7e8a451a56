"""The embedded broker: both kinds, on loopback only, through crash, stall and restart, with clients not ours."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from support.brokers import eventually, heard, require_iotcore, require_mosquitto

from edged import broker as broker_module
from edged.broker import EmbeddedBroker
from edged.errors import UnavailableError, UsageError


@pytest.fixture(params=["mosquitto", "iotcore"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind that is installed."""
    require = {"mosquitto": require_mosquitto, "iotcore": require_iotcore}
    require[request.param]()
    return str(request.param)


class _Bare:
    """paho without our transport."""

    def __init__(self, port: int, version: MQTTProtocolVersion, topic: str) -> None:
        self.heard: list[bytes] = []
        self.client = Client(CallbackAPIVersion.VERSION2, protocol=version)
        self.client.on_message = lambda _client, _data, message: self.heard.append(bytes(message.payload))
        granted: list[object] = []
        self.client.on_subscribe = lambda *arguments: granted.append(arguments)
        self.client.on_connect = lambda client, *_rest: client.subscribe(topic, 1)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        eventually(lambda: granted, "the subscription")

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])


def test_both_versions_and_large_payloads(kind: str) -> None:
    """3.1.1 and MQTT 5 clients meet on one router; a megabyte passes."""
    with EmbeddedBroker(kind) as broker:
        old = _Bare(_port(broker.url_v3), MQTTProtocolVersion.MQTTv311, "t")
        new = _Bare(_port(broker.url_v5), MQTTProtocolVersion.MQTTv5, "t")
        payload = bytes(1_000_000)
        old.client.publish("t", b"from 3", 1)
        new.client.publish("t", payload, 1)
        for side in (old, new):
            eventually(lambda side=side: sorted(side.heard) == sorted([b"from 3", payload]), "both messages")  # type: ignore[misc]
            side.close()
        assert broker.version[0].isdigit()


def test_loopback_only(kind: str) -> None:
    """Nothing outside this machine can reach it."""
    with EmbeddedBroker(kind) as broker:
        assert listening(broker.pid) == {("0100007F", _port(url)) for url in (broker.url_v3, broker.url_v5)}


def listening(pid: int) -> set[tuple[str, int]]:
    """Addresses (as the kernel writes them: 0100007F is 127.0.0.1) and ports on which a process listens."""
    own = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            own.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in own:  # LISTEN
                address, _, port = fields[1].rpartition(":")
                found.add((address, int(port, 16)))
    return found


def test_crash_and_restart_on_the_same_port(kind: str) -> None:
    """`kill` is a crash: the port is closed; `restart` brings it back, also under a new process id."""
    with EmbeddedBroker(kind) as broker:
        before, url = broker.pid, broker.url_v5
        broker.kill()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", _port(url)), timeout=1)
        with pytest.raises(UnavailableError):
            broker.suspend()
        broker.restart()
        assert (broker.pid != before, broker.url_v5) == (True, url)
        socket.create_connection(("127.0.0.1", _port(url)), timeout=1).close()


def test_stop_leaves_nothing(kind: str) -> None:
    """Process and files are gone, also when it was suspended; a second stop is nothing."""
    broker = EmbeddedBroker(kind).start()
    directory, pid = broker.log.parent, broker.pid
    broker.suspend()
    broker.stop()
    broker.stop()
    assert not directory.exists()
    assert not Path(f"/proc/{pid}").exists()


def test_iotcore_is_small() -> None:
    """Short log segments keep it small (with rumqttd's own sample it is over a gigabyte): under 150 MB after 100 MB."""
    require_iotcore()
    with EmbeddedBroker("iotcore") as broker:
        peer = _Bare(broker.port, MQTTProtocolVersion.MQTTv5, "t")
        for _ in range(100):
            peer.client.publish("t", bytes(1_000_000), 1)
        eventually(lambda: len(peer.heard) == 100, "100 MB")
        peer.close()
        pages = int(Path(f"/proc/{broker.pid}/statm").read_text().split()[1])
        assert pages * os.sysconf("SC_PAGE_SIZE") < 150_000_000


def test_iotcore_ends_with_its_parent() -> None:
    """A parent that is killed leaves no broker behind."""
    require_iotcore()
    code = (
        "import os; from edged.broker import EmbeddedBroker;"
        "print(EmbeddedBroker('iotcore').start().port, flush=True); os._exit(9)"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    def gone() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", int(child.stdout))) != 0

    eventually(gone, "the broker's end")


def test_lines_reach_mosquitto() -> None:
    """A line of ours replaces the default of the same name: here nobody is let in."""
    require_mosquitto("mosquitto_sub")
    with EmbeddedBroker("mosquitto", lines=["allow_anonymous false"]) as broker:
        assert heard(broker, "$SYS/#") == []


def test_a_bad_line_is_told() -> None:
    """The error carries what the broker said."""
    require_mosquitto()
    with pytest.raises(UnavailableError, match="no_such_option"):
        EmbeddedBroker("mosquitto", lines=["no_such_option 1"]).start()


def test_nothing_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any broker the error has the line to type; an unknown kind is a mistake."""
    monkeypatch.setattr(broker_module, "find_mosquitto", lambda: None)
    monkeypatch.setattr(broker_module, "find_spec", lambda _name: None)
    for kind in ("auto", "mosquitto", "iotcore"):
        with pytest.raises(UnavailableError, match=r"apt-get install mosquitto, or: pip install"):
            EmbeddedBroker(kind).start()
    with pytest.raises(UsageError, match="emqx"):
        EmbeddedBroker("emqx")

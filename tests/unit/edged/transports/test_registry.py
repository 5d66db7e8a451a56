"""Transports are found by URL scheme and imported only then."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from edged.commands import run
from edged.errors import UsageError
from edged.transports import MODULES, open_transport


@pytest.mark.parametrize("scheme", MODULES)
def test_each_scheme_opens(scheme: str) -> None:
    """Every row of the registry makes a transport with its name."""
    transport = open_transport(f"{scheme}://127.0.0.1")
    assert transport.name in scheme
    assert transport.stats()["connects"] == 0


def test_the_daemon_opens_its_transport_by_the_registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`edged run` names no class: the row of the URL's scheme is what it gets, with what the file says."""
    opened: dict[str, object] = {}

    class Opened(Exception):  # noqa: N818  # ends the command before anything runs
        pass

    def open_url(url: str, **options: object) -> None:
        opened.update(options, url=url)
        raise Opened

    monkeypatch.setitem(sys.modules, "somebody.elses", SimpleNamespace(open_url=open_url))
    monkeypatch.setitem(MODULES, "mqtts", "somebody.elses")
    path = tmp_path / "edged.yaml"
    path.write_text(
        "device: d\nmodels: [{name: m, bundle: b}]\n"
        "broker: {url: 'mqtts://h:1', username: u, ca_file: ca.pem, keepalive_s: 7, protocol: 5}\n"
    )
    with pytest.raises(Opened):
        run.run(argparse.Namespace(config=path, log_level=None))
    expected = {"url": "mqtts://h:1", "client_id": "edged-d", "username": "u", "password": None, "keepalive_s": 7}
    assert opened.items() >= (expected | {"ca_file": tmp_path / "ca.pem", "protocol": "5", "resume": True}).items()


def test_an_unknown_scheme_names_the_known_ones() -> None:
    """The error helps."""
    with pytest.raises(UsageError, match="loopback, mqtt, mqtts"):
        open_transport("amqp://h")


def test_importing_the_package_imports_no_client() -> None:
    """A command that needs no broker does not pay for paho."""
    code = "import sys, edged.transports; sys.exit('paho' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""Transports are found by URL scheme and imported only then."""

from __future__ import annotations

import subprocess
import sys

import pytest

from edged.errors import UsageError
from edged.transports import MODULES, open_transport


@pytest.mark.parametrize("scheme", MODULES)
def test_each_scheme_opens(scheme: str) -> None:
    """Every row of the registry makes a transport with its name."""
    transport = open_transport(f"{scheme}://127.0.0.1")
    assert transport.name in scheme
    assert transport.stats()["connects"] == 0


def test_an_unknown_scheme_names_the_known_ones() -> None:
    """The error helps."""
    with pytest.raises(UsageError, match="loopback, mqtt, mqtts"):
        open_transport("amqp://h")


def test_importing_the_package_imports_no_client() -> None:
    """A command that needs no broker does not pay for paho."""
    code = "import sys, edged.transports; sys.exit('paho' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""The command-line options of commands that connect to a broker as a requester."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from edged import arguments

DEFAULT_BROKER = "mqtt://127.0.0.1:1883"
PASSWORD_VARIABLE = "EDGED_PASSWORD"  # noqa: S105 - the variable's name


def add_broker_options(parser: argparse.ArgumentParser) -> None:
    """Add --broker, --protocol, --username and the TLS files."""
    group = parser.add_argument_group("broker")
    group.add_argument("--broker", default=DEFAULT_BROKER, metavar="URL", help="mqtt[s]://host[:port] (%(default)s)")
    group.add_argument("--protocol", default="auto", choices=("auto", "5", "3.1.1"), help="MQTT version (%(default)s)")
    group.add_argument("--username", help=f"login; its password is read from {PASSWORD_VARIABLE}")
    group.add_argument("--ca-file", type=Path, metavar="FILE", help="certificates that the broker's is checked against")
    group.add_argument("--cert-file", type=Path, metavar="FILE", help="this client's certificate")
    group.add_argument("--key-file", type=Path, metavar="FILE", help="this client's key")
    group.add_argument("--connect-timeout", type=arguments.wait, default=5.0, metavar="S", help="seconds (%(default)s)")


def broker_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the connection's options, as `connection.requester` and `Client` take them."""
    names = ("protocol", "username", "ca_file", "cert_file", "key_file")
    return {name: getattr(args, name) for name in names} | {"password": os.environ.get(PASSWORD_VARIABLE)}

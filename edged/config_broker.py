"""The `broker` section: where the broker is and how to log in. Secrets come from files or the environment only."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple

from edged.checks import Check, Reads, at_least, at_most, not_empty
from edged.errors import ConfigError
from edged.filters import sendable
from edged.schema import Problem

DEFAULT_PORTS = {"mqtt": 1883, "mqtts": 8883}
_URL = re.compile(r"(mqtts?)://(\[[0-9A-Fa-f:.]+\]|[^\s:/?#\[\]@]+)(?::([0-9]{1,5}))?/?")
_MAX_TEXT = 65535


class Address(NamedTuple):
    """Where to connect."""

    host: str
    port: int
    tls: bool


def parse_url(url: str) -> Address:
    """Read `mqtt[s]://host[:port]` (an IPv6 host in brackets); raises ValueError, which never echoes credentials."""
    if "@" in url:
        msg = "credentials do not belong in the URL: use username with password_file or password_env"
        raise ValueError(msg)
    match = _URL.fullmatch(url)
    if match is None:
        msg = f"expected mqtt://host[:port] or mqtts://host[:port], got {url[:60]!r}"
        raise ValueError(msg)
    scheme, host, port = match.groups()
    number = int(port or DEFAULT_PORTS[scheme])
    if not 1 <= number <= 65535:  # noqa: PLR2004
        msg = f"port {number} is not between 1 and 65535"
        raise ValueError(msg)
    return Address(host.strip("[]"), number, scheme == "mqtts")


def _url_problem(url: str) -> str | None:
    try:
        parse_url(url)
    except ValueError as exc:
        return str(exc)
    return None


def _mqtt_text(text: str) -> str | None:
    if sendable(text) and len(text.encode()) <= _MAX_TEXT:
        return None
    return "must be at most 65535 bytes of UTF-8, without control characters"


def _protocol(value: object) -> object:
    return str(value) if type(value) is int else value


MqttText = Annotated[str, not_empty, Check(_mqtt_text)]


@dataclass(frozen=True, kw_only=True)
class BrokerConfig:
    """How to reach the MQTT broker. Times in seconds."""

    REFUSED: ClassVar[Mapping[str, str]] = {
        "password": "a password does not belong in this file: use password_file or password_env",
    }

    url: Annotated[str, Check(_url_problem)] = field(
        metadata={"help": "mqtt://host[:1883], or mqtts://host[:8883] for TLS.", "example": "mqtt://127.0.0.1:1883"}
    )
    username: MqttText | None = field(
        default=None,
        metadata={"help": "Login name; the broker's access rules usually hang on it.", "example": "press-07"},
    )
    password_file: Path | None = field(
        default=None, metadata={"help": "File whose first line is the password.", "example": "broker.password"}
    )
    password_env: Annotated[str, not_empty] | None = field(
        default=None,
        metadata={"help": "Environment variable that holds the password.", "example": "EDGED_BROKER_PASSWORD"},
    )
    ca_file: Path | None = field(
        default=None,
        metadata={"help": "Certificates to trust (PEM), with mqtts; else the system's.", "example": "ca.pem"},
    )
    cert_file: Path | None = field(
        default=None, metadata={"help": "Client certificate (PEM), with mqtts.", "example": "device.pem"}
    )
    key_file: Path | None = field(
        default=None, metadata={"help": "Key of the client certificate (PEM).", "example": "device.key"}
    )
    client_id: MqttText | None = field(
        default=None,
        metadata={"help": "MQTT client id; edged-<device> when left out. Keep it stable.", "example": "edged-press-07"},
    )
    keepalive_s: Annotated[int, at_least(1), at_most(65535)] = field(
        default=30, metadata={"help": "Seconds without traffic after which the connection is probed."}
    )
    protocol: Annotated[Literal["auto", "5", "3.1.1"], Reads(_protocol, "")] = field(
        default="auto", metadata={"help": "MQTT version; auto tries 5 and falls back to 3.1.1."}
    )
    session_expiry_s: Annotated[int, at_least(0), at_most(2**32 - 1)] = field(
        default=3600, metadata={"help": "Seconds the broker keeps the session while we are away (MQTT 5)."}
    )

    @property
    def address(self) -> Address:
        """Host, port and whether it is TLS."""
        return parse_url(self.url)

    def problems(self) -> Iterator[Problem]:
        """Yield what does not go together."""
        tls_files = [name for name in ("ca_file", "cert_file", "key_file") if getattr(self, name) is not None]
        if not self.address.tls:
            yield from (Problem(name, "needs TLS: write the url as mqtts://") for name in tls_files)
        if (self.cert_file is None) != (self.key_file is None):
            missing = "key_file" if self.key_file is None else "cert_file"
            yield Problem(missing, "a client certificate needs both cert_file and key_file")
        if self.password_file is not None and self.password_env is not None:
            yield Problem("password_env", "give password_file or password_env, not both")
        if self.username is None and (self.password_file or self.password_env):
            yield Problem("username", "a password needs a username")

    def password(self) -> str | None:
        """Read the password now; None when none is configured. Raises ConfigError when it cannot be had."""
        if self.password_env is not None:
            value = os.environ.get(self.password_env)
            if not value:
                raise ConfigError("broker.password_env", f"environment variable {self.password_env} is not set")
            return value
        if self.password_file is None:
            return None
        try:
            lines = self.password_file.read_text(encoding="utf-8").splitlines()
        except OSError as exc:
            raise ConfigError("broker.password_file", f"{self.password_file}: {exc.strerror}") from exc
        except UnicodeDecodeError as exc:
            raise ConfigError("broker.password_file", f"{self.password_file}: not UTF-8 text") from exc
        if not lines or not lines[0]:
            raise ConfigError("broker.password_file", f"{self.password_file}: the first line is empty")
        return lines[0]

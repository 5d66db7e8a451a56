"""The `broker` section: where the broker is and how to log in. Secrets come from files or the environment only."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from edged import brokerurl
from edged.brokerurl import BrokerUrl
from edged.checks import Check, Reads, at_least, at_most, not_empty
from edged.errors import ConfigError
from edged.filters import text_problem
from edged.schema import Problem
from edged.wholefile import first_line


def _url_problem(url: str) -> str | None:
    try:
        brokerurl.parse(url, allow_login=False)
    except ValueError as exc:
        return str(exc)
    return None


def _protocol(value: object) -> object:
    return str(value) if type(value) is int else value


MqttText = Annotated[str, Check(text_problem)]


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
        default=None,
        metadata={
            "help": "File whose first line is the password; read at each connection.",
            "example": "broker.password",
        },
    )
    password_env: Annotated[str, not_empty] | None = field(
        default=None,
        metadata={"help": "Environment variable that holds the password.", "example": "EDGED_BROKER_PASSWORD"},
    )
    ca_file: Path | None = field(
        default=None,
        metadata={
            "help": "Certificates to trust (PEM), with mqtts; else the system's. Read again when it changes.",
            "example": "ca.pem",
        },
    )
    cert_file: Path | None = field(
        default=None,
        metadata={
            "help": "Client certificate (PEM), with mqtts. Read again when it or its key changes.",
            "example": "device.pem",
        },
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
    def address(self) -> BrokerUrl:
        """Host, port and whether it is TLS."""
        return brokerurl.parse(self.url, allow_login=False)

    def problems(self) -> Iterator[Problem]:
        """Yield what does not go together."""
        ca, cert, key = (getattr(self, name) is not None for name in brokerurl.TLS_FILES)
        for name, wrong in brokerurl.tls_problems(tls=self.address.tls, ca=ca, cert=cert, key=key):
            yield Problem(name, wrong)
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
            return first_line(self.password_file)
        except (OSError, ValueError) as exc:
            wrong = getattr(exc, "strerror", None) or exc
            raise ConfigError("broker.password_file", f"{self.password_file}: {wrong}") from exc

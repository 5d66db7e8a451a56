"""What an MQTT connection needs to know, read from a URL or given by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import SplitResult, unquote, urlsplit

from edged.errors import UsageError

ProtocolName = Literal["auto", "5", "3.1.1"]
DEFAULT_PORTS = {"mqtt": 1883, "mqtts": 8883}


@dataclass(frozen=True)
class MqttSettings:
    """One connection. Times in seconds, sizes in bytes.

    client_id: empty lets the transport make a random one, which `resume` forbids.
    session_expiry_s: how long the broker keeps the MQTT 5 session after the connection ends; 0 keeps none.
    resume: take up the session an earlier process left (never a clean start); else only the first connect is clean.
    max_outgoing_*: bounds of what was accepted and is not yet written (QoS 0) or acknowledged (QoS 1).
    retry_v5_s: with protocol "auto", how long MQTT 3.1.1 is kept before a new connection tries MQTT 5 again.
    nodelay, quickack: TCP_NODELAY, and TCP_QUICKACK re-armed at each packet; off only to measure what they give.
    """

    host: str
    port: int = 1883
    client_id: str = ""
    protocol: ProtocolName = "auto"
    keepalive_s: int = 30
    session_expiry_s: int = 3600
    resume: bool = False
    tls: bool = False
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    connect_timeout_s: float = 5.0
    reconnect_min_s: float = 0.5
    reconnect_max_s: float = 60.0
    retry_v5_s: float = 600.0
    max_outgoing_bytes: int = 64 * 1024 * 1024
    max_outgoing_messages: int = 10_000
    nodelay: bool = True
    quickack: bool = True

    def __post_init__(self) -> None:
        if self.protocol not in ("auto", "5", "3.1.1"):
            raise UsageError("protocol", f"{self.protocol!r} is not one of auto, 5, 3.1.1")
        if self.resume and not self.client_id:
            raise UsageError("client_id", "a session can only be resumed under a fixed client id")
        if self.key_file and not self.cert_file:
            raise UsageError("key_file", "a key needs its certificate", "set cert_file")

    @classmethod
    def from_url(cls, url: str, **options: Any) -> MqttSettings:
        """Read `mqtt[s]://[user[:password]@]host[:port]`; options are this class's fields and win over the URL.

        Raises UsageError on another scheme, a missing host, a port that is none, or a path.
        """
        parts = urlsplit(url)
        where = _without_password(parts)
        if parts.scheme not in DEFAULT_PORTS:
            raise UsageError(where, "not an mqtt:// or mqtts:// URL", "for example mqtt://127.0.0.1:1883")
        if not parts.hostname:
            raise UsageError(where, "the URL names no host")
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            raise UsageError(where, "the URL goes on after host and port", "topics and options are set elsewhere")
        found: dict[str, Any] = {"host": parts.hostname, "port": _port(parts, where), "tls": parts.scheme == "mqtts"}
        if parts.username:
            found["username"] = unquote(parts.username)
        if parts.password:
            found["password"] = unquote(parts.password)
        return cls(**{**found, **options})


def _port(parts: SplitResult, where: str) -> int:
    try:
        return parts.port or DEFAULT_PORTS[parts.scheme]
    except ValueError as error:
        raise UsageError(where, "the port is not a number from 1 to 65535") from error


def _without_password(parts: SplitResult) -> str:
    """Return the URL as an error message may show it."""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

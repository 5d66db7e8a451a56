"""What an MQTT connection needs to know, read from a URL or given by name."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from edged import brokerurl
from edged.errors import UsageError

ProtocolName = Literal["auto", "5", "3.1.1"]


@dataclass(frozen=True)
class MqttSettings:
    """One connection. Times in seconds, sizes in bytes.

    client_id: empty lets the transport make a random one, which `resume` forbids.
    session_expiry_s: how long the broker keeps the MQTT 5 session after the connection ends; 0 keeps none.
    resume: also the first connect takes up the session that the broker kept from an earlier process. Otherwise the
        first connect discards that session, and later ones resume this process's own.
    ca_file, cert_file, key_file: PEM. Files that change are taken up by a new connection, made between two messages.
    password_file: its first line is the password; read at each connection, and used in place of `password`.
    max_outgoing_*: bounds of what was accepted and is not yet written (QoS 0) or acknowledged (QoS 1).
    retry_v5_s: with protocol "auto", how long MQTT 3.1.1 is kept before a new connection tries MQTT 5 again.
    nodelay, quickack: TCP_NODELAY, and TCP_QUICKACK re-armed at each packet; off only to measure what they give.
    quiet: the state of the connection is logged as `debug`, for an owner who tells it himself.
    """

    host: str
    port: int = brokerurl.DEFAULT_PORTS["mqtt"]
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
    password_file: Path | None = None
    connect_timeout_s: float = 5.0
    reconnect_min_s: float = 0.5
    reconnect_max_s: float = 60.0
    retry_v5_s: float = 600.0
    max_outgoing_bytes: int = 64 * 1024 * 1024
    max_outgoing_messages: int = 10_000
    nodelay: bool = True
    quickack: bool = True
    quiet: bool = False

    def __post_init__(self) -> None:
        if self.protocol not in ("auto", "5", "3.1.1"):
            raise UsageError("protocol", f"{self.protocol!r} is not one of auto, 5, 3.1.1")
        if self.resume and not self.client_id:
            raise UsageError("client_id", "a session can only be resumed under a fixed client id")
        ca, cert, key = (getattr(self, name) is not None for name in brokerurl.TLS_FILES)
        wrong = next(brokerurl.tls_problems(tls=self.tls, ca=ca, cert=cert, key=key), None)
        if wrong is not None:
            raise UsageError(*wrong)

    @classmethod
    def from_url(cls, url: str, **options: Any) -> MqttSettings:
        """Read `mqtt[s]://[user[:password]@]host[:port]`; options are this class's fields and win over the URL.

        Raises UsageError on a URL that is none, and on an option that is none.
        """
        unknown = sorted(options.keys() - {field.name for field in fields(cls)})
        if unknown:
            raise UsageError(unknown[0], "not an option of an MQTT connection")
        try:
            found = brokerurl.parse(url, allow_login=True)
        except ValueError as error:
            raise UsageError("broker", str(error), "for example mqtt://127.0.0.1:1883") from error
        return cls(**(found._asdict() | options))

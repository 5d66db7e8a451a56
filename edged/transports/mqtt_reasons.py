"""Why there is no connection, or why it ended, in words for a person."""

from __future__ import annotations

import ssl

from paho.mqtt.client import DisconnectFlags
from paho.mqtt.reasoncodes import ReasonCode

from edged.transports.base import Denied

UNSUPPORTED_VERSION = 132
TAKEN_OVER = 142
TOO_LARGE = 149
LOST = 128  # paho's word for a connection that ended without one
_NOT_ALLOWED = frozenset({134, 135, 138})  # bad user name or password, not authorized, banned
# What a port that speaks no TLS makes of OpenSSL's first bytes.
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "RECORD_LAYER_FAILURE"})
_TLS_HINT = " (does this port speak TLS? mqtts:// is for one that does, most often 8883)"
# With TLS 1.3 a broker judges the client's certificate when the handshake is over for the client.
CERTIFICATE_HINT = " before the broker answered (does it accept this client's certificate?)"
RENEWAL = "new TLS files"
SECOND_LOOK = "MQTT 3.1.1 works; trying MQTT 5 once more"


def of_error(error: Exception, *, tls: bool) -> str:
    """Return what kept the connection from coming up."""
    if isinstance(error, ssl.SSLError):
        no_tls = isinstance(error, ssl.SSLEOFError) or error.reason in _NO_TLS
        return f"TLS: {error}{_TLS_HINT if no_tls else ''}"
    hint = _TLS_HINT if tls and isinstance(error, ConnectionResetError) else ""
    return f"{getattr(error, 'strerror', None) or error}{hint}"


def of_refusal(reason: ReasonCode) -> str:
    """Return what the broker said to CONNECT; `Denied` when trying again will hardly help."""
    text = f"refused by the broker: {reason}"
    if reason.value in _NOT_ALLOWED:
        return Denied(f"{text} (check user name, password or certificate)")
    return text


def of_end(flags: DisconnectFlags, reason: ReasonCode) -> str:
    """Return how a connection that was up ended."""
    if flags.is_disconnect_packet_from_server:
        return f"closed by the broker: {reason}"
    text = str(reason)
    return "connection lost" if text == "Unspecified error" else f"connection lost: {text}"


def contested(client_id: str, *, told: bool) -> str:
    """Return what it means when connections are accepted and cut; told: the broker said that they were taken over."""
    if told:
        return f"another client takes the connection over: it uses the same client id, {client_id}"
    return f"connected and cut again and again: does another client use the client id {client_id}?"

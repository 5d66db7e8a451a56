"""The one place that decides which client serves: ours, written for one version of paho's inside, or paho as it is."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from typing import Any

import paho.mqtt
from paho.mqtt.client import Client

from edged.transports.mqtt_ledger import Ledger
from edged.transports.mqtt_settings import MqttSettings
from edged.transports.mqtt_stock import StockClient

_WRITTEN_FOR = frozenset({"2.2.0"})
# What `mqtt_fast` and `mqtt_direct` call or replace.
_HOOKS = (
    "_call_socket_open", "_do_on_disconnect", "_handle_connack", "_loop_rc_handle", "_mid_generate", "_packet_handle",
    "_packet_queue", "_send_pubrec", "_sock_close", "_update_inflight",
)  # fmt: skip


def hooks_fit() -> bool:
    """Whether the installed paho is one whose inside `FastClient` knows, and the system can poll."""
    known = paho.mqtt.__version__ in _WRITTEN_FOR and all(hasattr(Client, hook) for hook in _HOOKS)
    return known and hasattr(select, "poll")


def make_client(settings: MqttSettings, client_id: str, *, drive: Callable[[], None], ledger: Ledger) -> StockClient:
    """Return a configured client, not yet connecting."""
    client = _kind()(
        client_id, clean_session=not settings.resume, drive=drive, ledger=ledger, quickack=settings.quickack
    )
    client.connect_timeout = settings.connect_timeout_s
    client.max_queued_messages = settings.max_outgoing_messages
    if settings.nodelay:
        client.on_socket_open = _set_nodelay
    return client


def _kind() -> type[StockClient]:
    if not hooks_fit():
        return StockClient
    from edged.transports.mqtt_fast import FastClient  # noqa: PLC0415  # another paho may lack what it imports

    return FastClient


def _set_nodelay(_client: Client, _userdata: object, sock: Any) -> None:
    # Without it Nagle waits for the acknowledgement that the other side delays: 40 ms for each QoS 1 hop.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

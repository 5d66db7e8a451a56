"""paho's client with two marks it does not offer: first byte of a packet read, last byte of a publish written.

The marks hook private methods, so they are used only with a paho they were written for; with another one
`StockClient` serves: there a message is received when its callback runs, and sent when paho says so.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import paho.mqtt
from paho.mqtt.client import Client, MQTTMessage, MQTTMessageInfo
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edged.clock import now_ns
from edged.errors import BadDataError
from edged.transports import mqtt_properties
from edged.transports.mqtt_settings import MqttSettings

_PUBLISH = 0x30
_MARKS_WRITTEN_FOR = frozenset({"2.2.0"})
_HOOKS = (
    "_sock_recv", "_sock_send", "_packet_queue", "_mid_generate", "_handle_publish", "_handle_on_message",
    "_send_puback", "_send_pubrec",
)  # fmt: skip
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)  # Linux


def rearm_quickack(sock: Any) -> None:
    """Acknowledge what arrived at once; the kernel forgets the option, so it is set again at each packet."""
    if _QUICKACK is not None and sock is not None:
        sock.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)


class StockClient(Client):
    """paho as it is, but for the loop: `drive` runs in the thread that `loop_start()` makes."""

    marks = False

    def __init__(self, client_id: str, *, clean_session: bool, drive: Callable[[], None]) -> None:
        # Made for 3.1.1, since paho takes `clean_session` for no other; `speak` says what is really used.
        super().__init__(
            CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=clean_session,
            protocol=MQTTProtocolVersion.MQTTv311,
            reconnect_on_failure=False,
        )
        self._drive = drive
        self.flooded: Callable[[], None] = lambda: None  # called for each message dropped for its many properties

    def loop_forever(self, timeout: float = 1.0, retry_first_connection: bool = False) -> MQTTErrorCode:  # noqa: ARG002 (paho's signature)
        """Run the transport's own loop, which reconnects with jitter and says why a connection failed."""
        self._drive()
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def speak(self, protocol: MQTTProtocolVersion) -> None:
        """Use this version from the next connect on. The same object keeps what it has queued."""
        self._protocol = protocol

    def first_byte_ns(self) -> int:
        """Return when the packet at hand began to arrive (here: now)."""
        return now_ns()

    def accept(self, open_: bool) -> None:
        """Let publishes into the connection, or hold them off while there is none."""

    def begin(self) -> None:
        """Forget the marks of the connection before; called between two connections."""

    def close(self) -> None:
        """Close what is open, when the thread has ended."""
        self._reset_sockets()


class MarkedClient(StockClient):
    """The client with marks. Positions count bytes since the connection began."""

    marks = True

    def __init__(
        self,
        client_id: str,
        *,
        clean_session: bool,
        drive: Callable[[], None],
        written: Callable[[int, int], None],
        in_use: Callable[[int], bool],
        quickack: bool,
    ) -> None:
        super().__init__(client_id, clean_session=clean_session, drive=drive)
        self._written, self._in_use, self._quickack = written, in_use, quickack
        self._order = threading.Lock()
        self._open = False
        self._queued = self._sent = self._first_ns = 0
        self._ends: deque[tuple[int, int]] = deque()  # (position after the last byte, packet id)

    def first_byte_ns(self) -> int:
        """Return when the packet at hand began to arrive."""
        return self._first_ns

    def accept(self, open_: bool) -> None:
        """Let publishes into the connection, or hold them off while there is none."""
        with self._order:
            self._open = open_

    def begin(self) -> None:
        """Forget the marks of the connection before; called between two connections."""
        with self._order:
            self._queued = self._sent = 0
            self._ends.clear()

    def _sock_recv(self, bufsize: int) -> bytes:
        data = super()._sock_recv(bufsize)
        if self._in_packet["command"] == 0:
            self._first_ns = now_ns()
            if self._quickack:
                rearm_quickack(self._sock)
        return data

    def _packet_queue(
        self, command: int, packet: bytes | bytearray, mid: int, qos: int, info: MQTTMessageInfo | None = None
    ) -> MQTTErrorCode:
        publish = command & 0xF0 == _PUBLISH
        # One lock for position and queue: two threads that publish must not swap their marks.
        with self._order:
            if publish and not self._open:
                return MQTTErrorCode.MQTT_ERR_NO_CONN
            self._queued += len(packet)
            if publish:
                self._ends.append((self._queued, mid))
            view: Any = memoryview(packet)  # paho slices what is left at each write: a view is not copied
            return super()._packet_queue(command, view, mid, qos, info)

    def _sock_send(self, buf: bytes | bytearray) -> int:
        count = super()._sock_send(buf)
        self._sent += count
        while self._ends and self._ends[0][0] <= self._sent:
            self._written(self._ends.popleft()[1], now_ns())
        return count

    def _handle_publish(self) -> MQTTErrorCode:
        """Hand on a message of MQTT 5. paho copies the payload, and all properties that follow, for each property.

        A message with too many of them is acknowledged, so that it does not come again, and dropped.
        """
        command, packet = self._in_packet["command"], self._in_packet["packet"]
        qos = command >> 1 & 3
        head = mqtt_properties.publish_head(packet, qos) if self._protocol == MQTTProtocolVersion.MQTTv5 else None
        if head is None:  # another version, or malformed: paho has the words for it
            return super()._handle_publish()
        if mqtt_properties.too_many(head.properties):
            self.flooded()
            return self._acknowledge(qos, head.mid)
        if qos not in (0, 1):
            return super()._handle_publish()
        message = MQTTMessage(head.mid, head.topic)
        message.dup, message.qos, message.retain = bool(command & 8), qos, bool(command & 1)
        message.properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # paho leaves it untyped
        message.properties.unpack(head.properties)  # type: ignore[no-untyped-call]  # as above
        message.payload = bytes(memoryview(packet)[head.payload_at :])
        self._handle_on_message(message)
        return self._acknowledge(qos, head.mid)

    def _acknowledge(self, qos: int, mid: int) -> MQTTErrorCode:
        if qos == 0:
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        return self._send_puback(mid) if qos == 1 else self._send_pubrec(mid)

    def _mid_generate(self) -> int:
        mid = super()._mid_generate()
        while self._in_use(mid):
            mid = super()._mid_generate()
        return mid


def marks_fit() -> bool:
    """Whether the installed paho is one the marks were written for."""
    return paho.mqtt.__version__ in _MARKS_WRITTEN_FOR and all(hasattr(Client, hook) for hook in _HOOKS)


def make_client(
    settings: MqttSettings,
    client_id: str,
    *,
    drive: Callable[[], None],
    written: Callable[[int, int], None],
    in_use: Callable[[int], bool],
) -> StockClient:
    """Return a configured client, not yet connecting; with marks when the installed paho has their hooks.

    Raises BadDataError when a TLS file is missing or unreadable.
    """
    clean = not settings.resume
    client: StockClient
    if marks_fit():
        client = MarkedClient(
            client_id, clean_session=clean, drive=drive, written=written, in_use=in_use, quickack=settings.quickack
        )
    else:
        client = StockClient(client_id, clean_session=clean, drive=drive)
    client.connect_timeout = settings.connect_timeout_s
    client.max_queued_messages = settings.max_outgoing_messages
    if settings.username is not None:
        client.username_pw_set(settings.username, settings.password)
    if settings.tls:
        _use_tls(client, settings)
    if settings.nodelay:
        client.on_socket_open = _set_nodelay
    return client


def _set_nodelay(_client: Client, _userdata: object, sock: Any) -> None:
    # Without it Nagle waits for the acknowledgement that the other side delays: 40 ms for each QoS 1 hop.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _use_tls(client: Client, settings: MqttSettings) -> None:
    named = (settings.ca_file, settings.cert_file, settings.key_file)
    for path in named:
        if path is not None and not path.is_file():
            raise BadDataError(str(path), "no such file")
    ca, cert, key = (None if path is None else str(path) for path in named)
    try:
        client.tls_set(ca, cert, key)
    except (OSError, ValueError) as error:
        where = ", ".join(filter(None, (ca, cert, key)))
        raise BadDataError(where, f"not usable for TLS: {error}", "PEM files, the key without a password") from error

"""paho's client that publishes by itself: QoS 0 and 1 go from the publishing thread to the socket (`mqtt_send`).

paho keeps the connection's life, QoS 2 and the store of what must be sent again. The sending half of `mqtt_fast`.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from typing import Any

from paho.mqtt.client import MQTTMessage, MQTTMessageInfo
from paho.mqtt.enums import MessageState, MQTTErrorCode, MQTTProtocolVersion, _ConnectionState

from edged.clock import NS_PER_S
from edged.transports.base import Message
from edged.transports.mqtt_ledger import Entry, Ledger
from edged.transports.mqtt_properties import PackedProperties, head
from edged.transports.mqtt_send import NO_CONNECTION, Sender
from edged.transports.mqtt_stock import StockClient

_PUBLISH, _DISCONNECT = 0x30, 0xE0
_LAST = -1  # the mark of DISCONNECT
_FIRST_KEY = 1 << 16  # keys of messages at QoS 0 in the ledger; below are packet ids
_UNANSWERED = 20  # messages at QoS 1 on their way, if the broker takes as many
_MOST_KEPT = 60_000  # packet ids have 16 bits
_SUCCESS = MQTTErrorCode.MQTT_ERR_SUCCESS
_V5 = MQTTProtocolVersion.MQTTv5
_UNSENT, _SENT = MessageState.MQTT_MS_PUBLISH, MessageState.MQTT_MS_WAIT_FOR_PUBACK
_QUEUED = MessageState.MQTT_MS_QUEUED  # until others are acknowledged


class _Nobody(MQTTMessageInfo):
    """In place of paho's answer to a publish, which costs more than the rest of a message and which nobody reads."""

    def _set_as_published(self) -> None:
        pass


_NOBODY = _Nobody(0)


class _Kept(MQTTMessage):
    """A message at QoS 1 in paho's store, which sends it again on a new connection."""

    __slots__ = ()

    def __init__(self, message: Message, mid: int, payload: bytes, properties: bytes) -> None:
        self.timestamp, self.state, self.dup = 0.0, _UNSENT, False
        self.mid, self._topic, self.payload = mid, message.topic.encode(), payload
        self.qos, self.retain, self.info = message.qos, message.retain, _NOBODY
        self.properties = PackedProperties(properties)


class DirectClient(StockClient):
    """See the module's text. `send` is for any thread, all else for the network thread."""

    def __init__(
        self, client_id: str, *, clean_session: bool, drive: Callable[[], None], ledger: Ledger, quickack: bool
    ) -> None:
        self._sender = Sender(self._wake)
        self._keys = itertools.count(_FIRST_KEY)
        self._in_connack = False
        super().__init__(client_id, clean_session=clean_session, drive=drive, ledger=ledger, quickack=quickack)

    def accept(self, open_: bool) -> None:
        """Let publishes into the connection, or hold them off while there is none."""
        self._sender.accept(open_)

    def allow(self, unanswered: int) -> None:
        """Send no more than this without an acknowledgement; the rest waits, though paho would send all of it now."""
        with self._out_message_mutex:
            self._max_inflight_messages = min(_UNANSWERED, unanswered)
            for message in itertools.islice(self._out_messages.values(), self._max_inflight_messages, None):
                if message.state == _UNSENT:
                    message.state = _QUEUED

    def drop_larger(self, limit: int) -> list[Entry]:
        """Take waiting messages of more than `limit` bytes out, and return them; their room stays reserved.

        The others keep their place and their packet ids, so that none overtakes another and none is new to the broker.
        For between two connections, and a new one until `accept`: nothing of this store is on its way then.
        """
        with self._out_message_mutex:
            found = self._ledger.forget_larger(self._out_messages, limit)
            for mid in found:
                del self._out_messages[mid]
        return list(found.values())

    def begin(self) -> None:
        """Forget the connection before; called between two. The ledger knows what was lost."""
        self._sender.clear()

    def send(self, message: Message, properties: bytes, entry: Entry) -> str:
        """Send a message; returns "" or under which counter it was dropped. Any thread; see `mqtt_send`."""
        if entry.qos == 0:
            return self._send_once(message, properties, entry)
        if entry.qos == 1:
            return self._send_kept(message, properties, entry)
        return super().send(message, properties, entry)

    def _send_once(self, message: Message, properties: bytes, entry: Entry) -> str:
        key, session = next(self._keys), self._sender.session
        if not self._ledger.admit(key, entry):
            return "dropped_outgoing_full"
        packet = head(message, 0, properties if self._speaks_5() else b"")
        ns = self._sender.publish(packet, message.payload, key, session)
        if ns == NO_CONNECTION:
            return "dropped_disconnected" if self._ledger.withdraw(key) else ""
        if ns:
            self._note_written(ns)
            self.finished(key, ns, None)
        return ""

    def _send_kept(self, message: Message, properties: bytes, entry: Entry) -> str:
        # A copy of what can change: the store keeps it to send it again.
        payload = message.payload if isinstance(message.payload, bytes) else bytes(message.payload)
        with self._out_message_mutex:
            mid = self._mid_generate() if len(self._out_messages) < _MOST_KEPT else 0
            if not mid or not self._ledger.admit(mid, entry):
                return "dropped_outgoing_full"
            waits = self._some_wait() or self._inflight_messages >= self._max_inflight_messages > 0
            kept = self._out_messages[mid] = _Kept(message, mid, payload, properties)
            if waits:
                kept.state = _QUEUED  # behind the others: none overtakes another
                return ""
            packet = head(message, mid, properties if self._speaks_5() else b"")
            ns = self._sender.publish(packet, payload, mid, self._sender.session)
            if ns == NO_CONNECTION:
                return ""  # paho sends it when there is one
            kept.state = _SENT
            self._inflight_messages += 1
            entry.written_ns = ns
        if ns:
            self._note_written(ns)
            self._ledger.written_here(entry)
        return ""

    def _some_wait(self) -> bool:
        """Whether a message of the store is not on its way; with the store's mutex held."""
        return len(self._out_messages) > self._inflight_messages

    def _handle_connack(self) -> MQTTErrorCode:
        """Let paho send what waited for a connection, and send what came meanwhile behind it."""
        self._in_connack = True
        try:
            rc = super()._handle_connack()
        finally:
            self._in_connack = False
        with self._out_message_mutex:
            return rc or self._update_inflight()

    def _speaks_5(self) -> bool:
        return self._protocol == _V5

    def _note_written(self, ns: int) -> None:
        self._last_msg_out = ns / NS_PER_S  # paho's clock for the keepalive

    def _mid_generate(self) -> int:
        mid = super()._mid_generate()
        while self._ledger.in_use(mid):
            mid = super()._mid_generate()
        return mid

    def _packet_queue(
        self, command: int, packet: bytes | bytearray, mid: int, qos: int, info: MQTTMessageInfo | None = None
    ) -> MQTTErrorCode:
        """Take a packet that paho made."""
        del qos, info
        kind = command & 0xF0
        mark = mid if kind == _PUBLISH else _LAST if kind == _DISCONNECT else 0
        if not self._sender.put(bytes(packet), mark, publish=kind == _PUBLISH):
            return MQTTErrorCode.MQTT_ERR_NO_CONN
        if threading.current_thread() is not self._thread:
            self._wake()
        return _SUCCESS

    def _wake(self) -> None:
        """End the network thread's wait."""
        waker = self._sockpairW  # the network thread may close it meanwhile
        if waker is not None:
            with contextlib.suppress(OSError):  # full of wakes, or closed
                waker.send(b"0")

    def loop_write(self) -> MQTTErrorCode:
        """Write what waits."""
        try:
            while (mark := self._sender.advance()) is not None:
                self._note_written(self._sender.last_ns)
                if mark == _LAST:
                    self._say_goodbye()
                elif mark >= _FIRST_KEY:
                    self.finished(mark, self._sender.last_ns, None)
                elif mark:
                    self._ledger.written(mark, self._sender.last_ns)
        except OSError:
            if self._in_connack:
                return _SUCCESS  # who handles it walks through the store, and reads on afterwards
            rc = self.loop_read()  # what the broker said before it hung up: it may say why, and what it took
            return rc if self._sock is None else self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
        return _SUCCESS

    def want_write(self) -> bool:
        """Whether something waits to be written."""
        return self._sender.waiting()

    def _call_socket_open(self, sock: Any) -> None:
        super()._call_socket_open(sock)
        self._sender.connect(sock)

    def _sock_close(self) -> None:
        self._sender.disconnect(super()._sock_close)

    def _say_goodbye(self) -> None:
        """DISCONNECT is out: what paho does then."""
        self._do_on_disconnect(packet_from_broker=False, v1_rc=_SUCCESS)
        self._sock_close()
        if self._state == _ConnectionState.MQTT_CS_DISCONNECTING:
            self._state = _ConnectionState.MQTT_CS_DISCONNECTED

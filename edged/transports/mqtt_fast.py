"""paho's client with its hot path replaced: the wait, reading, and PUBLISH in both directions at QoS 0 and 1.

paho keeps the connection's life (CONNECT, SUBSCRIBE, keepalive, DISCONNECT, QoS 2) and the store of what must be sent
again; this file knows its inside, so it is used only with a version it was written for (`mqtt_paho`). What it adds:
payloads in place (`mqtt_receive`), no thread between a publish and the socket (`mqtt_send`), and the times of a
packet's first byte read and last byte written.
"""

from __future__ import annotations

import contextlib
import select
import ssl
from collections.abc import Callable
from typing import Any

from paho.mqtt.enums import MessageState, MQTTErrorCode
from paho.mqtt.exception import MalformedPacket
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from edged.clock import NS_PER_S, now_ns
from edged.transports import mqtt_publish, mqtt_stock
from edged.transports.mqtt_direct import DirectClient
from edged.transports.mqtt_ledger import Ledger
from edged.transports.mqtt_publish import UnwantedError
from edged.transports.mqtt_receive import MalformedError, Receiver

_PUBLISH, _PUBACK = 0x30, 0x40
_MOST_PASSED_ON = 66 * 1024  # bytes: a reason in words, the longest there may be, and room
_READS = 16  # in a row, before what waits to be written has its turn
_AGAIN = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_SUCCESS = MQTTErrorCode.MQTT_ERR_SUCCESS


class FastClient(DirectClient):
    """See the module's text. All but `send` runs in the network thread."""

    fast = True

    def __init__(
        self, client_id: str, *, clean_session: bool, drive: Callable[[], None], ledger: Ledger, quickack: bool
    ) -> None:
        self._receiver = Receiver()
        self._acks = bytearray()
        self._poller, self._write_polled, self._misc_ns = select.poll(), False, 0
        super().__init__(client_id, clean_session=clean_session, drive=drive, ledger=ledger, quickack=quickack)

    def begin(self) -> None:
        """Forget the connection before; called between two."""
        super().begin()
        self._acks.clear()

    def facts(self) -> dict[str, int]:
        """Return how many buffers were made to receive into, and the bytes copied before a payload lay in its place."""
        return {"receive_buffers": self._receiver.pool.made, "receive_copied_bytes": self._receiver.copied}

    def first_byte_ns(self) -> int:
        """Return when the packet at hand began to arrive."""
        return self._receiver.first_ns

    def loop(self, timeout: float = 1.0) -> MQTTErrorCode:
        """Wait for something to read or to write for at most `timeout` seconds, and do it."""
        sock, waker = self._sock, self._sockpairR
        if sock is None or waker is None:
            return MQTTErrorCode.MQTT_ERR_NO_CONN
        if self._readable(sock, waker, timeout):
            rc = self.loop_read()
            if rc or self._sock is None:
                return rc
        if self._sender.waiting():
            rc = self.loop_write()
            if rc or self._sock is None:
                return rc
        return self.loop_misc()

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:  # noqa: ARG002 (paho's signature)
        """Read until nothing more is there, for a while at most."""
        for _ in range(_READS):
            rc, more = self._read()
            self._acknowledge()
            if rc:
                return self._loop_rc_handle(rc)
            if not more or self._sock is None:
                break
        return _SUCCESS

    def loop_misc(self) -> MQTTErrorCode:
        """See to the keepalive, and give memory back; once a second is enough."""
        now = now_ns()
        if now < self._misc_ns:
            return _SUCCESS
        self._misc_ns = now + NS_PER_S
        self._receiver.trim(now)
        return super().loop_misc()

    def _readable(self, sock: Any, waker: Any, timeout: float) -> bool:
        """Wait; returns whether there is something to read."""
        waiting = self._sender.waiting()
        if waiting != self._write_polled:
            self._write_polled = waiting
            self._poller.modify(sock, select.POLLIN | select.POLLOUT if waiting else select.POLLIN)
        found = isinstance(sock, ssl.SSLSocket) and sock.pending() > 0
        for fd, event in self._poller.poll(0 if found else int(timeout * 1000)):
            if fd == waker.fileno():
                with contextlib.suppress(BlockingIOError):
                    waker.recv(10_000)
            elif event & ~select.POLLOUT:
                found = True
        return found

    def _call_socket_open(self, sock: Any) -> None:
        super()._call_socket_open(sock)
        self._receiver.reset(records=isinstance(sock, ssl.SSLSocket))
        self._poller, self._write_polled, self._misc_ns = select.poll(), False, 0
        self._poller.register(sock, select.POLLIN)
        if self._sockpairR is not None:
            self._poller.register(self._sockpairR, select.POLLIN)

    def _read(self) -> tuple[MQTTErrorCode, bool]:
        """Read once and handle each packet that is whole; returns what went wrong, and whether more may be there."""
        receiver = self._receiver
        try:
            more = receiver.receive(self._sock)
        except _AGAIN:
            return _SUCCESS, False
        except (OSError, EOFError):
            return MQTTErrorCode.MQTT_ERR_CONN_LOST, False
        self._last_bytes_received = receiver.read_ns / NS_PER_S
        if self._quickack:
            mqtt_stock.rearm_quickack(self._sock)
        try:
            while receiver.next_packet():
                rc = self._handle(receiver.command, receiver.at, receiver.end)
                if rc or self._sock is None:
                    return rc, False
        except (MalformedError, MalformedPacket):
            return MQTTErrorCode.MQTT_ERR_PROTOCOL, False
        return _SUCCESS, more

    def _handle(self, command: int, at: int, end: int) -> MQTTErrorCode:
        kind = command & 0xF0
        if kind == _PUBLISH:
            return self._handle_message(command, at, end)
        if kind == _PUBACK and end - at >= 2:  # noqa: PLR2004 (the packet id's bytes)
            return self._handle_puback(at, end)
        return self._pass_on(command, at, end)

    def _handle_message(self, command: int, at: int, end: int) -> MQTTErrorCode:
        qos = command >> 1 & 3
        try:
            message, mid = mqtt_publish.read(self._receiver.buffer, command, at, end, v5=self._speaks_5())
        except UnwantedError as unwanted:
            self.dropped(unwanted.counter)
            mid = unwanted.mid
        else:
            if qos > 1:
                self._receiver.copied += end - at
                return self._pass_on(command, at, end)
            message.received_ns = self._receiver.first_ns
            self.incoming(message)
        if qos == 1:
            self._acks += b"\x40\x02" + mid.to_bytes(2, "big")
        return self._send_pubrec(mid) if qos > 1 else _SUCCESS

    def _acknowledge(self) -> None:
        """Write the PUBACKs of one read at once."""
        if self._acks:
            self._sender.control(bytes(self._acks))
            self._acks.clear()

    def _handle_puback(self, at: int, end: int) -> MQTTErrorCode:
        data = self._receiver.buffer.data
        mid, refused = data[at] << 8 | data[at + 1], data[at + 2] if end - at > 2 else 0  # noqa: PLR2004 (a reason follows)
        with self._out_message_mutex:
            acknowledged = self._out_messages.pop(mid, None)
            if acknowledged is None:
                return _SUCCESS
            self._inflight_messages -= acknowledged.state == MessageState.MQTT_MS_WAIT_FOR_PUBACK
            # At once: a free place is for the oldest that waits, not for who publishes next.
            rc = self._update_inflight() if self._some_wait() else _SUCCESS
        self.finished(mid, 0, _reason(refused) if refused >= 0x80 else None)  # noqa: PLR2004 (from here on failures)
        return rc

    def _pass_on(self, command: int, at: int, end: int) -> MQTTErrorCode:
        """Let paho handle a packet, and answer in order. For properties it takes a time that grows as their square."""
        if command & 0xF0 != _PUBLISH and end - at > _MOST_PASSED_ON:
            raise MalformedError("a packet larger than anything that a broker has to say")
        self._acknowledge()
        packet = bytearray(self._receiver.buffer.part(at, end))
        self._in_packet = {
            "command": command, "have_remaining": 1, "remaining_count": [], "remaining_mult": 1,
            "remaining_length": len(packet), "packet": packet, "to_process": 0, "pos": 0,
        }  # fmt: skip
        return self._packet_handle()


def _reason(code: int) -> ReasonCode:
    """Return a PUBACK's reason. mosquitto uses one that a PUBACK cannot have, "packet too large"."""
    for kind in (PacketTypes.PUBACK, PacketTypes.DISCONNECT):
        with contextlib.suppress(KeyError, ValueError):
            return ReasonCode(kind, identifier=code)
    return ReasonCode(PacketTypes.PUBACK, "Unspecified error")

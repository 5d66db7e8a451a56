"""A broker of a test's own: it lets one transport in, and then sends and reads the bytes that the test says."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Any

from support.brokers import eventually

from edged.transports.base import Message, Subscription
from edged.transports.mqtt import MqttSettings, MqttTransport

CONNACK_V5 = b"\x20\x03\x00\x00\x00"


class ScriptedBroker:
    """A broker that accepts, says CONNACK, and then does what the test says. `heard`: what the transport received."""

    def __init__(self, on_message: Callable[[Message], object] | None = None, **options: Any) -> None:
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)  # inherited: little fits into the kernel
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen()
        url = f"mqtt://127.0.0.1:{self.listener.getsockname()[1]}"
        self.transport = MqttTransport(MqttSettings.from_url(url, reconnect_min_s=0.01, **options))
        self.heard = list[Message]()
        self.transport.start(on_message or self.heard.append, [Subscription("t", 1)])
        self.accept(1)

    def accept(self, number: int, connack: bytes = CONNACK_V5) -> None:
        """Take the next connection and let it in."""
        self.socket, _address = self.listener.accept()
        self.socket.settimeout(10)
        self.connect = self._read_whole()[0]
        self.socket.sendall(connack)
        self.subscribe = self._read_whole()[0]
        eventually(lambda: self.transport.stats()["connects"] == number, "connected")

    def drain(self, until: Callable[[], bool]) -> None:
        """Read until `until()`."""
        self.socket.settimeout(0.05)
        while not until():
            with contextlib.suppress(TimeoutError):
                self.socket.recv(1 << 20)

    def read(self, count: int) -> bytes:
        """Read so many bytes."""
        parts, left = list[bytes](), count
        while left:
            parts.append(self.socket.recv(left))
            assert parts[-1], "the transport hung up"
            left -= len(parts[-1])
        return b"".join(parts)

    def read_packet(self) -> tuple[int, bytes]:
        """Read one packet: its first byte, and what follows its length."""
        packet, at = self._read_whole()
        return packet[0], packet[at:]

    def _read_whole(self) -> tuple[bytes, int]:
        head, length = self.read(2), 0
        while head[-1] > 127:
            head += self.read(1)
        for byte in reversed(head[1:]):
            length = length << 7 | byte & 127
        return head + self.read(length), len(head)

    def close(self) -> None:
        """Close both ends."""
        self.socket.close()
        self.listener.close()
        self.transport.stop(timeout_s=0.2)


def varint(value: int) -> bytes:
    """A Variable Byte Integer."""
    out = b""
    while value > 127:
        out, value = out + bytes((value & 127 | 128,)), value >> 7
    return out + bytes((value,))


def publish_packet(topic: bytes, payload: bytes, *, mid: int = 0, qos: int = 0, properties: bytes = b"") -> bytes:
    """A PUBLISH of MQTT 5."""
    packet_id = mid.to_bytes(2, "big") if qos else b""
    body = len(topic).to_bytes(2, "big") + topic + packet_id + varint(len(properties)) + properties + payload
    return bytes((0x30 | qos << 1,)) + varint(len(body)) + body

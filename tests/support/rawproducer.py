"""A local producer made without our code, from the protocol as it is written down; it may break every rule of it."""

from __future__ import annotations

import mmap
import os
import socket
import struct
from pathlib import Path
from typing import Any, NamedTuple

BYE, REQUEST, REPLY = 2, 3, 4


class Reply(NamedTuple):
    """What came back; `where` is "inline" or "slot"."""

    error: bool
    where: str
    content_type: str
    meta: str
    slot: int
    sequence: int
    payload: bytes


class RawProducer:
    """Connects at once. `welcome` is the first message; without memory in it there is none."""

    def __init__(self, path: Path, timeout_s: float = 10.0) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(timeout_s)
        self.socket.connect(os.fspath(path))
        self.welcome, fds, _flags, _address = socket.recv_fds(self.socket, 65536, 4)
        self.memory: mmap.mmap | None = None
        if fds:
            _kind, magic, self.version, self.slots, self.slot_bytes = struct.unpack("<B4sHIQ", self.welcome)
            assert magic == b"edgd"
            self.fd = fds[0]
            self.stride = -(-self.slot_bytes // 4096) * 4096
            self.memory = mmap.mmap(self.fd, self.slots * self.stride)

    def __enter__(self) -> RawProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self.socket.close()
        if self.memory is not None:
            self.memory.close()
            os.close(self.fd)
            self.memory = None

    def write(self, slot: int, payload: bytes) -> None:
        """Put a payload into a slot."""
        assert self.memory is not None
        self.memory[slot * self.stride : slot * self.stride + len(payload)] = payload

    def announce(
        self, slot: int, size: int, *, sequence: int = 1, model: str = "m", content_type: str = "", **more: Any
    ) -> None:
        """Say that a payload is there, whether or not it is."""
        deadline_ms = more.get("deadline_ms", 0)
        names = model.encode(), content_type.encode()
        head = struct.pack("<BBBIQQI", REQUEST, len(names[0]), len(names[1]), slot, sequence, size, deadline_ms)
        self.socket.send(head + b"".join(names))

    def send(self, slot: int, payload: bytes, **more: Any) -> None:
        """Write and announce."""
        self.write(slot, payload)
        self.announce(slot, len(payload), **more)

    def receive(self) -> Reply | str:
        """Return the next reply, or the words of a farewell; "" when the connection has ended without."""
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:  # it had not read everything
            data = self.socket.recv(65536)
        if not data or data[0] == BYE:
            return data[1:].decode()
        kind, error, in_slot, type_size, meta_size, slot, sequence, size = struct.unpack_from("<BBBHHIQQ", data)
        assert kind == REPLY
        at = struct.calcsize("<BBBHHIQQ")
        texts = data[at : at + type_size].decode(), data[at + type_size : at + type_size + meta_size].decode()
        payload = data[at + type_size + meta_size :]
        if in_slot:
            assert self.memory is not None
            payload = self.memory[slot * self.stride : slot * self.stride + size]
        assert len(payload) == size
        return Reply(bool(error), "slot" if in_slot else "inline", *texts, slot, sequence, payload)

    def reply(self) -> Reply:
        """Return the next message, which must be a reply."""
        found = self.receive()
        assert isinstance(found, Reply), f"not a reply: {found!r}"
        return found

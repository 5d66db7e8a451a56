"""Requests of producers on the same box: payloads lie in shared memory, small messages over a Unix socket tell of them.

Each producer gets memory of its own (`shm_memory`), so that none reads or spoils another's. A request is a message as
it would come over MQTT: the request topic of the contract, the user `local-<uid>`, a reply topic that stands for the
slot. Its payload is a view of the slot: the one copy is that into the tensor. The reply, which hands the slot back, is
written by whoever publishes it.

What a producer may do wrong: a message that breaks the rules of `shm_wire` or names a slot that is not the producer's
ends that connection, with the reason. One that dies leaves requests that are answered into nothing, at once. One that
does not read keeps its own slots busy, nothing else. One that writes into a slot while it is read spoils its own
answer: tensors are checked where they were copied to, and what other codecs parse is copied first.

Threads: one that serves all producers, and one that waits for new ones and makes their memory, which takes a while.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from edged import topics
from edged.clock import NS_PER_S, now_ns
from edged.config_device import LocalConfig
from edged.errors import Code, InternalError, RequestError, UsageError
from edged.request import OnSent
from edged.transports import shm_wire
from edged.transports.base import Connected, Message, OnConnection, OnDone, OnMessage, Subscription
from edged.transports.counters import Counters
from edged.transports.shm_door import Door
from edged.transports.shm_memory import refuse_unsupported
from edged.transports.shm_peer import Outgoing, Peer, Sent
from edged.transports.shm_wire import Announcement, ReplyHead

_log = logging.getLogger(__name__)
_COUNTERS = (
    "connects", "disconnects", "received", "sent", "callback_errors", "client_errors", "refused_producers",
    "dismissed_producers", "accept_errors", "dropped_gone", "dropped_too_large", "dropped_invalid", "dropped_stopped",
)  # fmt: skip
# What a codec copies out of the payload before it looks at it. Others parse in place, in C, which memory that changes
# meanwhile could lead astray.
_IN_PLACE = frozenset({"", "application/octet-stream", "application/x-npy"})
_FLUSH_S = 0.005
_LOG_EVERY_NS = 60 * NS_PER_S


class ShmTransport:
    """The way in and out for producers on the box. `device`: whose requests they are.

    on_gone: called with a producer's reply topics when it is gone, on the thread that serves all of them. What it had
    asked is best answered then: until that its memory stays, and takes the room of another producer.
    """

    name: ClassVar[str] = "shm"

    def __init__(
        self, config: LocalConfig, device: str, on_gone: Callable[[Sequence[str]], None] | None = None
    ) -> None:
        refuse_unsupported()
        self._config, self._on_gone = config, on_gone
        self._prefix = topics.device(device, "req", "")
        self._counters = Counters(*_COUNTERS)
        self._expected: dict[str, tuple[Peer, int]] = {}  # by reply topic: whose slot it stands for
        self._peers: dict[int, Peer] = {}  # by descriptor
        self._buffer = bytearray(shm_wire.MAX_REQUEST)
        self._door: Door | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._closed = False  # nobody comes in any more: only then may the serving thread end, or it would miss one
        self._end_ns = self._next_log_ns = 0

    def start(
        self,
        on_message: OnMessage,
        subscriptions: Sequence[Subscription] = (),
        *,
        will: Message | None = None,
        on_connection: OnConnection | None = None,
    ) -> None:
        """Listen. `on_connection` is called once, on the serving thread, before it serves.

        Raises ConfigError (path or group), UnavailableError (somebody listens there), UsageError (there is no broker
        that could keep subscriptions or a will).
        """
        if self._thread is not None:
            raise InternalError("transport", "started twice")
        if subscriptions or will is not None:
            raise UsageError("subscription", "there is no broker between a daemon and its local producers")
        self._on_message, self._on_connection = on_message, on_connection
        self._poller = select.epoll()
        self._door = Door(self._config, self._counters, self._poller, self._enter)
        self._woken, self._waker = socket.socketpair()  # the thread may end, and close both, before it is woken
        self._poller.register(self._woken, select.EPOLLIN)
        self._thread = threading.Thread(target=self._serve, name="edged-local", daemon=True)
        self._thread.start()
        self._door.start()

    def publish(self, message: Message, on_sent: OnSent | None = None, on_done: OnDone | None = None) -> bool:
        """Answer the request whose reply topic this is; False when it cannot be (counted). Any thread.

        A reply to a producer that is gone counts as accepted, and as `dropped_gone`.
        """
        if self._stopping:
            self._counters.add("dropped_stopped")
            return False
        found = self._expected.get(message.topic)
        if found is None:
            self._counters.add("dropped_invalid")
            return False
        if self.refusal(message):
            self._counters.add("dropped_too_large")
            return False
        self._expected.pop(message.topic, None)
        self._answer(*found, message, on_sent, on_done)
        return True

    def refusal(self, message: Message) -> str:
        """Return whether nobody waits for this message, or it is larger than both a message and a slot."""
        found = self._expected.get(message.topic)
        if found is None:
            return f"no local producer waits for {message.topic[:80]!r}"
        told = len(message.content_type or "") + sum(len(value) for _, value in message.user)
        if 4 * told + shm_wire.INLINE > shm_wire.MAX_REPLY:
            return f"{told} characters beside the payload are too many"
        size, largest = len(message.payload), max(shm_wire.INLINE, found[0].shape.slot_bytes)
        return f"it has {size} bytes, a slot has {largest}" if size > largest else ""

    def trouble(self) -> str:
        """Return nothing: there is no session that another could take."""
        return ""

    def stop(self, timeout_s: float = 2.0) -> None:
        """Write what waits for producers that read, tell all of them, end the threads, remove the socket's file."""
        if self._thread is None or self._door is None or self._stopping:
            self._stopping = True
            return
        self._stopping = True
        self._end_ns = now_ns() + int(timeout_s * NS_PER_S)
        self._door.stop()
        self._closed = True
        with contextlib.suppress(OSError):
            self._waker.send(b"x")
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s + 1)

    def stats(self) -> dict[str, int]:
        """Return the counters, how many producers there are, and their slots and replies that the daemon holds."""
        peers = list(self._peers.values())
        return {
            **self._counters.snapshot(),
            "producers": len(peers),
            "slots_busy": sum(peer.owned for peer in peers),
            "unread_replies": sum(peer.waiting for peer in peers),
        }

    # --- the serving thread -------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        if self._on_connection is not None:
            self._counters.guard(self._on_connection, True, Connected(self.name, resumed=False))  # noqa: FBT003  # the contract's order
        while not self._closed:
            for fd, events in self._poller.poll():
                self._attend(fd, events)
        self._finish()

    def _attend(self, fd: int, events: int) -> None:
        peer = self._peers.get(fd)  # no name may hold it longer: it holds its memory
        if peer is None:
            return
        try:
            if events & select.EPOLLOUT:
                self._written(peer.flush())
            if events & ~select.EPOLLOUT:
                self._read(peer)
        except Exception:  # noqa: BLE001  # the thread's top: a fault met with one producer must not cost the others theirs
            _log.exception("a local producer's connection failed; the others go on")
            self._counters.add("client_errors")
            self._leave(peer, "a fault in the daemon")

    def _read(self, peer: Peer) -> None:
        received_ns = now_ns()
        try:
            # With MSG_TRUNC it says the size of a longer message. Descriptors sent along are closed by the kernel.
            size = peer.connection.recv_into(self._buffer, 0, socket.MSG_DONTWAIT | socket.MSG_TRUNC)
            if size == 0:
                self._leave(peer)
                return
            told = shm_wire.read_request(memoryview(self._buffer)[:size])
            payload = peer.take(told)
        except BlockingIOError:
            return
        except OSError:
            self._leave(peer)
        except ValueError as error:
            self._dismiss(peer, str(error))
        else:
            self._hand_on(peer, told, payload, received_ns)

    def _hand_on(self, peer: Peer, told: Announcement, payload: memoryview, received_ns: int) -> None:
        self._counters.add("received")
        reply_topic = peer.reply_topics[told.slot]
        self._expected[reply_topic] = (peer, told.slot)
        message = Message(
            f"{self._prefix}{told.model}/c/{peer.user}",
            payload if told.content_type in _IN_PLACE else bytes(payload),
            response_topic=reply_topic,
            content_type=told.content_type or None,
            user=(("deadline-ms", str(told.deadline_ms)),) if told.deadline_ms else (),
            received_ns=received_ns,
        )
        try:
            self._on_message(message)
        except Exception:  # noqa: BLE001  # the top of a callback
            _log.exception("a callback failed; the transport goes on")
            self._counters.add("callback_errors")
            self._refuse(reply_topic)

    def _refuse(self, reply_topic: str) -> None:
        """Answer what could not be handed on: the slot would be lost to its producer."""
        if reply_topic in self._expected:
            error = RequestError(Code.INTERNAL, "the request could not be taken in").to_json()
            self.publish(Message(reply_topic, error, content_type="application/json", user=(("status", "error"),)))

    def _enter(self, peer: Peer) -> None:
        """Begin to serve a producer; on the thread of the door."""
        peer.watch()
        self._peers[peer.fd] = peer

    def _leave(self, peer: Peer, reason: str = "") -> None:
        """Forget a producer. Requests of its that are under way find it gone."""
        if self._peers.pop(peer.fd, None) is None:
            return
        self._counters.add("disconnects")
        self._lose(peer.close(reason))
        if self._on_gone is not None:
            self._counters.guard(self._on_gone, peer.reply_topics)

    def _dismiss(self, peer: Peer, reason: str) -> None:
        self._counters.add("dismissed_producers")
        now = now_ns()
        if now >= self._next_log_ns:  # once a minute, so that a stranger cannot fill the log
            self._next_log_ns = now + _LOG_EVERY_NS
            _log.warning("local producer %s sent off: %s (counted in metrics)", peer.user, reason)
        self._leave(peer, f"the rules are broken: {reason}")

    def _finish(self) -> None:
        for peer in list(self._peers.values()):
            while peer.waiting and not peer.closed and now_ns() < self._end_ns:
                self._written(peer.flush())
                time.sleep(_FLUSH_S)
            self._leave(peer, "the daemon stops")
        for one in (self._poller, self._woken, self._waker):
            one.close()

    # --- replies ------------------------------------------------------------------------------------------------------

    def _answer(self, peer: Peer, slot: int, message: Message, on_sent: OnSent | None, on_done: OnDone | None) -> None:
        properties, size = dict(message.user), len(message.payload)
        in_slot = size > shm_wire.INLINE
        head = shm_wire.write_reply(
            ReplyHead(
                slot, peer.sequence(slot), size, properties.get("status") == "error", in_slot,
                message.content_type or "", properties.get("meta", ""),
            )
        )  # fmt: skip
        if in_slot:
            peer.fill(slot, message.payload)
        reply = Outgoing(slot, (head,) if in_slot else (head, message.payload), on_sent, on_done)
        sent = peer.send(reply)
        if sent is Sent.WRITTEN:
            self._written((reply,))
        elif sent is Sent.GONE:
            self._lose((reply,))

    def _written(self, replies: Sequence[Outgoing]) -> None:
        sent_ns = now_ns()
        for reply in replies:
            self._counters.add("sent")
            if reply.on_sent is not None:
                self._counters.guard(reply.on_sent, sent_ns)
            if reply.on_done is not None:
                self._counters.guard(reply.on_done)

    def _lose(self, replies: Sequence[Outgoing]) -> None:
        for reply in replies:
            self._counters.add("dropped_gone")
            if reply.on_done is not None:
                self._counters.guard(reply.on_done)

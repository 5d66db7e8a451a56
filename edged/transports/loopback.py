"""Messages between transports of one process, under a broker's rules: filters, retained messages, wills.

For tests and benchmarks: the same path as over MQTT without sockets. A bus is a broker; each transport delivers on a
thread of its own. Everything is as in MQTT 5, but without sessions and without shared subscriptions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from queue import SimpleQueue
from typing import ClassVar
from weakref import WeakValueDictionary

from edged.clock import now_ns
from edged.errors import InternalError, UsageError
from edged.filters import matches, valid_filter, valid_topic
from edged.request import OnSent
from edged.transports.base import MAX_QOS, Connected, Message, OnConnection, OnDone, OnMessage, Subscription
from edged.transports.counters import Counters

_COUNTERS = (
    "connects", "disconnects", "received", "sent", "callback_errors",
    "dropped_invalid", "dropped_stopped", "dropped_inbox_full",
)  # fmt: skip
_buses: WeakValueDictionary[str, LoopbackBus] = WeakValueDictionary()
_buses_lock = threading.Lock()


def open_url(url: str, *, max_inbox_messages: int = 10_000) -> LoopbackTransport:
    """Return a transport on the process's bus of that name: `loopback://NAME`."""
    name = url.partition("://")[2]
    with _buses_lock:
        bus = _buses.setdefault(name, LoopbackBus())
    return LoopbackTransport(bus, max_inbox_messages=max_inbox_messages)


class LoopbackBus:
    """The broker: who listens to what, and the last retained message of each topic."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._members: dict[LoopbackTransport, tuple[Subscription, ...]] = {}
        self._retained: dict[str, Message] = {}

    def join(self, member: LoopbackTransport, subscriptions: Sequence[Subscription]) -> None:
        """Add a member; it gets the retained messages it subscribes to."""
        with self._lock:
            self._members[member] = tuple(subscriptions)
            for message in self._retained.values():
                self._hand(member, self._members[member], message)

    def leave(self, member: LoopbackTransport) -> None:
        """Remove a member."""
        with self._lock:
            self._members.pop(member, None)

    def route(self, message: Message) -> None:
        """Hand the message to each member that subscribes to its topic, and keep it when it is retained."""
        with self._lock:
            if message.retain and len(message.payload):
                self._retained[message.topic] = message
            elif message.retain:
                self._retained.pop(message.topic, None)
            live = replace(message, retain=False)
            for member, subscriptions in self._members.items():
                self._hand(member, subscriptions, live)

    @staticmethod
    def _hand(member: LoopbackTransport, subscriptions: tuple[Subscription, ...], message: Message) -> None:
        asked = [wish.qos for wish in subscriptions if matches(wish.filter, message.topic)]
        if asked:
            member.deliver(replace(message, qos=min(message.qos, max(asked)), received_ns=now_ns()))


class LoopbackTransport:
    """A member of a bus. A message is sent when it is in the receivers' inboxes; a full inbox drops and counts it."""

    name: ClassVar[str] = "loopback"

    def __init__(self, bus: LoopbackBus, *, max_inbox_messages: int = 10_000) -> None:
        self._bus, self._max_inbox = bus, max_inbox_messages
        self._inbox: SimpleQueue[Callable[[], None] | Message | None] = SimpleQueue()
        self._counters = Counters(*_COUNTERS)
        self._thread: threading.Thread | None = None
        self._will: Message | None = None
        self._connected = False

    def start(
        self,
        on_message: OnMessage,
        subscriptions: Sequence[Subscription],
        *,
        will: Message | None = None,
        on_connection: OnConnection | None = None,
    ) -> None:
        """Join the bus. Raises UsageError on a filter that is none, or a shared one."""
        if self._thread is not None:
            raise InternalError("transport", "started twice")
        for wish in subscriptions:
            if not valid_filter(wish.filter) or wish.filter.startswith("$share/"):
                raise UsageError("subscription", f"not a filter for a loopback bus: {wish.filter!r}")
        self._on_message, self._will, self._connected = on_message, will, True
        self._counters.add("connects")
        if on_connection is not None:
            self._inbox.put(lambda: on_connection(True, Connected("loopback", resumed=False)))  # noqa: FBT003 (the contract's order)
        self._thread = threading.Thread(target=self._serve, name="edged-loopback", daemon=True)
        self._thread.start()
        self._bus.join(self, subscriptions)

    def publish(self, message: Message, on_sent: OnSent | None = None, on_done: OnDone | None = None) -> bool:
        """Hand one message to the bus; False when it was dropped (counted). Any thread."""
        if not self._connected:
            self._counters.add("dropped_stopped")
            return False
        if self.refusal(message):
            self._counters.add("dropped_invalid")
            return False
        self._bus.route(replace(message, payload=bytes(message.payload)))
        self._counters.add("sent")
        if on_sent is not None:
            self._counters.guard(on_sent, now_ns())
        if on_done is not None:
            self._counters.guard(on_done)
        return True

    def refusal(self, message: Message) -> str:
        """Return what is wrong with the topic or the QoS; any size passes."""
        if not valid_topic(message.topic):
            return f"not a topic to publish to: {message.topic[:80]!r}"
        return "" if 0 <= message.qos <= MAX_QOS else f"QoS is 0, 1 or 2, not {message.qos}"

    def trouble(self) -> str:
        """Return "": nothing goes wrong here."""
        return ""

    def stop(self, timeout_s: float = 2.0) -> None:
        """Leave the bus, deliver what is in the inbox, end the thread. No will."""
        self._leave()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def abort(self) -> None:
        """Leave as a killed process does: the bus publishes the will."""
        if self._leave() and self._will is not None:
            self._bus.route(self._will)

    def stats(self) -> dict[str, int]:
        """Return the counters and what waits in the inbox."""
        return {**self._counters.snapshot(), "connected": int(self._connected), "inbox": self._inbox.qsize()}

    def deliver(self, message: Message) -> None:
        """Put a message into the inbox (the bus calls this)."""
        if self._inbox.qsize() >= self._max_inbox:
            self._counters.add("dropped_inbox_full")
        else:
            self._inbox.put(message)

    def _leave(self) -> bool:
        if not self._connected:
            return False
        self._connected = False
        self._counters.add("disconnects")
        self._bus.leave(self)
        self._inbox.put(None)
        return True

    def _serve(self) -> None:
        while (item := self._inbox.get()) is not None:
            if isinstance(item, Message):
                self._counters.add("received")
                self._counters.guard(self._on_message, item)
            else:
                self._counters.guard(item)

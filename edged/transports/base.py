"""What a transport is: it moves messages and knows nothing of models, codecs or deadlines.

Rules every transport keeps (tests/contract/test_transports.py runs them on each):
- `on_message` runs on the transport's own thread; nothing it raises stops that thread.
- `publish` never blocks and never raises; False means the message was dropped, and `stats()` counted it.
- `refusal` tells a message that can never be sent (a wrong topic, too large) from one that may be sent later.
- `on_sent(ns)` is called once, when the last byte was handed to the kernel (or to the receiver, in process).
- `on_done()` is called once, when nothing more will be done for an accepted message: written at QoS 0, acknowledged at
  QoS 1, or given up and counted. Not after `stop`.
- `on_refused()` of a message is called when it was accepted and the broker does not take it: it says so, or hangs up.
  Before its `on_done`.
- The payload of an incoming message may be a view of memory that is used again once nobody refers to it: whoever keeps
  it longer than the request lives copies it.
- `stop` flushes what was accepted, within its bound, then disconnects cleanly (no will).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from edged.request import Buffer, OnSent

MAX_QOS = 2
OnDone = Callable[[], None]


@dataclass(slots=True)
class Message:
    """One message. `received_ns`: monotonic ns of its first byte at the socket (0 on outgoing ones).

    expiry_s: MQTT 5 Message Expiry Interval, whole seconds. user: MQTT 5 user properties, in order.
    dup: of an incoming message: the broker sent it before, and does not know whether it arrived then.
    on_refused: see the module's rules.
    """

    topic: str
    payload: Buffer
    qos: int = 0
    retain: bool = False
    response_topic: str | None = None
    correlation: bytes | None = None
    content_type: str | None = None
    expiry_s: int | None = None
    user: tuple[tuple[str, str], ...] = ()
    received_ns: int = 0
    dup: bool = False
    on_refused: OnDone | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Subscription:
    """A topic filter and the QoS asked for."""

    filter: str
    qos: int


class Connected(str):
    """The detail of a new connection, a protocol's name. resumed: the broker kept the session of the one before."""

    __slots__ = ("resumed",)
    resumed: bool

    def __new__(cls, name: str, *, resumed: bool) -> Connected:  # noqa: D102  # see the class
        made = super().__new__(cls, name)
        made.resumed = resumed
        return made


class Denied(str):
    """A reason why there is no connection that trying again will hardly mend: the broker refuses the login."""

    __slots__ = ()


OnMessage = Callable[[Message], None]
# (connected, detail): detail is `Connected` on True, the reason on False (`Denied` where waiting is in vain).
OnConnection = Callable[[bool, str], None]


class Transport(Protocol):
    """A way in and out. See the module's rules."""

    name: ClassVar[str]

    def start(
        self,
        on_message: OnMessage,
        subscriptions: Sequence[Subscription],
        *,
        will: Message | None = None,
        on_connection: OnConnection | None = None,
    ) -> None:
        """Begin connecting in the background and keep connected, subscribing on each new connection."""

    def publish(self, message: Message, on_sent: OnSent | None = None, on_done: OnDone | None = None) -> bool:
        """Queue one message; False when it was dropped (counted). Any thread."""

    def refusal(self, message: Message) -> str:
        """Return why `publish` will refuse this message as long as the connection is what it is; "" if it need not."""

    def trouble(self) -> str:
        """Return what is wrong with the connection though there is one, for a person; "" when nothing is."""

    def stop(self, timeout_s: float = 2.0) -> None:
        """Flush, disconnect cleanly, end the thread."""

    def stats(self) -> dict[str, int]:
        """Counters since start: connects, disconnects, received, sent, dropped_*, …"""

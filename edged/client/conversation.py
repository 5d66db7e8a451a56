"""The open requests of one client on its transport: each sent, sent again, and ended in exactly one way.

Nothing is published, and no future completed, while the lock is held: a transport may deliver within `publish`, and
what hangs on a future may call the client, on the thread that brings the answers or the timer's: there `infer`,
`connect` and `status` would wait for themselves, and refuse.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Collection
from concurrent.futures import Future

from edged.client.completing import Completer
from edged.client.exchange import Exchange, Pending, Target
from edged.client.payloads import Encoded
from edged.client.result import Result
from edged.client.watch import StatusWatch
from edged.client.wire import Sender, correlation_of, read_reply
from edged.clock import NS_PER_S, now_ns
from edged.errors import Code, RequestError, UnavailableError
from edged.transports.base import Denied, Message, Transport

_NEVER_NS = 1 << 63


class Conversation:
    """Any thread may call it; `on_message` and `on_connection` are for the transport.

    watch: the statuses that explain a missing answer. protocol: "" until a connection names it.
    """

    def __init__(
        self, transport: Transport, exchange: Exchange, sender: Sender, watch: StatusWatch, protocol: str
    ) -> None:
        self._transport, self._exchange, self._sender, self._watch = transport, exchange, sender, watch
        self._changed = threading.Condition()
        self._connected = self._catching_up = False
        self._protocol, self._trouble = protocol, "still connecting"
        self._timer = threading.Thread(target=self._run_timers, name="edged-client-timer", daemon=True)
        self._completer = Completer()
        self._wake_ns = 0  # when the timer thread looks again by itself
        self._closed = False

    def start(self) -> None:
        """Start the timer thread."""
        self._timer.start()

    def join(self) -> None:
        """Wait until the timer thread has ended, after `close`."""
        if self._timer is not threading.current_thread():  # what hangs on a future may close the client
            self._timer.join()

    def close(self) -> bool:
        """End every open request with CANCELLED; False when it was closed already."""
        with self._changed:
            if self._closed:
                return False
            self._closed = True
            unanswered = list(self._exchange.drain())
            self._changed.notify_all()
        for pending in unanswered:
            self._completer.finish(pending, RequestError(Code.CANCELLED, "the client was closed"))
        return True

    def refuse_closed(self) -> None:
        """Raise UnavailableError when it is closed."""
        if self._closed:
            raise UnavailableError("client", "it was closed")

    def refuse_waiting(self, what: str) -> None:
        """Raise UsageError in the callback of a future."""
        self._completer.refuse_waiting(what)

    def no_connection(self, timeout_s: float) -> str | None:
        """Wait for a connection; returns None, or after `timeout_s` what is in its way: a refused login at once."""
        with self._changed:
            self._changed.wait_for(lambda: self._connected or isinstance(self._trouble, Denied), timeout_s)
            return None if self._connected else self._trouble

    def open(self, target: Target, encoded: Encoded, deadline_ms: int, state_key: str | None) -> Future[Result]:
        """Send a request, now or with the next connection, and again until it is answered or past its deadline."""
        with self._changed:
            self.refuse_closed()
            pending = self._exchange.open(target, encoded, deadline_ms, now_ns(), state_key)
        pending.future.add_done_callback(lambda future: self._forget(pending) if future.cancelled() else None)
        self._send(pending, 0)
        return pending.future

    def stats(self) -> dict[str, int]:
        """Counters of the exchange."""
        with self._changed:
            return dataclasses.asdict(self._exchange.counters)

    def _send(self, pending: Pending, sends: int, *, in_turn: bool = False) -> None:
        """Send a request that was sent `sends` times when the caller looked, or leave it for the next connection.

        Whoever comes second (the caller, the timer, a new connection) finds it sent. in_turn: by the new connection,
        which sends what waited for it before anything newer.
        """
        with self._changed:
            if not self._exchange.is_open(pending) or pending.sends != sends:
                return
            now, message = now_ns(), None
            if self._connected and (in_turn or sends or not self._catching_up):
                message = self._sender.message(pending, self._protocol, now)
                self._exchange.sent(pending, now)
            else:
                self._exchange.postpone(pending)
            if pending.due_ns < self._wake_ns:
                self._changed.notify_all()
            refusal = self._sender.refusal(pending, self._protocol)
        if message is not None and (refusal or not self._transport.publish(message)):
            self._not_sent(pending, refusal or self._transport.refusal(message))

    def _not_sent(self, pending: Pending, refusal: str) -> None:
        with self._changed:
            self._exchange.unsent(pending)
            refused = bool(refusal) and self._exchange.refuse(pending)
        if refused:
            error = RequestError(Code.INVALID_ARGUMENT, f"the request cannot be sent: {refusal}")
            self._completer.finish(pending, error)

    def on_connection(self, connected: bool, detail: str) -> None:
        """Note that there is a connection, or why there is none (see `OnConnection`); send what waited for it."""
        with self._changed:
            self._connected = connected
            self._protocol, self._trouble = (detail, "") if connected else (self._protocol, detail)
            self._catching_up = connected
            self._changed.notify_all()
        tried: set[Pending] = set()
        while connected and (waiting := self._untried(tried)):
            for pending in waiting:
                self._send(pending, pending.sends, in_turn=True)
            tried.update(waiting)

    def _untried(self, tried: Collection[Pending]) -> list[Pending]:
        with self._changed:
            found = [pending for pending in self._exchange.all_open() if pending not in tried]
            self._catching_up = bool(found)
        return found

    def on_message(self, message: Message) -> None:
        """Take a reply, or a status that is followed."""
        if self._watch.take(message):
            return
        with self._changed:
            pending = self._exchange.reply(correlation_of(message), now_ns())
        if pending is not None:
            self._completer.finish(pending, self._read(message, pending))

    def _read(self, message: Message, pending: Pending) -> Result | RequestError:
        outcome = read_reply(message, pending)
        with self._changed:
            self._exchange.counters.errors += isinstance(outcome, RequestError)
        return outcome

    def _forget(self, pending: Pending) -> None:
        with self._changed:
            self._exchange.forget(pending)

    def _run_timers(self) -> None:
        """The timer thread: sends again what is due, gives up what is past its deadline."""
        while True:
            with self._changed:
                if self._closed:
                    return
                due = self._exchange.due(now_ns())
                if not due:
                    self._wait_for_timer()
                    continue
                resend = [(pending, pending.sends) for pending in due.resend]
            for pending in due.expired:
                self._completer.finish(pending, self._too_late(pending))
            for pending, sends in resend:
                self._send(pending, sends)

    def _wait_for_timer(self) -> None:
        # Waking this thread at each request would cost more than the request: only an earlier timer does.
        next_ns = self._exchange.next_due_ns()
        self._wake_ns = _NEVER_NS if next_ns is None else next_ns
        self._changed.wait(None if next_ns is None else max(0, next_ns - now_ns()) / NS_PER_S)

    def _too_late(self, pending: Pending) -> RequestError:
        with self._changed:
            trouble = self._trouble
        return RequestError(Code.DEADLINE_EXCEEDED, self._watch.explain(pending, trouble))

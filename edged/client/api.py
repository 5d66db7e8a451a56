"""The SDK: send arrays to a model on a device, get arrays back.

    with Client("mqtt://broker", user="line-3") as client:
        print(client.infer("press-07", "har", window).outputs)

One connection, any number of threads and of requests in flight. A request ends in exactly one way: an answer, an error
from the device, or DEADLINE_EXCEEDED. Until then it is sent again under the same correlation (see `exchange`).

Nothing is published, and no future completed, while the lock is held: a transport may deliver within `publish`, and
what hangs on a future may call the client, on the thread that brings the answers or the timer's: there `infer`,
`connect` and `status` would wait for themselves, and refuse.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Collection
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from edged.client import asked, payloads
from edged.client.completing import Completer
from edged.client.connection import Requester, no_connection, requester
from edged.client.exchange import Exchange, Pending, Target
from edged.client.result import Result
from edged.client.status import Status
from edged.client.watch import StatusWatch, read_status
from edged.client.wire import Sender, correlation_of, read_reply
from edged.clock import NS_PER_S, now_ns
from edged.errors import Code, RequestError, UnavailableError, UsageError
from edged.transports.base import Denied, Message, Subscription, Transport

DEFAULT_USER = "edged"
_NEVER_NS = 1 << 63


class Client:
    """A connection to one broker, for inference on any device behind it.

    url: `mqtt://host[:port]`, `mqtts://…`, or that of another transport; `options` are the transport's (for MQTT the
    fields of `MqttSettings`: client_id, username, password, ca_file, …). Or give `transport`, used as it is.
    user: the level of the reply topics which the broker's ACL ties to the login; the username when not given.
    protocol: "5", "3.1.1" or "auto" (5, else 3.1.1). Many clients of one user do better with "5": a 3.1.1 client, and
    one that may have to become one, receives the replies of all of them.
    qos: of requests and replies. resend_s: the shortest wait before a request is sent again.
    devices: whose status is followed from the start, so that a missing answer can be explained.
    """

    def __init__(
        self,
        url: str = "",
        *,
        user: str | None = None,
        protocol: str = "auto",
        qos: int = 1,
        resend_s: float = 0.25,
        devices: Collection[str] = (),
        transport: Transport | None = None,
        **options: Any,
    ) -> None:
        self._pid = os.getpid()
        self._exchange = Exchange(int(asked.seconds("resend_s", resend_s) * NS_PER_S))
        instance = self._exchange.instance.hex()
        self._requester: Requester | None = None
        if transport is None:
            self._requester = requester(url, {"protocol": protocol, **options}, client_id=f"edged-client-{instance}")
            transport = self._requester.open()
        self.login = self._requester.username if self._requester is not None else None
        self.user = asked.level("user", user or self.login or DEFAULT_USER)
        self._transport = transport
        self._sender = Sender(self.user, instance, asked.qos(qos))
        self._reply_filter = self._sender.reply_filter(protocol)
        self._watch = StatusWatch([asked.level("device", name) for name in devices])
        self._changed = threading.Condition()
        self._connected = self._catching_up = False
        # The detail of the last connection, which names its protocol.
        self._protocol = "" if protocol == "auto" else protocol
        self._trouble = "still connecting"
        self._starting = threading.Lock()  # held while the transport starts, and by who must not meet it half started
        self._started = False
        self._timer = threading.Thread(target=self._run_timers, name="edged-client-timer", daemon=True)
        self._completer = Completer()
        self._wake_ns = 0  # when the timer thread looks again by itself
        self._closed = False

    def __enter__(self) -> Client:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def connect(self, timeout: float = 10.0) -> None:
        """Wait until there is a connection; raises UnavailableError after `timeout` seconds, and at once when the
        broker refuses the login. Never needed: a request made before waits for the connection within its deadline."""
        asked.seconds("timeout", timeout)
        self._completer.refuse_waiting("connect")
        self._start()
        with self._changed:
            self._changed.wait_for(lambda: self._connected or isinstance(self._trouble, Denied), timeout)
            if not self._connected:
                raise no_connection(self._broker(), timeout, self._trouble)

    def close(self) -> None:
        """End every open request with CANCELLED, disconnect, end the threads. Can be called again.

        In a process forked from the client's own it does nothing: neither threads nor connection are there.
        """
        if os.getpid() != self._pid:
            return
        with self._changed:
            if self._closed:
                return
            self._closed = True
            unanswered = list(self._exchange.drain())
            self._changed.notify_all()
        for pending in unanswered:
            self._completer.finish(pending, RequestError(Code.CANCELLED, "the client was closed"))
        with self._starting:
            started, self._started = self._started, False
        if not started:
            return
        if self._timer is not threading.current_thread():  # what hangs on a future may close the client
            self._timer.join()
        self._transport.stop()

    def infer(
        self, device: str, model: str, inputs: payloads.Inputs, *, deadline_ms: int = 1000, codec: str | None = None
    ) -> Result:
        """Ask and wait for the answer.

        inputs: one array, a mapping by input name, or the bytes of a payload (an image file). dtype and shape must be
        the model's, but a leading batch dimension of 1 may be left out.
        deadline_ms: a whole number of milliseconds, 1 to a day. codec: npy, json, cbor, raw, or for bytes also jpeg and
        png; raw says neither dtype, shape nor names. When not given: npy for one array, cbor or json for several (by
        name), raw for bytes.
        Raises RequestError from the device, for the deadline, or a payload too large to be sent (INVALID_ARGUMENT);
        UsageError, also in a callback of a future (use `infer_async` there); BadDataError.
        """
        self._completer.refuse_waiting("infer")
        return self.infer_async(device, model, inputs, deadline_ms=deadline_ms, codec=codec).result()

    async def ainfer(
        self, device: str, model: str, inputs: payloads.Inputs, *, deadline_ms: int = 1000, codec: str | None = None
    ) -> Result:
        """`infer` for asyncio: waits without a thread; cancelling it forgets the request."""
        import asyncio  # noqa: PLC0415 - only for who uses it

        future = self.infer_async(device, model, inputs, deadline_ms=deadline_ms, codec=codec)
        return await asyncio.wrap_future(future)

    def infer_async(
        self, device: str, model: str, inputs: payloads.Inputs, *, deadline_ms: int = 1000, codec: str | None = None
    ) -> Future[Result]:
        """`infer` as a future. Callbacks run on the client's own threads: they must not block."""
        self._start()
        target = Target(asked.level("device", device), asked.level("model", model))
        budget_ms = asked.deadline(deadline_ms)
        encoded = payloads.encode(inputs, codec)
        with self._changed:
            self._refuse_closed()
            pending = self._exchange.open(target, encoded, budget_ms, now_ns())
        pending.future.add_done_callback(lambda future: self._forget(pending) if future.cancelled() else None)
        self._send(pending, 0)
        return pending.future

    def status(self, device: str, timeout: float = 2.0) -> Status | None:
        """Return the device's last status, None when there is none within `timeout` seconds.

        A device not named in `devices` costs a connection of its own; raises UsageError where there is no url for it.
        """
        self._completer.refuse_waiting("status")
        self._start()
        if self._watch.follows(device):
            return self._watch.wait(device, timeout)
        if self._requester is None:
            raise UsageError("status", f"device {device} is not followed", "name it in Client(devices=[…])")
        return read_status(self._requester, asked.level("device", device), timeout)

    def stats(self) -> dict[str, int]:
        """Counters since the client was made: see `exchange.Counters`, and `malformed` statuses."""
        asked.same_process(self._pid)
        with self._changed:
            return dataclasses.asdict(self._exchange.counters) | {"malformed": self._watch.malformed}

    def _start(self) -> None:
        """Start once; when the transport cannot start, every call says why."""
        asked.same_process(self._pid)
        with self._starting:
            with self._changed:
                self._refuse_closed()
            if self._started:
                return
            subscriptions = [Subscription(self._reply_filter, self._sender.qos), *self._watch.subscriptions()]
            self._transport.start(self._on_message, subscriptions, on_connection=self._on_connection)
            self._timer.start()
            self._started = True

    def _broker(self) -> str:
        return self._transport.name if self._requester is None else self._requester.where

    def _refuse_closed(self) -> None:
        if self._closed:
            raise UnavailableError("client", "it was closed")

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
        if message is not None and not self._transport.publish(message):
            self._not_sent(pending, self._transport.refusal(message))

    def _not_sent(self, pending: Pending, refusal: str) -> None:
        with self._changed:
            self._exchange.unsent(pending)
            refused = bool(refusal) and self._exchange.refuse(pending)
        if refused:
            error = RequestError(Code.INVALID_ARGUMENT, f"the request cannot be sent: {refusal}")
            self._completer.finish(pending, error)

    def _on_connection(self, connected: bool, detail: str) -> None:
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

    def _on_message(self, message: Message) -> None:
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

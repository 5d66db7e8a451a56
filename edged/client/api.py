"""The SDK: send arrays to a model on a device, get arrays back.

    with Client("mqtt://broker", user="line-3") as client:
        print(client.infer("press-07", "har", window).outputs)

One connection, any number of threads and of requests in flight. A request ends in exactly one way: an answer, an error
from the device, or DEADLINE_EXCEEDED. Until then it is sent again under the same correlation (see `exchange`).

Nothing is published, and no future completed, while the lock is held: a transport may deliver within `publish`, and
what hangs on a future may call the client.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Collection
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any

from edged import topics
from edged.client import payloads
from edged.client.connection import mqtt_transport, requester_settings
from edged.client.exchange import Exchange, Pending, Target
from edged.client.result import Result
from edged.client.status import Status, describe
from edged.client.watch import StatusWatch, read_status
from edged.client.wire import V3, Sender, correlation_of, read_reply
from edged.clock import NS_PER_S, now_ns
from edged.errors import Code, RequestError, UnavailableError, UsageError
from edged.transports.base import Message, Subscription, Transport

if TYPE_CHECKING:
    from edged.transports.mqtt_settings import MqttSettings

MAX_DEADLINE_MS = 86_400_000
_NEVER_NS = 1 << 63


class Client:
    """A connection to one broker, for inference on any device behind it.

    url: `mqtt://host[:port]`, `mqtts://…`; `options` are those of `MqttSettings` (client_id, username, password,
    ca_file, cert_file, key_file). Or give `transport`, used as it is.
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
        self._exchange = Exchange(int(resend_s * NS_PER_S))
        instance = self._exchange.instance.hex()
        self._settings: MqttSettings | None = None
        if transport is None:
            settings = requester_settings(url, {"protocol": protocol, **options})
            self._settings = dataclasses.replace(settings, client_id=settings.client_id or f"edged-client-{instance}")
            transport = mqtt_transport(self._settings)
        self.user = _level("user", user or (self._settings and self._settings.username) or "edged")
        self._transport = transport
        self._sender = Sender(self.user, instance, qos)
        self._reply_filter = self._sender.reply_filter(protocol)
        self._watch = StatusWatch([_level("device", name) for name in devices])
        self._changed = threading.Condition()
        self._connected = False
        # The detail of the last connection, which names its protocol.
        self._protocol = "" if protocol == "auto" else protocol
        self._trouble = "still connecting"
        self._timer: threading.Thread | None = None
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
        """Wait until there is a connection; raises UnavailableError after `timeout` seconds. Never needed: a request
        made before waits for the connection within its own deadline."""
        self._start()
        with self._changed:
            if not self._changed.wait_for(lambda: self._connected, timeout):
                raise UnavailableError(self._broker(), f"no connection within {timeout:g} s: {self._trouble}")

    def close(self) -> None:
        """End every open request with CANCELLED, disconnect, end the threads. Can be called again."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            unanswered = list(self._exchange.drain())
            self._changed.notify_all()
        for pending in unanswered:
            _finish(pending, RequestError(Code.CANCELLED, "the client was closed"))
        if self._timer is None:
            return
        if self._timer is not threading.current_thread():  # what hangs on a future may close the client
            self._timer.join()
        self._transport.stop()

    def infer(
        self, device: str, model: str, inputs: payloads.Inputs, *, deadline_ms: int = 1000, codec: str | None = None
    ) -> Result:
        """Ask and wait for the answer.

        inputs: one array, a mapping by input name in the model's order, or the bytes of a payload (an image file).
        codec: raw, npy, json, or for bytes also jpeg, png, cbor. When not given it is raw, but npy where a reply has no
        room for the outputs' dtypes: over MQTT 3.1.1, and before it is known which protocol the broker speaks.
        Raises RequestError from the device or for the deadline, UsageError, BadDataError.
        """
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
        target = Target(_level("device", device), _level("model", model))
        budget_ms = _check_deadline(deadline_ms)
        encoded = payloads.encode(inputs, codec or self._default_codec())
        with self._changed:
            self._refuse_closed()
            pending = self._exchange.open(target, encoded, budget_ms, now_ns())
        pending.future.add_done_callback(lambda future: self._forget(pending) if future.cancelled() else None)
        self._send(pending)
        return pending.future

    def status(self, device: str, timeout: float = 2.0) -> Status | None:
        """Return the device's last status, None when there is none within `timeout` seconds.

        A device not named in `devices` costs a connection of its own; raises UsageError where there is no url for it.
        """
        self._start()
        if self._watch.follows(device):
            return self._watch.wait(device, timeout)
        if self._settings is None:
            raise UsageError("status", f"device {device} is not followed", "name it in Client(devices=[…])")
        return read_status(self._settings, _level("device", device), timeout)

    def stats(self) -> dict[str, int]:
        """Counters since the client was made: see `exchange.Counters`, and `malformed` statuses."""
        with self._changed:
            return dataclasses.asdict(self._exchange.counters) | {"malformed": self._watch.malformed}

    def _start(self) -> None:
        with self._changed:
            self._refuse_closed()
            if self._timer is not None:
                return
            self._timer = threading.Thread(target=self._run_timers, name="edged-client-timer", daemon=True)
            self._timer.start()
        subscriptions = [Subscription(self._reply_filter, self._sender.qos), *self._watch.subscriptions()]
        self._transport.start(self._on_message, subscriptions, on_connection=self._on_connection)

    def _broker(self) -> str:
        return self._transport.name if self._settings is None else f"{self._settings.host}:{self._settings.port}"

    def _refuse_closed(self) -> None:
        if self._closed:
            raise UnavailableError("client", "it was closed")

    def _default_codec(self) -> str:
        # Before the first connection the protocol is not known: npy reads well in both.
        return "raw" if self._protocol and V3 not in self._protocol else "npy"

    def _send(self, pending: Pending) -> None:
        """Send a request, or leave it for the next connection when there is none."""
        with self._changed:
            if not self._exchange.is_open(pending):
                return
            now, message = now_ns(), None
            if self._connected:
                message = self._sender.message(pending, self._protocol, now)
                self._exchange.sent(pending, now)
            else:
                self._exchange.postpone(pending)
            if pending.due_ns < self._wake_ns:
                self._changed.notify_all()
        if message is not None and not self._transport.publish(message):
            with self._changed:
                self._exchange.counters.dropped += 1

    def _on_connection(self, connected: bool, detail: str) -> None:
        with self._changed:
            self._connected = connected
            self._protocol, self._trouble = (detail, "") if connected else (self._protocol, detail)
            waiting = self._exchange.all_open() if connected else []
            self._changed.notify_all()
        for pending in waiting:
            self._send(pending)

    def _on_message(self, message: Message) -> None:
        if self._watch.take(message):
            return
        with self._changed:
            pending = self._exchange.reply(correlation_of(message), now_ns())
        if pending is not None:
            _finish(pending, self._read(message, pending))

    def _read(self, message: Message, pending: Pending) -> Result | RequestError:
        outcome = read_reply(message, pending)
        if isinstance(outcome, RequestError):
            with self._changed:
                self._exchange.counters.errors += 1
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
            for pending in due.expired:
                _finish(pending, self._too_late(pending))
            for pending in due.resend:
                self._send(pending)

    def _wait_for_timer(self) -> None:
        # Waking this thread at each request would cost more than the request: only an earlier timer does.
        next_ns = self._exchange.next_due_ns()
        self._wake_ns = _NEVER_NS if next_ns is None else next_ns
        self._changed.wait(None if next_ns is None else max(0, next_ns - now_ns()) / NS_PER_S)

    def _too_late(self, pending: Pending) -> RequestError:
        device = pending.target.device
        what = f"no answer from {device} within {pending.deadline_ms} ms"
        with self._changed:
            trouble = self._trouble
        if trouble:
            why = f"not connected to the broker: {trouble}"
        else:
            why = f"sent {pending.sends} times, {describe(self._watch.known(device), now_ns())}"
        return RequestError(Code.DEADLINE_EXCEEDED, f"{what} ({why})")


def _finish(pending: Pending, outcome: Result | RequestError) -> None:
    # False: the caller has cancelled it, and nobody waits for the outcome.
    if not pending.future.set_running_or_notify_cancel():
        return
    if isinstance(outcome, RequestError):
        pending.future.set_exception(outcome)
    else:
        pending.future.set_result(outcome)


def _level(what: str, name: str) -> str:
    if not topics.valid_level(name):
        raise UsageError(what, f"{name!r} cannot be a topic level", "no /, + or #, not empty")
    return name


def _check_deadline(deadline_ms: int) -> int:
    if not 1 <= deadline_ms <= MAX_DEADLINE_MS:
        raise UsageError("deadline_ms", f"must be 1 to {MAX_DEADLINE_MS}, got {deadline_ms}")
    return deadline_ms

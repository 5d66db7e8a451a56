"""The SDK: send arrays to a model on a device, get arrays back.

    with Client("mqtt://broker", user="line-3") as client:
        print(client.infer("press-07", "har", window).outputs)

One connection, any number of threads and of requests in flight. A request ends in exactly one way: an answer, an error
from the device, or DEADLINE_EXCEEDED. Until then it is sent again under the same correlation (see `conversation`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from edged.client import asked, payloads
from edged.client.connection import Requester, no_connection, requester
from edged.client.conversation import Conversation
from edged.client.exchange import Exchange, Target
from edged.client.result import Result
from edged.client.status import Status
from edged.client.watch import StatusWatch, read_status
from edged.client.wire import Sender
from edged.clock import NS_PER_S
from edged.errors import UsageError
from edged.transports.base import Subscription, Transport

DEFAULT_USER = "edged"


class Client:
    """A connection to one broker, for inference on any device behind it.

    url: `mqtt://host[:port]`, `mqtts://…`, or that of another transport; `options` are the transport's (for MQTT the
    fields of `MqttSettings`: client_id, username, password, ca_file, …). Or give `transport`, used as it is.
    user: the level of the reply topics which the broker's ACL ties to the login; the username when not given. With
    a certificate in place of a login (mosquitto: use_identity_as_username) it must be the certificate's CN.
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
        exchange = Exchange(int(asked.seconds("resend_s", resend_s) * NS_PER_S))
        instance = exchange.instance.hex()
        self._requester: Requester | None = None
        if transport is None:
            self._requester = requester(url, {"protocol": protocol, **options}, client_id=f"edged-client-{instance}")
            transport = self._requester.open()
        self.login = self._requester.username if self._requester is not None else None
        self.user = asked.level("user", user or self.login or DEFAULT_USER)
        self._transport = transport
        self._watch = StatusWatch([asked.level("device", name) for name in devices])
        sender = Sender(self.user, instance, asked.qos(qos))
        self._subscriptions = [Subscription(sender.reply_filter(protocol), qos), *self._watch.subscriptions()]
        # The detail of a connection names its protocol.
        known = "" if protocol == "auto" else protocol
        self._conversation = Conversation(transport, exchange, sender, self._watch, known)
        self._starting = threading.Lock()  # held while the transport starts, and by who must not meet it half started
        self._started = False

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
        self._conversation.refuse_waiting("connect")
        self._start()
        trouble = self._conversation.no_connection(timeout)
        if trouble is not None:
            raise no_connection(self._broker(), timeout, trouble)

    def close(self) -> None:
        """End every open request with CANCELLED, disconnect, end the threads. Can be called again.

        In a process forked from the client's own it does nothing: neither threads nor connection are there.
        """
        if os.getpid() != self._pid or not self._conversation.close():
            return
        with self._starting:
            started, self._started = self._started, False
        if started:
            self._conversation.join()
            self._transport.stop()

    def infer(
        self, device: str, model: str, inputs: payloads.Inputs, *,
        deadline_ms: int = 1000, codec: str | None = None, state_key: str | None = None,
    ) -> Result:  # fmt: skip
        """Ask and wait for the answer.

        inputs: one array, a mapping by input name, or the bytes of a payload (an image file). dtype and shape must be
        the model's, but a leading batch dimension of 1 may be left out.
        deadline_ms: a whole number of milliseconds, 1 to a day. codec: npy, json, cbor, raw, or for bytes also jpeg and
        png; raw says neither dtype, shape nor names. When not given: npy for one array, cbor or json for several (by
        name), raw for bytes.
        state_key: which of this user's states a model that keeps state goes on with, 1 to 255 bytes without control
        characters; without it the one that has no name. Other models do not heed it. It needs MQTT 5.
        Raises RequestError from the device, for the deadline, or what cannot be sent: a payload too large, a state_key
        over MQTT 3.1.1 (INVALID_ARGUMENT);
        UsageError, also in a callback of a future (use `infer_async` there); BadDataError.
        """
        self._conversation.refuse_waiting("infer")
        return self.infer_async(
            device, model, inputs, deadline_ms=deadline_ms, codec=codec, state_key=state_key
        ).result()

    async def ainfer(
        self, device: str, model: str, inputs: payloads.Inputs, *,
        deadline_ms: int = 1000, codec: str | None = None, state_key: str | None = None,
    ) -> Result:  # fmt: skip
        """`infer` for asyncio: waits without a thread; cancelling it forgets the request."""
        import asyncio  # noqa: PLC0415 - only for who uses it

        future = self.infer_async(device, model, inputs, deadline_ms=deadline_ms, codec=codec, state_key=state_key)
        return await asyncio.wrap_future(future)

    def infer_async(
        self, device: str, model: str, inputs: payloads.Inputs, *,
        deadline_ms: int = 1000, codec: str | None = None, state_key: str | None = None,
    ) -> Future[Result]:  # fmt: skip
        """`infer` as a future. Callbacks run on the client's own threads: they must not block."""
        self._start()
        target = Target(asked.level("device", device), asked.level("model", model))
        budget_ms, key = asked.deadline(deadline_ms), asked.state_key(state_key)
        return self._conversation.open(target, payloads.encode(inputs, codec), budget_ms, key)

    def status(self, device: str, timeout: float = 2.0) -> Status | None:
        """Return the device's last status, None when there is none within `timeout` seconds.

        A device not named in `devices` costs a connection of its own; raises UsageError where there is no url for it.
        """
        self._conversation.refuse_waiting("status")
        self._start()
        if self._watch.follows(device):
            return self._watch.wait(device, timeout)
        if self._requester is None:
            raise UsageError("status", f"device {device} is not followed", "name it in Client(devices=[…])")
        return read_status(self._requester, asked.level("device", device), timeout)

    def stats(self) -> dict[str, int]:
        """Counters since the client was made: see `exchange.Counters`, and `malformed` statuses."""
        asked.same_process(self._pid)
        return self._conversation.stats() | {"malformed": self._watch.malformed}

    def _start(self) -> None:
        """Start once; when the transport cannot start, every call says why."""
        asked.same_process(self._pid)
        talk = self._conversation
        with self._starting:
            talk.refuse_closed()
            if self._started:
                return
            self._transport.start(talk.on_message, self._subscriptions, on_connection=talk.on_connection)
            talk.start()
            self._started = True

    def _broker(self) -> str:
        return self._transport.name if self._requester is None else self._requester.where

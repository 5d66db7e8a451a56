"""Requests from a process on the daemon's own box: payloads in shared memory, no broker in between.

    with LocalProducer("/run/edged/edged.sock", model="detector") as producer:
        result = producer.infer(frame)                       # one copy, into the memory of the daemon
        with producer.slot() as slot:                        # none
            camera.read_into(slot.view((224, 224, 3), "uint8"))
            future = slot.send(224 * 224 * 3)

The daemon's configuration says where: `local.socket`. Linux only; imports neither an MQTT client nor TensorFlow.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from types import TracebackType

from edged.client import asked, payloads
from edged.client.local_link import Link
from edged.client.local_payload import lay_out
from edged.client.local_session import Session, Waiting
from edged.client.local_slot import Slot
from edged.client.result import Result
from edged.clock import NS_PER_MS, NS_PER_S, now_ns
from edged.errors import Code, RequestError, UnavailableError, UsageError
from edged.transports.shm_memory import refuse_unsupported


class LocalProducer:
    """A connection to the daemon that listens at `path`, for any number of threads.

    model: asked where a request names none. It connects when first used, and again whenever the daemon comes back;
    what is under way meanwhile fails with UNAVAILABLE and is not sent again by itself.
    Raises UnavailableError where the system lacks what this needs.
    """

    def __init__(self, path: str | os.PathLike[str], *, model: str | None = None) -> None:
        refuse_unsupported()
        self._path, self._pid = os.fspath(path), os.getpid()
        self._model = None if model is None else asked.level("model", model)
        self._starting = threading.Lock()
        self._link: Link | None = None
        self._closed = False

    def __enter__(self) -> LocalProducer:
        self._started()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def connect(self, timeout: float = 10.0) -> None:
        """Wait until there is a connection; raises UnavailableError, with the reason, after `timeout` seconds.

        Never needed: a request made before waits for the connection within its deadline.
        """
        asked.seconds("timeout", timeout)
        link = self._started()
        _refuse_waiting(link, "connect")
        with link.changed:
            link.changed.wait_for(lambda: link.session is not None or link.closed, timeout)
            if link.session is None:
                raise UnavailableError(self._path, f"no connection within {timeout:g} s: {link.trouble}")

    def close(self) -> None:
        """End every open request with CANCELLED, and the connection. Can be called again.

        In a process forked from the producer's own it does nothing.
        """
        if os.getpid() != self._pid:
            return
        with self._starting:
            self._closed = True
            link = self._link
        if link is not None:
            link.close()

    def infer(
        self, inputs: payloads.Inputs, *, model: str | None = None, deadline_ms: int = 1000, codec: str | None = None
    ) -> Result:
        """Ask and wait for the answer.

        inputs, codec: as of `Client.infer`; a payload must fit into a slot. deadline_ms: milliseconds, 1 to a day, for
        the wait for a slot and the answer together.
        Raises RequestError: from the daemon; DEADLINE_EXCEEDED; UNAVAILABLE without a connection, or when it ends
        before the answer; RESOURCE_EXHAUSTED when no slot becomes free; INVALID_ARGUMENT for a payload that is too
        large.
        Raises UsageError, also in a callback of a future (use `submit` there), and BadDataError.
        """
        link = self._started()
        _refuse_waiting(link, "infer")
        return link.wait(*self._submit(inputs, model, deadline_ms, codec))

    def submit(
        self, inputs: payloads.Inputs, *, model: str | None = None, deadline_ms: int = 1000, codec: str | None = None
    ) -> Future[Result]:
        """`infer` as a future. It waits for a slot when all are taken, but not in the callback of a future.

        The inputs may change once it returns. The future ends with a Result, or with a RequestError as of `infer`;
        CANCELLED by `close`. Callbacks run on the producer's own thread, or on one that waits in `infer`: they must not
        block, and hold up all other answers.
        Raises RequestError where nothing was asked: RESOURCE_EXHAUSTED, UNAVAILABLE, INVALID_ARGUMENT as of `infer`.
        """
        return self._submit(inputs, model, deadline_ms, codec)[1].future

    def slot(self, timeout: float = 1.0) -> Slot:
        """Return a free slot to write a payload into; waits up to `timeout` seconds for one, 0 not at all.

        Use it in a `with` statement: it goes back at the end, unless it was sent.
        Raises RequestError: RESOURCE_EXHAUSTED when all are taken, UNAVAILABLE without a connection.
        """
        return self._slot(now_ns() + int(asked.seconds("timeout", timeout) * NS_PER_S))

    def stats(self) -> dict[str, int]:
        """Counters since it was made, of what happened so far.

        connects; sent, answered, errors (answers that are errors), lost (no answer by the deadline), interrupted (the
        connection ended before), cancelled (by `close`), late (answers after the deadline), foreign (to nobody here);
        no_slot (all taken, or no connection).
        """
        link = self._started()
        with link.changed:
            return dict(link.counters)

    def _started(self) -> Link:
        asked.same_process(self._pid)
        link = self._link
        if link is None or self._closed:
            with self._starting:
                if self._closed:
                    raise UnavailableError("producer", "it was closed")
                link = self._link = self._link or Link(self._path)
        return link

    def _submit(
        self, inputs: payloads.Inputs, model: str | None, deadline_ms: int, codec: str | None
    ) -> tuple[Session, Waiting]:
        began_ns = now_ns()
        ends_ns = began_ns + asked.deadline(deadline_ms) * NS_PER_MS
        payload = lay_out(inputs, codec)
        while True:
            with self._slot(ends_ns) as slot:
                payload.write(slot.room(payload.size))
                found = slot.announce(payload.size, model, payload.codec, deadline_ms, began_ns)
            if found is not None:  # else the daemon went before it heard of it: nothing was run, and the next one may
                return found

    def _slot(self, ends_ns: int) -> Slot:
        link = self._started()
        with link.changed:
            while link.session is None or not link.session.free:
                left_ns = ends_ns - now_ns()
                if left_ns <= 0 or link.closed or link.here():
                    link.counters["no_slot"] += 1
                    raise self._no_slot(link)
                link.changed.wait(left_ns / NS_PER_S)
            return Slot(link, link.session, link.session.free.popleft(), self._model)

    def _no_slot(self, link: Link) -> RequestError:
        if link.session is None:
            return RequestError(Code.UNAVAILABLE, f"no connection to {self._path}: {link.trouble}", 0)
        count = len(link.session.waiting)
        what = f"no slot is free: {count} requests wait for their answers (the daemon's local.slots)"
        return RequestError(Code.RESOURCE_EXHAUSTED, what, 0)


def _refuse_waiting(link: Link, what: str) -> None:
    if link.here():
        raise UsageError(what, "it cannot be waited for in the callback of a future", "use submit there")

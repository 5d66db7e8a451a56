"""How a local producer keeps connected and gets its answers, with one thread of its own.

That thread connects, and again when the daemon comes back; it takes answers and keeps deadlines. A caller that waits
for an answer takes answers itself meanwhile, its own and others': one thread less to be woken for each.

What is under way when a connection ends fails UNAVAILABLE, which may be tried again: nobody knows whether it was run,
and a frame is soon worth nothing. What is asked meanwhile waits for the next connection, within its deadline.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections import Counter
from collections.abc import Iterator

from edged.client import payloads
from edged.client.local_session import Answer, Session, Waiting, open_session
from edged.client.result import Result
from edged.client.wire import read_error
from edged.clock import NS_PER_MS, NS_PER_S, now_ns
from edged.errors import Code, RequestError, UnavailableError
from edged.meta import parse_meta

_COUNTERS = (
    "connects", "sent", "answered", "errors", "lost", "interrupted", "cancelled", "late", "foreign", "no_slot",
)  # fmt: skip
_NEVER_NS = 1 << 63
_HELLO_S = 5.0
_FIRST_S, _LONGEST_S = 0.02, 0.5


class Link:
    """Keeps `session`, None while there is no connection, and why in `trouble`; both under `changed`.

    counters: see `LocalProducer.stats`.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.changed = threading.Condition()
        self.session: Session | None = None
        self.trouble = "still connecting"
        self.closed = False
        self.counters = Counter(dict.fromkeys(_COUNTERS, 0))
        self._waking_ns = _NEVER_NS  # when the thread looks after deadlines by itself
        self._reading = threading.Lock()  # held by who takes answers
        self._reader = 0
        self._poller = select.epoll()  # of the thread's: what wakes it, and the connection unless a caller reads
        self._woken, self._waker = socket.socketpair()  # the thread may end, and close both, before it is woken
        self._woken.settimeout(0)
        self._waker.settimeout(0)
        self._poller.register(self._woken, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name="edged-local", daemon=True)
        self._thread.start()

    def here(self) -> bool:
        """Whether the caller is who takes answers: it must not wait for one."""
        return threading.get_ident() in (self._reader, self._thread.ident)

    def wait(self, session: Session, waiting: Waiting) -> Result:
        """Return the answer, or raise its error."""
        with self._as_reader() as mine:
            if mine and self._watch(session, by_thread=False):
                try:
                    self._read_until(session, waiting)
                finally:
                    self._watch(session, by_thread=True)
        return waiting.future.result()

    def end(self, session: Session) -> None:
        """A connection was found to have ended: nobody is to use it any more; with the lock held.

        The thread hears it too, and connects again.
        """
        if self.session is session:
            self.session, self.trouble = None, "the daemon is gone"

    def heed(self, deadline_ns: int) -> None:
        """See to it that this deadline is kept; with the lock held. Mostly the thread wakes early enough anyway."""
        if deadline_ns < self._waking_ns:
            self._waking_ns = deadline_ns
            self._wake()

    def close(self) -> None:
        """End the connection and the thread; what is under way ends CANCELLED."""
        with self.changed:
            if self.closed:
                return
            self.closed = True
            self.changed.notify_all()
            self._wake()
        if not self.here():
            self._thread.join()

    # --- answers, on the thread or a caller's -------------------------------------------------------------------------

    @contextlib.contextmanager
    def _as_reader(self) -> Iterator[bool]:
        """Become who takes answers; False when somebody is."""
        if not self._reading.acquire(blocking=False):
            yield False
            return
        self._reader = threading.get_ident()
        try:
            yield True
        finally:
            self._reader = 0
            self._reading.release()

    def _watch(self, session: Session, *, by_thread: bool) -> bool:
        """Let the thread hear of answers, or not; False when the connection has ended."""
        with self.changed:
            if session.lost:
                return False
            if by_thread:
                self._poller.register(session.connection, select.EPOLLIN)
            else:
                self._poller.unregister(session.connection)
        return True

    def _read_until(self, session: Session, waiting: Waiting) -> None:
        """Take answers until that one is there, its deadline is over or the connection has ended."""
        poller = select.poll()
        poller.register(session.connection, select.POLLIN)
        with contextlib.suppress(ConnectionError):  # which the thread hears too
            while not waiting.future.done() and (left_ns := waiting.deadline_ns - now_ns()) > 0:
                if poller.poll(left_ns / NS_PER_MS):
                    self._take(session)

    def _take(self, session: Session) -> None:
        """Take one message, if it is there. Raises ConnectionError when the connection has ended."""
        answer = session.read()
        if answer is None:
            return
        with self.changed:
            waiting = session.answered(answer.head)
            self._count(waiting, answer)
            self.changed.notify_all()
        if waiting is not None and not waiting.given_up:
            self._finish(waiting, read_error(answer.payload) if answer.head.error else _result(waiting, answer))

    def _count(self, waiting: Waiting | None, answer: Answer) -> None:
        if waiting is None or waiting.given_up:
            self.counters["foreign" if waiting is None else "late"] += 1
        else:
            self.counters["errors" if answer.head.error else "answered"] += 1

    def _finish(self, waiting: Waiting, outcome: Result | RequestError) -> None:
        if not waiting.future.set_running_or_notify_cancel():
            return
        if isinstance(outcome, RequestError):
            waiting.future.set_exception(outcome)
        else:
            waiting.future.set_result(outcome)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause_s = _FIRST_S
        while not self.closed:
            session = self._connect()
            if session is None:
                with self.changed:
                    self.changed.wait_for(lambda: self.closed, pause_s)
                pause_s = min(2 * pause_s, _LONGEST_S)
                continue
            pause_s = _FIRST_S
            self._lose(session, self._serve(session))
        for one in (self._poller, self._woken, self._waker):
            one.close()

    def _connect(self) -> Session | None:
        try:
            session = open_session(self._path, self._greeted)
        except UnavailableError as error:
            trouble = error.what
        except OSError as error:
            trouble = f"nobody listens there: {error.strerror}"
        else:
            with self.changed:
                self._poller.register(session.connection, select.EPOLLIN)
                self.session, self.trouble = session, ""
                self.counters["connects"] += 1
                self.changed.notify_all()
            return session
        with self.changed:
            self.trouble = trouble
        return None

    def _greeted(self, connection: socket.socket) -> bool:
        """Wait for the daemon's hello; False when it does not come, or nobody wants it any more."""
        end_ns = now_ns() + int(_HELLO_S * NS_PER_S)
        poller = select.poll()
        poller.register(connection, select.POLLIN)
        poller.register(self._woken, select.POLLIN)
        while not self.closed and (left_ns := end_ns - now_ns()) > 0:
            ready = [fd for fd, _ in poller.poll(left_ns / NS_PER_MS)]
            if connection.fileno() in ready:
                return True
            self._drain()
        return False

    def _serve(self, session: Session) -> str:
        """Take answers and keep deadlines until the connection ends; returns why."""
        while not self.closed:
            left_ns = self._waking_ns - now_ns()
            ready = self._poller.poll(None if self._waking_ns == _NEVER_NS else max(0, left_ns) / NS_PER_S)
            if now_ns() >= self._waking_ns:
                self._keep_deadlines(session)
            for fd, _events in ready:
                if fd == self._woken.fileno():
                    self._drain()
                    continue
                with self._as_reader() as mine:
                    try:
                        if mine:
                            self._take(session)
                    except ConnectionError as error:
                        return str(error)
        return "the producer was closed"

    def _keep_deadlines(self, session: Session) -> None:
        with self.changed:
            expired = session.expired(now_ns())
            self._waking_ns = session.next_deadline_ns(_NEVER_NS)
            self.counters["lost"] += len(expired)
        for waiting in expired:
            what = f"no answer from {self._path} within {waiting.deadline_ms} ms"
            self._finish(waiting, RequestError(Code.DEADLINE_EXCEEDED, what))

    def _lose(self, session: Session, reason: str) -> None:
        error = RequestError(Code.UNAVAILABLE, f"the connection ended before the answer: {reason}", 0)
        if self.closed:
            error = RequestError(Code.CANCELLED, reason)
        with self.changed:
            self.session, self.trouble, session.lost = None, reason, True
            self._waking_ns = _NEVER_NS
            unanswered = [waiting for waiting in session.waiting.values() if not waiting.given_up]
            self.counters["cancelled" if self.closed else "interrupted"] += len(unanswered)
            self.changed.notify_all()
        session.connection.shutdown(socket.SHUT_RDWR)  # which wakes a caller who reads
        for waiting in unanswered:
            self._finish(waiting, error)
        with self._reading:
            session.connection.close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # it is full of wake-ups already, or the thread has ended
            self._waker.send(b"x")

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)


def _result(waiting: Waiting, answer: Answer) -> Result:
    return Result(
        payload=answer.payload,
        codec=payloads.codec_of(answer.head.content_type or None, waiting.codec),
        meta=parse_meta(answer.head.meta),
        round_trip_ms=(now_ns() - waiting.created_ns) / NS_PER_MS,
        resends=0,
    )

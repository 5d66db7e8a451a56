"""The thread between the streams and the transport: write ahead, send in order, a few at a time.

Rules it keeps:
- An answer is on disk before it is sent, and is done with when the transport says so: a kill loses nothing that the
  broker has not. What was sent and not acknowledged by then is sent again.
- What is older is sent before what is newer, also when there is nothing to wait for.
- At most `WINDOW` answers and `WINDOW_BYTES` are in the transport's hands, however much waits here.
- Where the disk takes nothing, answers wait in memory behind those on disk and are sent without being kept; it is tried
  again each second.
Whoever publishes only hands over, within `HANDOVER_BYTES`: a disk may take seconds for a write.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

from edged.clock import NS_PER_S, now_ns
from edged.config import OutboxConfig
from edged.outbox.handed import Answer, Mark
from edged.outbox.journal import Journal
from edged.request import OnSent
from edged.transports.base import Message, Transport
from edged.transports.counters import Counters

log = logging.getLogger(__name__)

# Half of what an MQTT client has unacknowledged at most (paho's and mosquitto's limit is 20): replies keep the rest.
WINDOW = 10
WINDOW_BYTES = 64 << 10
HANDOVER_BYTES = 4 << 20
# As often as ext4 writes its journal anyway: what a power cut may cost. Nothing is synced while the broker answers.
_SYNC_NS = 5 * NS_PER_S
_DISK_RETRY_NS = NS_PER_S
_SEND_RETRY_NS = (NS_PER_S // 10, 5 * NS_PER_S)  # the first, and the longest
_COUNTERS = (
    "stored", "unstored", "finished",
    "dropped_oldest", "dropped_old", "dropped_damaged", "dropped_handover", "dropped_refused", "dropped_unwritten",
    "torn", "write_errors", "errors",
)  # fmt: skip


class Outbox:
    """Takes answers and sees that the broker gets them. on_trouble: called when `trouble` changes, on the own thread.

    trouble: why the disk takes nothing; "" when it does.
    """

    def __init__(self, directory: Path, bounds: OutboxConfig, transport: Transport, on_trouble: Callable[[], None]):
        self._transport, self._on_trouble, self._max_bytes = transport, on_trouble, bounds.max_bytes
        self._counters = Counters(*_COUNTERS)
        self._journal = Journal(directory, bounds.max_bytes, bounds.max_age_s, self._counters)
        self._directory = directory
        self._inbox: queue.SimpleQueue[Answer | Mark | int] = queue.SimpleQueue()
        self._lock, self._held_bytes = threading.Lock(), 0
        self._coming = self._waiting = 0  # answers in the inbox, and beyond it
        self._held: deque[Answer] = deque()
        self._inflight: dict[int, int] = {}  # number → payload bytes, oldest first
        self._declined: set[int] = set()  # of those, by the broker
        self._refused: Answer | None = None  # by the transport, for now
        self._fresh: Answer | None = None  # the newest on disk, with who waits for its mark
        self._unkept = 0
        self._stopping = self._ending = self._quiet = False
        self._settled = threading.Event()  # after `stop`: nothing waits any more
        self._disk_ns = self._send_ns = self._sync_ns = 0  # not before; 0 is at once (sync: never)
        self._send_wait_ns = _SEND_RETRY_NS[0]
        self.trouble = ""
        self._thread = threading.Thread(target=self._run, name="edged-outbox", daemon=True)

    def start(self) -> None:
        """Begin; what is on disk from before is sent first."""
        self._thread.start()

    def publish(self, message: Message, on_sent: OnSent | None = None) -> bool:
        """Take one answer at QoS 1; False when it was dropped (counted). Any thread.

        on_sent: as a transport's; not called for an answer that is sent later than the ones after it came.
        """
        answer = Answer(message, on_sent)
        with self._lock:
            full = self._held_bytes and self._held_bytes + answer.cost > HANDOVER_BYTES
            if full or self._stopping or answer.cost > self._max_bytes:
                self._counters.add("dropped_handover")
                return False
            self._held_bytes += answer.cost
            self._coming += 1
            self._inbox.put(answer)
        return True

    def stop(self, timeout_s: float) -> None:
        """Take no more, and send no more after this; while there is a connection, what waits may go within the time.

        To be called before the transport stops.
        """
        with self._lock:
            self._stopping = True
            self._inbox.put(Mark.STOP)
        if self._transport.stats().get("connected"):
            self._settled.wait(timeout_s)
        self._quiet = True

    def close(self, timeout_s: float) -> None:
        """End the thread; what is not acknowledged stays on disk."""
        self._inbox.put(Mark.CLOSE)
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def stats(self) -> dict[str, object]:
        """Return the counters since start, what waits now, and `trouble`.

        stored (written to disk), unstored (sent without), finished (acknowledged); dropped_oldest (for `max_bytes`),
        dropped_old (for `max_age_s`), dropped_damaged (unreadable), dropped_handover (more than memory may hold, or
        larger than the outbox), dropped_refused (no such packet can be sent, or the broker did not take it),
        dropped_unwritten (in memory at the end); torn (ends of files that were cut off), write_errors, errors. waiting
        (answers not finished), bytes (on disk).
        """
        return {**self._counters.snapshot(), **self.load(), "trouble": self.trouble}

    def load(self) -> dict[str, int]:
        """Return how many answers wait for the broker, and the bytes on disk."""
        with self._lock:
            return {"waiting": self._coming + self._waiting, "bytes": self._journal.bytes}

    def _run(self) -> None:
        item: Answer | Mark | int | None = None
        while item is not Mark.CLOSE:
            try:
                self._step(item)
            except Exception:  # top of the thread: one answer that makes it fail must not end all the others
                log.exception("the outbox failed on one answer")
                self._counters.add("errors")
            self._count(item)
            try:
                item = self._inbox.get(timeout=self._wait_s())
            except queue.Empty:
                item = None
        self._end()

    def _wait_s(self) -> float | None:
        """Return the seconds until there is something to do although nothing comes; None for ever."""
        due = []
        if self._held or not self._journal.is_open:
            due.append(self._disk_ns)
        if self._send_ns and not self._quiet:
            due.append(self._send_ns)
        if self._journal.unsynced:
            due.append(self._sync_ns)
        return max(0.0, (min(due) - now_ns()) / NS_PER_S) if due else None

    def _step(self, item: Answer | Mark | int | None) -> None:
        if isinstance(item, int):
            self._finish(item)
        elif isinstance(item, Answer):
            self._held.append(item)
        if now_ns() >= self._disk_ns:
            self._store()
        if not self._quiet and now_ns() >= self._send_ns:
            self._send_ns = 0
            self._send()
        if self._journal.unsynced and now_ns() >= self._sync_ns:
            self._journal.sync()

    def _count(self, item: Answer | Mark | int | None) -> None:
        on_disk = self._journal.end - self._journal.next
        with self._lock:
            self._coming -= isinstance(item, Answer)
            self._waiting = on_disk + len(self._held) + len(self._inflight) + (self._refused is not None)
        self._ending |= item is Mark.STOP
        if self._ending and not self._waiting:
            self._settled.set()

    def _finish(self, number: int) -> None:
        if self._inflight.pop(number, None) is None:
            return
        self._counters.add("dropped_refused" if number in self._declined else "finished")
        self._declined.discard(number)
        self._send_ns, self._send_wait_ns = 0, _SEND_RETRY_NS[0]  # there is room again
        self._forget()

    def _forget(self) -> None:
        """Let the disk forget what lies before the oldest answer that is still wanted."""
        wanted = [*self._inflight, self._refused.number if self._refused is not None else -1, self._journal.next]
        self._journal.forget(next(number for number in wanted if number > 0))

    def _store(self) -> None:
        try:
            if not self._journal.is_open:
                self._open()
            while self._held:
                self._keep(self._held[0])
                self._release()
        except OSError as exc:
            self._disk_ns = now_ns() + _DISK_RETRY_NS
            self._counters.add("write_errors")
            self._tell(exc.strerror or str(exc))
        else:
            self._disk_ns = 0

    def _open(self) -> None:
        self._journal.open()
        self._tell("")
        if waiting := self._journal.end - self._journal.low:
            log.info("%s: about %d answers wait there from before", self._directory, waiting)

    def _keep(self, answer: Answer) -> None:
        if not self._journal.unsynced:
            self._sync_ns = now_ns() + _SYNC_NS
        try:
            answer.number = self._journal.append(answer.message)
        except OSError:
            raise
        except Exception:  # top of an answer: no record can be made of it, and it must not hold up the others
            log.exception("the outbox failed on one answer")
            self._counters.add("errors")
            return
        self._fresh = answer
        self._counters.add("stored")
        self._tell("")  # only now: that nothing had to be written says nothing of the disk

    def _release(self) -> Answer:
        answer = self._held.popleft()
        with self._lock:
            self._held_bytes -= answer.cost
        return answer

    def _tell(self, trouble: str) -> None:
        if trouble == self.trouble:
            return
        self.trouble = trouble
        if trouble:
            log.error("%s: %s: answers are sent without being kept", self._directory, trouble)
        else:
            log.info("%s: answers are kept again", self._directory)
        self._on_trouble()

    def _send(self) -> None:
        while len(self._inflight) < WINDOW and sum(self._inflight.values()) < WINDOW_BYTES:
            answer, self._refused = self._refused or self._next(), None
            if answer is None:
                self._forget()  # the last ones on disk may have been too old
                return
            if not self._sent(answer):
                return

    def _next(self) -> Answer | None:
        """Return the oldest answer that was not sent: on disk, or behind it in memory."""
        found, fresh = self._journal.take(), self._fresh
        if found is not None:
            on_sent = fresh.on_sent if fresh is not None and fresh.number == found.number else None
            return Answer(found.message, on_sent, found.number)
        if not self._held:
            return None
        self._unkept += 1
        self._counters.add("unstored")
        answer = self._release()
        answer.number = -self._unkept
        return answer

    def _sent(self, answer: Answer) -> bool:
        """Give one answer to the transport; False when it must wait."""
        number = answer.number
        self._inflight[number] = len(answer.message.payload)
        try:
            answer.message.on_refused = partial(self._declined.add, number)
            if self._transport.publish(answer.message, answer.on_sent, partial(self._inbox.put, number)):
                return True
        except Exception:  # top of an answer, as in `_keep`
            log.exception("the outbox failed on one answer")
            self._counters.add("errors")
            del self._inflight[number]
            return True
        del self._inflight[number]
        if why := self._transport.refusal(answer.message):
            self._counters.add("dropped_refused")
            log.warning("an answer on %s is given up: %s", answer.message.topic, why)
            self._forget()
            return True
        self._refused = answer
        self._send_ns = now_ns() + self._send_wait_ns
        self._send_wait_ns = min(2 * self._send_wait_ns, _SEND_RETRY_NS[1])
        return False

    def _end(self) -> None:
        self._store()
        lost = len(self._held) + (self._refused is not None and self._refused.number < 0)
        if lost:
            self._counters.add("dropped_unwritten", lost)
            log.error("%s: %d answers are lost: %s", self._directory, lost, self.trouble)
        self._journal.close()

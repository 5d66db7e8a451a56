"""The thread that acts on what an operator asks: commands first, then one step after the other of what is desired.

One job at a time. While a bundle is fetched or opened, commands that take no time are run in between; measuring is not.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from edged import affinity, assembly, topics
from edged.assembly import Parts
from edged.clock import NS_PER_S, now_ns
from edged.config import Config
from edged.control import desired
from edged.control.commands import Command, Drain, FailedError, Jobs, Order, RejectedError, Reload, Remeasure, Reset
from edged.control.inbox import Inbox
from edged.control.reported import Head, Reported
from edged.control.updates import Updates
from edged.errors import EdgedError
from edged.router import Router
from edged.swap import LATE, AbandonedError, Swapper
from edged.transports.base import Message

log = logging.getLogger(__name__)

LOOK_S = 0.05
# After a fault of ours.
AGAIN_S = 1.0


@dataclass(frozen=True)
class Rooms:
    """What of the daemon control acts on.

    config: returns the one that holds now. send: a transport's `publish`, for one message. reload: reads the
    configuration again; returns what changed, raises an EdgedError. wake: there is news for the status. settle: there
    is memory to give back, at leisure.
    """

    config: Callable[[], Config]
    parts: Parts
    router: Router
    send: Callable[[Message], object]
    reload: Callable[[], Sequence[str]]
    wake: Callable[[], None]
    settle: Callable[[], None]


class Control:
    """One thread. `stop` may be called from any other."""

    def __init__(self, rooms: Rooms, inbox: Inbox) -> None:
        self._rooms, self._inbox = rooms, inbox
        self._stopping = threading.Event()
        self._jobs = Jobs(self._tell)
        self._waiting: deque[Command] = deque()
        self._reported: Reported | None = None
        self._updates: Updates | None = None
        self._rejected = 0
        self._thread = threading.Thread(target=self._run, name="edged-control", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Let it give up what it is at; `join` waits for it."""
        self._stopping.set()
        self._inbox.news.set()

    def join(self, timeout_s: float) -> None:
        """Wait until it has ended."""
        self._thread.join(timeout_s)

    def stats(self) -> dict[str, int]:
        """Counters since start: commands by what became of them, `repeated`; messages of wishes that were rejected."""
        return {**self._jobs.counts, "dropped": self._inbox.dropped, "desired_rejected": self._rejected}

    @property
    def stale(self) -> bool:
        """Whether what was last reported of the models no longer holds."""
        return self._reported is not None and self._reported.stale

    def _run(self) -> None:
        affinity.be_ordinary()  # it starts processes that must not compete with the models
        while not self._stopping.is_set():
            try:
                if not self._turn():
                    self._inbox.news.wait()
            except Exception:  # top of the thread: the next job must find it alive
                log.exception("control")
                self._stopping.wait(AGAIN_S)
        while self._waiting:
            self._jobs.run(self._waiting.popleft(), _too_late)

    def _turn(self) -> bool:
        """Do one thing; returns whether there was one."""
        if self._rooms.parts.deployed.told:
            # What an earlier start reported is still there, and may be wrong by now.
            self._updating()
        self._look()
        if self._waiting:
            self._next()
            return True
        if self._updates is None or not self._updates.turn():
            return False
        # Not before: until here somebody down the stack held what no longer serves.
        self._rooms.settle()
        return True

    def _look(self) -> bool:
        """Take in what came, and do what takes no time; returns whether to go on."""
        self._inbox.news.clear()
        while (told := self._inbox.command()) is not None:
            command = self._jobs.take(told.verb, told.payload, retained=told.retained)
            if command is not None:
                self._waiting.append(command)
        if (payload := self._inbox.desired()) is not None:
            self._desire(payload)
        again, self._inbox.reconnected = self._inbox.reconnected, False
        if self._reported is not None and (again or self._reported.stale):
            self._reported.publish()
        return not self._stopping.is_set()

    def _in_between(self) -> bool:
        """`_look`, and run the commands that take no time."""
        going_on = self._look()
        while going_on and self._waiting and not isinstance(self._waiting[0].order, Remeasure):
            self._next()
        return going_on

    def _next(self) -> None:
        self._jobs.run(self._waiting.popleft(), self._work)
        self._rooms.settle()

    # --- desired/models -----------------------------------------------------------------------------------------------

    def _desire(self, payload: bytes) -> None:
        reported, updates = self._updating()
        if not payload:
            # The retained message was cleared: nothing is wished for any more, and what serves stays.
            reported.head, wishes = Head(), desired.Desired(rev=0, models=())
        else:
            try:
                wishes = desired.parse(payload, list(self._rooms.parts.workers))
            except desired.RejectedError as exc:
                self._rejected += 1
                log.warning("desired/models: rejected: %s", exc)
                reported.head = Head("REJECTED", exc.rev, str(exc))
                reported.publish()
                return
            reported.head = Head("ACCEPTED", wishes.rev, "")
        updates.take(wishes)
        reported.publish()

    def _updating(self) -> tuple[Reported, Updates]:
        if self._reported is None or self._updates is None:
            config, parts = self._rooms.config(), self._rooms.parts
            parts.deployed.own()
            self._reported = Reported(config.device, parts, self._rooms.send)
            self._updates = Updates(config, parts, self._reported, self._swapper, self._in_between, self._pause)
        return self._reported, self._updates

    def _swapper(self, wanted: Callable[[], bool]) -> Swapper:
        rooms = self._rooms
        return Swapper(
            rooms.parts, wanted, rooms.wake,
            opening_s=rooms.config().selection.candidate_s, answering_s=lambda: rooms.config().drain_timeout_s,
        )  # fmt: skip

    @staticmethod
    def _pause() -> None:
        time.sleep(LOOK_S)

    # --- cmd/<verb> ---------------------------------------------------------------------------------------------------

    def _tell(self, verb: str, event: Mapping[str, object]) -> None:
        # A verb is what a stranger wrote: only what can be one level of a topic is answered on its own.
        level = verb if topics.valid_level(verb) else "unknown"
        self._rooms.send(
            Message(topics.device(self._rooms.config().device, "event", level), json.dumps(event).encode(), 1)
        )

    def _work(self, order: Order) -> Mapping[str, object]:
        log.info("command: %s", order)
        if isinstance(order, Reload):
            return self._reload()
        if isinstance(order, Reset):
            return self._reset(order)
        if isinstance(order, Drain):
            return self._drain(order)
        return self._remeasure(order)

    def _reload(self) -> Mapping[str, object]:
        try:
            return {"changes": list(self._rooms.reload())}
        except EdgedError as exc:
            raise FailedError(str(exc)) from exc

    def _reset(self, order: Reset) -> Mapping[str, object]:
        self._require_models([order.model])
        worker = self._rooms.parts.workers[order.model]
        if not worker.plan.bundle.manifest.stateful:
            raise RejectedError(f"model {order.model!r} keeps no state")
        return {"forgotten": worker.reset(order.key)}

    def _drain(self, order: Drain) -> Mapping[str, object]:
        router = self._rooms.router
        if order.resume:
            router.resume()
            self._rooms.wake()
            return {}
        router.drain("the device is drained: an operator took it out of service")
        self._rooms.wake()
        begun_ns = now_ns()
        while (left := self._unanswered()) and not self._stopping.wait(LOOK_S):
            if now_ns() - begun_ns >= self._rooms.config().drain_timeout_s * NS_PER_S:
                break
        if left:
            raise FailedError(f"{left} requests are still unanswered; no new ones are taken")
        return {}

    def _unanswered(self) -> int:
        return sum(worker.unanswered for worker in self._rooms.parts.workers.values())

    def _remeasure(self, order: Remeasure) -> Mapping[str, object]:
        names = [order.model] if order.model is not None else list(self._rooms.parts.workers)
        self._require_models(names)
        return {"models": {name: self._measured(name) for name in names}}

    def _measured(self, name: str) -> Mapping[str, object]:
        """Measure one model afresh, and let what was chosen serve the bundle that it serves now."""
        config, serving = self._rooms.config(), self._rooms.parts.workers[name].plan.bundle
        model = next(one for one in config.models if one.name == name)
        swapper = self._swapper(lambda: not self._stopping.is_set())

        def note(_step: str, text: str) -> None:
            if text:
                log.info("model %s: %s", name, text)

        try:
            wish = assembly.wish(model, serving, config.models)
            selection = swapper.choose(serving, wish, note, fresh=True)
            swapper.swap(name, serving, selection, note)
        except (EdgedError, AbandonedError) as exc:
            raise FailedError(str(exc) or "the daemon stops") from exc
        found = {"chosen": selection.chosen.label, "p99_us": selection.p99_us}
        late = self._rooms.parts.workers[name].before is not None
        return {**found, "trouble": LATE} if late else found

    def _require_models(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in self._rooms.parts.workers:
                known = ", ".join(self._rooms.parts.workers)
                raise RejectedError(f"no model is called {name!r} (models: {known})")


def _too_late(_: Order) -> Mapping[str, object]:
    raise FailedError("the device is shutting down")

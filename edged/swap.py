"""One model's worker put in another one's place while requests come.

Steps, on the thread that calls: choose and measure in child processes → open and warm up beside the old one, on a
thread of its own → switch → the old one answers what it has admitted → it ends, and its memory is given back.
Rules it keeps:
- Whatever fails before the switch leaves the old one serving, as if nothing had been.
- A request is admitted to one of the two: what comes after the switch waits until the old one has answered all that
  came before, so no answer overtakes another. That wait is bounded, for an inference that does not return.
- Figures go on.
- At most two are open: the next swap waits until the one before has ended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from edged.assembly import Parts
from edged.bundle import Bundle
from edged.clock import NS_PER_S, now_ns
from edged.errors import Code, RequestError, UnavailableError
from edged.selection import Selection, Wish
from edged.worker import ModelState, Worker

log = logging.getLogger(__name__)

# How often a step looks whether it is still wanted, and whether the old one has answered everything.
LOOK_S, ANSWERED_S = 0.05, 0.0005
# What there is to tell of the old one until it has ended.
LATE = "the one before has not ended yet: it has requests to answer, or an inference of it does not return"
# For a worker to end, beside what its engine may take to close.
STOP_S = 2.0

Note = Callable[[str, str], None]  # the step, and a text


class AbandonedError(Exception):
    """Nobody wants it any more."""


@dataclass(frozen=True)
class Swapper:
    """Swaps workers of `parts`.

    wanted: whether to go on, asked often until the switch. wake: there is news for the status. opening_s: for the new
    one to open and warm up. answering_s: for the old one to answer what it has admitted, asked while it does.
    """

    parts: Parts
    wanted: Callable[[], bool]
    wake: Callable[[], None]
    opening_s: float
    answering_s: Callable[[], float]

    def choose(self, bundle: Bundle, wish: Wish, note: Note, *, fresh: bool = False) -> Selection:
        """Measure what is not known of it yet, in child processes. fresh: everything.

        Raises NothingAgreesError, and AbandonedError.
        """
        note("LOADING", "")
        selection = self.parts.selector.choose(
            bundle, wish, lambda text: note("LOADING", text), fresh=fresh, aside=True
        )
        self._go_on()
        return selection

    def swap(self, name: str, bundle: Bundle, selection: Selection, note: Note) -> None:
        """Let `bundle` serve the model from now on. The old one is the new one's `before` as long as it has not ended.

        Raises an EdgedError (it cannot be opened, with the reason) and AbandonedError; the old one serves on then.
        """
        self._alone(name, note)
        begin = threading.Event()
        new = self._opened(name, bundle, selection, begin, note)
        note("SWITCHING", "")
        old = self.parts.workers[name]
        new.follow(old)
        self.parts.workers[name] = new
        try:
            self._answered(old)
        finally:
            begin.set()
        self.wake()
        if old.stop(STOP_S + old.closing_s):
            new.follow(None)
        old.server = None  # which holds the worker: nothing must wait for a collection of garbage

    def _alone(self, name: str, note: Note) -> None:
        """Wait until the worker that serves is the only one."""
        serving = self.parts.workers[name]
        if serving.before is not None:
            note("QUEUED", LATE)
            late = f"the one before what serves had not ended after {self.opening_s:g} s"
            self._until(lambda: serving.before is None, threading.Event(), UnavailableError(name, late))

    def _opened(self, name: str, bundle: Bundle, selection: Selection, begin: threading.Event, note: Note) -> Worker:
        note("WARMING", "")
        old, told = self.parts.workers[name], threading.Event()
        new = self.parts.beside(old, bundle, selection, _waiting(begin), lambda _: told.set())
        new.start()
        try:
            late = UnavailableError(name, f"was not open after {self.opening_s:g} s")
            self._until(lambda: new.state is not ModelState.STARTING, told, late)
        except BaseException:
            _let_go(new, begin)
            raise
        if new.state is ModelState.FAILED:
            _let_go(new, begin)
            raise UnavailableError(name, new.reason)
        return new

    def _until(self, done: Callable[[], bool], told: threading.Event, late: UnavailableError) -> None:
        end_ns = now_ns() + int(self.opening_s * NS_PER_S)
        while not done():
            if now_ns() >= end_ns:
                raise late
            told.wait(LOOK_S)
            told.clear()
            self._go_on()  # which may take long: a command is done in it

    def _answered(self, old: Worker) -> None:
        """Close the old one's queue, and wait until all in it is answered."""
        old.admission.close(RequestError(Code.UNAVAILABLE, "another version serves now"))
        start_ns = now_ns()
        while old.admission.requests and now_ns() < start_ns + int(self.answering_s() * NS_PER_S):
            time.sleep(ANSWERED_S)

    def _go_on(self) -> None:
        if not self.wanted():
            raise AbandonedError


def _waiting(begin: threading.Event) -> Callable[[], None]:
    def wait() -> None:
        begin.wait()

    return wait


def _let_go(worker: Worker, begin: threading.Event) -> None:
    """End a worker that never served."""
    begin.set()
    worker.stop(STOP_S + worker.closing_s)
    worker.server = None

"""The way back of a delegate that failed: open it again in the background, probe it, hand it over when it is good.

Rules it keeps:
- A thread of its own, from a failure until the delegate is taken back or `stop`; nothing here delays a request.
  Where no thread is to be had, `start` tries again.
- It waits `backoff_s` before the first probe, and after each that fails twice as long as before, up to
  `backoff_max_s`, within a tenth, so that many devices do not ask at once.
- A delegate that fails again less than `backoff_max_s` after it was taken back does not begin anew: its wait goes on
  doubling, so one that comes and goes is left alone for longer and longer.
- A delegate that was judged meanwhile and lost (SettledError) is not tried again.
- What it opened is either taken by the worker or closed here.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

from edged import affinity
from edged.clock import NS_PER_S, now_ns
from edged.config import FailoverConfig
from edged.engines.base import PROBED, GuardedEngine, SettledError
from edged.engines.tflite_words import told

log = logging.getLogger(__name__)

JITTER = 0.1
STOP_S = 1.0  # what `stop` waits for the thread
THREAD_NS = NS_PER_S  # between two tries to start it


@dataclass(frozen=True)
class Told:
    """What there is to tell, in words. rightful: the delegate is not missed any more."""

    text: str = ""
    rightful: bool = False


class Backoff:
    """How long to wait before the next probe."""

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s, self._most_s = first_s, most_s
        self._doubled = 0
        self._served_since_ns = now_ns()

    def next_s(self) -> float:
        """Return seconds; the call after will return twice as many."""
        wait_s: float = min(self._most_s, self._first_s * 2.0**self._doubled)
        if wait_s < self._most_s:
            self._doubled += 1
        return wait_s

    def taken_back(self) -> None:
        """It serves from now on."""
        self._served_since_ns = now_ns()

    def failed(self) -> None:
        """It served until now: begin anew if that was long enough."""
        if now_ns() - self._served_since_ns >= self._most_s * NS_PER_S:
            self._doubled = 0


class Reprobe:
    """Takes a failed delegate back. `begin`, `start` and `take` belong to the worker's thread.

    reopen: opens it in a new process; SettledError ends it all. admit: probes what was opened, raising whatever is
    wrong with it. told: the last of the news, another object for each.
    on_change: called on the thread of this class when `told` says something new, or `take` has something.
    """

    def __init__(
        self,
        reopen: Callable[[], GuardedEngine],
        admit: Callable[[GuardedEngine], None],
        rules: FailoverConfig,
        on_change: Callable[[], None],
    ) -> None:
        self._reopen, self._admit, self._on_change = reopen, admit, on_change
        self._backoff = Backoff(rules.backoff_s, rules.backoff_max_s)
        self._wait_s = 0.0
        self._failed = 0
        self._why = self._before = ""
        self._lost: GuardedEngine | None = None
        self._try_again_ns = 0  # when to start the thread that could not be started; 0 for none
        self._lock = threading.Lock()
        self._good: GuardedEngine | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.told = Told()

    def begin(self, lost: GuardedEngine | None, why: str = "") -> None:
        """Start; `lost`, which nobody may use any more, is closed first. why: it failed, which is told elsewhere."""
        self._failed, self._why, self._before, self._lost = 0, why, "", lost
        self._backoff.failed()
        self._wait_s = self._backoff.next_s()
        self.start()

    def due(self) -> bool:
        """Whether `start` is to be called: there was no thread to be had, and that is a while ago. Any thread."""
        return 0 < self._try_again_ns <= now_ns()

    def start(self) -> None:
        """Start the thread, if there is one to be had; else `due` says when to try again."""
        thread = threading.Thread(target=self._run, name="edged-reprobe", daemon=True)
        before, self.told = self.told, self._planned()
        try:
            thread.start()
        except (RuntimeError, MemoryError) as exc:  # a limit on threads, or on memory
            self.told = before if self._try_again_ns else Told(f"not probed yet: {told(exc)}")
            self._try_again_ns = now_ns() + THREAD_NS
        else:
            self._thread, self._try_again_ns = thread, 0

    def take(self) -> GuardedEngine | None:
        """Return the delegate, open and probed, once it is there."""
        with self._lock:
            good, self._good = self._good, None
        if good is not None:
            self._backoff.taken_back()
        return good

    def stop(self) -> None:
        """End it. A process that is just being opened is closed as soon as it is, also after this returns."""
        with self._lock:
            self._stopped.set()
            good, self._good = self._good, None
        if good is not None:
            good.close()
        if self._thread is not None:
            self._thread.join(STOP_S)
        if self._try_again_ns:
            self._close_lost()

    def _planned(self) -> Told:
        return Told(f"{self._before}next probe in {self._wait_s:g} s")

    def _run(self) -> None:
        affinity.be_ordinary()
        self._close_lost()
        while not self._stopped.wait(self._wait_s * random.uniform(1 - JITTER, 1 + JITTER)):  # noqa: S311  # no secret
            self.told = Told(f"{self._before}{PROBED}")
            self._notify()
            try:
                engine = self._probed()
            except SettledError as exc:
                self.told = Told(f"not tried again: {told(exc)}", exc.rightful)
                self._notify()
                return
            except Exception as exc:  # top of a thread: whatever a library raises is a probe that failed
                log.debug("probe", exc_info=True)
                self._note(told(exc))
            else:
                self._hand_over(engine)
                return

    def _probed(self) -> GuardedEngine:
        engine = self._reopen()
        with contextlib.ExitStack() as undo:
            undo.callback(self._close, engine)
            if not self._stopped.is_set():
                self._admit(engine)
            undo.pop_all()
        return engine

    def _note(self, reason: str) -> None:
        self._failed += 1
        # What is told as the cause already is not told twice.
        likewise = bool(self._why) and (reason in self._why or self._why in reason)
        what = " likewise" if likewise else f": {reason}"
        count = "a probe failed" if self._failed == 1 else f"{self._failed} probes failed, the last"
        self._before = f"{count}{what}; "
        self._wait_s = self._backoff.next_s()
        self.told = self._planned()
        self._notify()

    def _notify(self) -> None:
        if not self._stopped.is_set():
            self._on_change()

    def _hand_over(self, engine: GuardedEngine) -> None:
        with self._lock:
            stopped = self._stopped.is_set()
            if not stopped:
                self._good = engine
        if stopped:
            self._close(engine)
        else:
            self._on_change()

    def _close_lost(self) -> None:
        lost, self._lost = self._lost, None
        if lost is not None:
            self._close(lost)

    @staticmethod
    def _close(engine: GuardedEngine) -> None:
        try:
            engine.close()
        except Exception:  # top of a thread: what cannot be closed must not end the way back
            log.exception("a process could not be closed")

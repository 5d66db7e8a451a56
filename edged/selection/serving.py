"""From a choice to the engine that serves: the CPU alone, or an accelerator with the CPU standing in for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import cast

from delegates.select import Measured
from edged.bundle import Bundle
from edged.clock import NS_PER_MS, NS_PER_S, now_ns
from edged.config import FailoverConfig
from edged.engines.base import Engine, EngineLostError, GuardedEngine, SettledError
from edged.engines.candidate import Candidate
from edged.engines.opening import REFUSALS, takes_none
from edged.engines.patience import Patience
from edged.engines.tflite_words import told
from edged.selection.selector import Miss, NothingAgreesError, Selection, Selector
from edged.selection.wish import Wish

log = logging.getLogger(__name__)

# How long an opening may take of which it is known how long it took: so many times as long, and at least so long.
TIMES, FLOOR_NS = 10.0, 10 * NS_PER_S


@dataclass(frozen=True)
class Serving:
    """Opens what serves one model, on the thread that calls `open`.

    rules: of the failover. nudge: lets that thread call the engine's `idle`; note: is told what takes time.
    selection: what was chosen before; without it, `open` chooses. opened: the bundle as the CPU opens it, where it is
    another one. arrange: makes the engine that serves of what opens the CPU's, and of `nudge`; not for an accelerator.
    """

    selector: Selector
    name: str
    bundle: Bundle
    wish: Wish
    rules: FailoverConfig
    nudge: Callable[[], None]
    note: Callable[[str], None]
    selection: Selection | None = None
    opened: Bundle | None = None
    arrange: Callable[[Callable[[], Engine], Callable[[], None]], Engine] | None = None

    def open(self) -> Engine:
        """Choose and open. Raises NothingAgreesError, and what a runtime does when it refuses."""
        self.selector.announce()
        try:
            selection = self.selection or self.selector.choose(self.bundle, self.wish, self._tell)
        except NothingAgreesError as exc:
            if not _again(exc.misses):
                raise
            log.warning("model %s: %s", self.name, exc)
            return self._without(exc.misses, None)
        self._log(selection.rows)
        if selection.chosen.create().isolated:
            return self._accelerated(selection)
        if _again(selection.misses):
            return self._without(selection.misses, selection.chosen)
        open_one = partial(self._open, selection.chosen)
        engine = open_one() if self.arrange is None else self.arrange(open_one, self.nudge)
        if selection.missed:
            engine.info = replace(engine.info, degraded=f"{selection.missed}; {engine.info.delegate} serves")
        return engine

    def _tell(self, text: str) -> None:
        self._log_step(text)
        self.note(text)

    def _log(self, rows: Sequence[Measured]) -> None:
        for row in rows:
            level = logging.WARNING if row.verdict not in ("chosen", "slower", "stand-in") else logging.INFO
            log.log(level, "model %s: %s: %s%s", self.name, row.label, row.verdict, row.reason and f": {row.reason}")

    def _accelerated(self, selection: Selection) -> Engine:
        row = _chosen(selection.rows)
        self._know(row)
        # The CPU first: whatever becomes of the accelerator, it serves.
        cpu = None if selection.stand_in is None else self._open(selection.stand_in)
        primary, why = None, ""
        self._tell(f"opening {selection.chosen.label}")
        with ExitStack() as undo:
            if cpu is not None:
                undo.callback(cpu.close)
            try:
                primary = self._open_guarded(selection.chosen)
            except REFUSALS as exc:
                why = told(exc)
            undo.pop_all()
        first_ms = None if row is None else row.first_ms
        return self._guarded(primary, selection.chosen, cpu, why, selection.p99_us, first_ms)

    def _without(self, misses: Sequence[Miss], stand_in: Candidate | None) -> Engine:
        """Serve without what was asked for, the first of which that may come later is tried in the background."""
        first = _again(misses)[0]
        others = [str(miss) for miss in misses if miss is not first]
        cpu = None if stand_in is None else self._open(stand_in)
        return self._guarded(None, cast("Candidate", first.retry), cpu, "; ".join([first.reason, *others]))

    def _guarded(
        self, primary: GuardedEngine | None, vendor: Candidate, cpu: Engine | None, why: str,
        p99_us: float | None = None, first_ms: float | None = None,
    ) -> Engine:  # fmt: skip
        from edged.engines.failover import FailoverEngine  # noqa: PLC0415  # for those who have an accelerator

        name = vendor.create().name
        with ExitStack() as undo:
            if primary is not None:
                undo.callback(primary.close)
            engine = FailoverEngine(
                primary, cpu, lambda: self._reopened(vendor), self.bundle, self.rules, self.nudge, name, why,
                p99_us=p99_us, first_ms=first_ms,
            )  # fmt: skip
            undo.pop_all()
        return engine

    def _reopened(self, vendor: Candidate) -> GuardedEngine:
        """Open it in the background: judged before, where it never was as it is now.

        Raises as `_judged`, and what opening raises.
        """
        if not self.selector.agrees(self.bundle, vendor, self.wish.policy):
            vendor = self._judged(vendor)
        return self._open_guarded(vendor)

    def _judged(self, vendor: Candidate) -> Candidate:
        """Measure it beside what serves; returns what is to serve.

        Raises SettledError when that is the CPU, now and later, and RuntimeError when another try may find otherwise.
        """
        try:
            selection = self.selector.choose(self.bundle, self.wish.of(vendor), self._log_step, aside=True)
            rows, misses = selection.rows, selection.misses
        except NothingAgreesError as exc:
            selection, rows, misses = None, exc.rows, exc.misses
        if again := _again(misses):
            raise RuntimeError(again[0].reason)
        self._log(rows)
        if selection is not None and selection.chosen.create().isolated:
            self._know(_chosen(rows))
            return selection.chosen
        if misses:
            raise SettledError("; ".join(miss.reason for miss in misses), rightful=False)
        mine = (vendor.create().name, vendor.options, "slower")
        row = next(row for row in rows if (row.delegate, row.options, row.verdict) == mine)
        raise SettledError(f"{row.verdict}: {row.reason}", rightful=True)

    def _log_step(self, text: str) -> None:
        log.info("model %s: %s", self.name, text)

    @cached_property
    def _patience(self) -> Patience:
        """How long the accelerator may take to open; the first inference, where a form that it kept is checked."""
        return Patience(TIMES, FLOOR_NS, int(self.selector.candidate_s * NS_PER_S))

    def _know(self, row: Measured | None) -> None:
        if row is not None and row.open_ms is not None:
            self._patience.took(int((row.open_ms + (row.first_ms or 0)) * NS_PER_MS))

    def _open_guarded(self, vendor: Candidate) -> GuardedEngine:
        """Open it, in the time that it may take. Raises what opening does, and RuntimeError when it takes nothing."""
        started_ns = now_ns()
        try:
            within_s = self._patience.ns / NS_PER_S
            engine = cast("GuardedEngine", self.selector.open(self.bundle, vendor, self.wish.policy, within_s))
        except EngineLostError as exc:
            if exc.hung:
                self._patience.late()
            raise
        self._patience.took(now_ns() - started_ns)
        if nothing := takes_none(engine.info):
            engine.close()
            raise RuntimeError(nothing)
        return engine

    def _open(self, candidate: Candidate) -> Engine:
        return self.selector.open(self.opened or self.bundle, candidate, self.wish.policy)


def _chosen(rows: Sequence[Measured]) -> Measured | None:
    return next((row for row in rows if row.verdict == "chosen"), None)


def _again(misses: Sequence[Miss]) -> list[Miss]:
    """Return those that another try, later, may find in order."""
    return [miss for miss in misses if miss.retry is not None]

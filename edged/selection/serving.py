"""From a choice to the engine that serves: the CPU alone, or an accelerator with the CPU standing in for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

from edged.bundle import Bundle
from edged.config import FailoverConfig
from edged.engines.base import Engine, GuardedEngine
from edged.engines.candidate import Candidate
from edged.errors import EdgedError
from edged.selection.selector import NothingAgreesError, Selection, Selector
from edged.selection.wish import Wish
from edged.shown import one_line

log = logging.getLogger(__name__)

# What a library, a runtime or a process that died makes of opening it.
_REFUSALS = (EdgedError, RuntimeError, ValueError, OSError, MemoryError, SystemError)


@dataclass(frozen=True)
class Serving:
    """Opens what serves one model, on the thread that calls `open`.

    rules: of the failover. nudge: lets that thread call the engine's `idle`; note: is told what takes time.
    """

    selector: Selector
    name: str
    bundle: Bundle
    wish: Wish
    rules: FailoverConfig
    nudge: Callable[[], None]
    note: Callable[[str], None]

    def open(self) -> Engine:
        """Choose and open. Raises NothingAgreesError, and what a runtime does when it refuses."""
        self.selector.announce()
        try:
            selection = self.selector.choose(self.bundle, self.wish, self._tell)
        except NothingAgreesError as exc:
            if exc.retry is None:
                raise
            log.warning("model %s: %s", self.name, exc)
            return self._guarded(None, exc.retry, None, exc.hint)
        self._log(selection)
        if selection.chosen.create().isolated:
            return self._accelerated(selection)
        if selection.retry is not None:
            return self._guarded(None, selection.retry, selection.chosen, selection.missed)
        engine = self._open(selection.chosen)
        if selection.missed:
            engine.info = replace(engine.info, degraded=f"{selection.missed}; {engine.info.delegate} serves")
        return engine

    def _tell(self, text: str) -> None:
        log.info("model %s: %s", self.name, text)
        self.note(text)

    def _log(self, selection: Selection) -> None:
        for row in selection.rows:
            level = logging.WARNING if row.verdict not in ("chosen", "slower", "stand-in") else logging.INFO
            log.log(level, "model %s: %s: %s%s", self.name, row.label, row.verdict, row.reason and f": {row.reason}")

    def _accelerated(self, selection: Selection) -> Engine:
        try:
            primary = self._reopen(selection.chosen)()
        except _REFUSALS as exc:
            return self._guarded(None, selection.chosen, selection.stand_in, one_line(exc))
        return self._guarded(primary, selection.chosen, selection.stand_in, "", selection.p99_us)

    def _guarded(
        self, primary: GuardedEngine | None, vendor: Candidate, stand_in: Candidate | None, why: str,
        p99_us: float | None = None,
    ) -> Engine:  # fmt: skip
        from edged.engines.failover import FailoverEngine  # noqa: PLC0415  # for those who have an accelerator

        name = vendor.create().name
        try:
            cpu = None if stand_in is None else self._open(stand_in)
            return FailoverEngine(
                primary, cpu, self._reopen(vendor), self.bundle, self.rules, self.nudge, name,
                why.removeprefix(f"{name}: "), p99_us=p99_us,
            )  # fmt: skip
        except BaseException:
            if primary is not None:
                primary.close()
            raise

    def _reopen(self, vendor: Candidate) -> Callable[[], GuardedEngine]:
        return lambda: cast("GuardedEngine", self._open(vendor))

    def _open(self, candidate: Candidate) -> Engine:
        return self.selector.open(self.bundle, candidate, self.wish.policy)

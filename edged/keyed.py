"""Serving a model that keeps state: each request is a step of its key, in the order in which they come.

What becomes of a step that is missing: a request that was refused or answered with an error before its turn (queue
full, deadline, bad payload) is never run later, and the state goes on without it. Its requester is told by the error;
`gaps` counts it. A request whose answer was no longer wanted when it was there (its deadline passed meanwhile) did
take its step: `unanswered`. Nothing is set back for either: only the requester knows what it means.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from edged.clock import NS_PER_MS, NS_PER_S, now_ns
from edged.engines.keyed import KeyedEngine
from edged.request import Request
from edged.worker import Worker

log = logging.getLogger(__name__)

LOG_EVERY_NS = 60 * NS_PER_S


class Keyed:
    """A Server. engine: fresh from its golden samples and warm-up, of which no state keeps anything."""

    def __init__(self, worker: Worker, engine: KeyedEngine, max_keys: int) -> None:
        self._worker, self._engine, self._max_keys = worker, engine, max_keys
        self._unanswered = self._told = self._next_log_ns = 0
        self._before: int | None = None
        engine.begin()
        each = "memory unknown" if engine.bytes_each is None else f"about {engine.bytes_each / 1024:.0f} KiB"
        made_ms = engine.made_ns / NS_PER_MS
        log.info("model %s: keeps state; %s and %.1f ms for each new key", worker.plan.name, each, made_ms)

    def serve(self, request: Request) -> None:
        """Run the request on the state of its key."""
        worker, engine = self._worker, self._engine
        if self._before is None:
            # What came before, perhaps to a worker that served before this one, is no step of any state here.
            self._before = self._came()
        worker.current, worker.busy_since_ns = (request,), now_ns()
        try:
            engine.turn(request.key)
        except Exception as exc:  # noqa: BLE001  # top of a request, as in the worker; it is logged
            worker.busy_since_ns, worker.current = 0, ()
            worker.answering.deliver(request, worker.answering.failure(exc))
            return
        steps, request.once = engine.steps, True
        if not worker.serve(engine, request):
            self._unanswered += engine.steps - steps
        if engine.evicted != self._told:
            self._log_evicted()

    def reset(self, key: str | None) -> int:
        """See `Server`."""
        return self._engine.reset(key)

    def facts(self) -> Mapping[str, object]:
        """Return {"keyed": …}: keys held and their bound, spare interpreters, bytes of each, and counters since start.

        steps: inferences for a key. gaps: requests that took none, but those that wait. unanswered: steps whose answer
        came too late. broken: states lost to an inference that failed. evicted: to another key. resets: to a command.
        """
        engine = self._engine
        came = 0 if self._before is None else self._came() - self._before
        return {
            "keyed": {
                "keys": engine.keys,
                "max_keys": self._max_keys,
                "spare": engine.spare,
                "bytes_each": engine.bytes_each,
                "steps": engine.steps,
                "gaps": max(0, came - engine.steps),
                "unanswered": self._unanswered,
                "evicted": engine.evicted,
                "broken": engine.broken,
                "resets": engine.resets,
            }
        }

    def _came(self) -> int:
        """How many requests came so far, without those that wait or are in service."""
        return self._worker.figures.counts().requests - self._worker.admission.requests

    def _log_evicted(self) -> None:
        now = now_ns()
        if now >= self._next_log_ns:
            self._next_log_ns = now + LOG_EVERY_NS
            new, self._told = self._engine.evicted - self._told, self._engine.evicted
            what = "more than state.max_keys are in use"
            log.warning("model %s: %d states were dropped for new keys: %s", self._worker.plan.name, new, what)

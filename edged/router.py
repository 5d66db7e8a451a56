"""Which engine answers: today the local one of the model named, or an error that says why there is none.

Every refusal is an answer: unknown model, not ready, failed, draining, queue full.
"""

from __future__ import annotations

from collections.abc import Mapping

from edged.answering import answer
from edged.errors import Code, RequestError
from edged.figures import ModelFigures
from edged.request import Reply, Request
from edged.worker import ModelState, Worker

# How long a requester should wait before it asks a device again that is going down, perhaps to come back.
RETRY_MS = 1000


class Router:
    """Takes each request to its model's queue, or answers it. `submit` may be called from any thread, never blocks."""

    def __init__(self) -> None:
        self._workers: Mapping[str, Worker] = {}
        # Why nothing is admitted, "" while it is.
        self.draining = ""
        # Requests for models that do not exist have no figures of their own.
        self.unknown = ModelFigures()

    def serve(self, workers: Mapping[str, Worker]) -> None:
        """Route to these workers from now on; the mapping may change meanwhile."""
        self._workers = workers

    def drain(self, why: str = "the device is shutting down") -> None:
        """Refuse whatever comes from now on; what was admitted is still answered."""
        self.draining = why

    def resume(self) -> None:
        """Take up again what comes from now on."""
        self.draining = ""

    def submit(self, request: Request) -> None:
        """Admit the request or answer it with the reason."""
        worker = self._workers.get(request.model)
        figures = self.unknown if worker is None else worker.figures
        figures.arrived()
        while (error := self._refused(request, worker)) is not None:
            looked_up, worker = worker, self._workers.get(request.model)
            # Else another worker took the model over since it was looked up.
            if worker is looked_up:
                answer(request, Reply.failure(error), figures)
                return

    def fail(self, request: Request, error: RequestError) -> None:
        """Answer an admitted request with an error, unless it was answered already (sweeper, overflow, drain)."""
        worker = self._workers.get(request.model)
        answer(request, Reply.failure(error), self.unknown if worker is None else worker.figures)

    def _refused(self, request: Request, worker: Worker | None) -> RequestError | None:
        try:
            self._admissible(request, worker).admission.admit(request)
        except RequestError as error:
            return error
        return None

    def _admissible(self, request: Request, worker: Worker | None) -> Worker:
        if worker is None:
            known = ", ".join(self._workers) or "none"
            raise RequestError(Code.NOT_FOUND, f"no model {request.model!r} here (models: {known})")
        if why := self.draining:
            raise RequestError(Code.UNAVAILABLE, why, RETRY_MS)
        # What comes while the model is being opened waits in its queue, within its deadline: a restart loses nothing.
        if worker.state not in (ModelState.STARTING, ModelState.READY):
            raise RequestError(Code.UNAVAILABLE, f"model {request.model!r} is {worker.state.value}: {worker.reason}")
        return worker

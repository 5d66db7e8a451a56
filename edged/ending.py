"""The end of the workers: what was admitted is answered, or told that there is no more time."""

from __future__ import annotations

import time
from collections.abc import Mapping

from edged.clock import NS_PER_S, now_ns
from edged.errors import Code, RequestError
from edged.router import Router
from edged.worker import ModelState, Worker

STOP_S = 2.0  # for a worker to end, beside what its engine may take to close
_LOOK_S = 0.005


def end(workers: Mapping[str, Worker], router: Router, drain_s: float) -> bool:
    """Wait up to `drain_s` for the answers to what was admitted, answer the rest UNAVAILABLE, and end the workers.

    Returns whether they ended, those before them included. One that is still being opened owes no answer.
    """
    owing = [one for worker in workers.values() for one in worker.open]
    end_ns = now_ns() + int(drain_s * NS_PER_S)
    while any(worker.admission.requests for worker in owing) and now_ns() < end_ns:
        time.sleep(_LOOK_S)
    for worker in owing:
        _abandon(worker, router)
    started_ns, ended = now_ns(), True
    for worker in owing:
        left_s = STOP_S + worker.closing_s - (now_ns() - started_ns) / NS_PER_S
        ended &= worker.stop(max(0.0, left_s)) or worker.state is ModelState.STARTING
    return ended


def _abandon(worker: Worker, router: Router) -> None:
    error = RequestError(Code.UNAVAILABLE, "the device shut down before this request's turn")
    worker.admission.abandon(error)
    for request in worker.current:
        router.fail(request, error)

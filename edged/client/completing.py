"""Futures completed, and the threads that must not wait while they do it."""

from __future__ import annotations

import threading

from edged.client.exchange import Pending
from edged.client.result import Result
from edged.errors import RequestError, UsageError


class Completer:
    """Completes requests. What hangs on a future runs in here, on a thread of the client's."""

    def __init__(self) -> None:
        self._here = threading.local()

    def finish(self, pending: Pending, outcome: Result | RequestError) -> None:
        """Complete the future of a request, unless its caller has cancelled it."""
        if not pending.future.set_running_or_notify_cancel():
            return
        self._here.busy = True
        try:
            if isinstance(outcome, RequestError):
                pending.future.set_exception(outcome)
            else:
                pending.future.set_result(outcome)
        finally:
            self._here.busy = False

    def refuse_waiting(self, what: str) -> None:
        """Raise UsageError in a future's callback: the thread that is to bring the answer would wait for it."""
        if getattr(self._here, "busy", False):
            raise UsageError(what, "it cannot be waited for in the callback of a future", "use infer_async there")

"""Counters that several threads add to; every transport's `stats()` is one of these."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import ParamSpec

_log = logging.getLogger(__name__)
_P = ParamSpec("_P")


class Counters:
    """Named integers, each 0 until first added to."""

    def __init__(self, *names: str) -> None:
        self._lock = threading.Lock()
        self._values = dict.fromkeys(names, 0)

    def add(self, name: str, amount: int = 1) -> None:
        """Add to one counter."""
        with self._lock:
            self._values[name] = self._values.get(name, 0) + amount

    def snapshot(self) -> dict[str, int]:
        """Return a copy of all counters."""
        with self._lock:
            return dict(self._values)

    def guard(self, call: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Call somebody else's function from a transport's thread: what it raises is logged and counted."""
        try:
            call(*args, **kwargs)
        except Exception:  # noqa: BLE001 (the top of a callback: nothing of the caller's may stop the thread)
            self.add("callback_errors")
            _log.exception("a callback failed; the transport goes on")

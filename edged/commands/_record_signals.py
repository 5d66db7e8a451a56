"""Ctrl-C, SIGTERM and SIGHUP as a word to be read, so that what was recorded is written before the end."""

from __future__ import annotations

import signal
from types import FrameType

_NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
HANGUP = _NAMES[signal.SIGHUP]


class Told:
    """While it is entered (main thread only), `name` says which signal has come; "" if none has."""

    def __init__(self) -> None:
        self.name = ""

    def __enter__(self) -> Told:
        self._before = {number: signal.signal(number, self._take) for number in _NAMES if not _kept_out(number)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, _frame: FrameType | None) -> None:
        # A plain attribute: a lock taken in a signal handler may be held by the very thread it interrupts.
        self.name = _NAMES[signal.Signals(number)]


def _kept_out(number: signal.Signals) -> bool:
    """Whether somebody wants it ignored: nohup, of the terminal that goes away."""
    return number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN

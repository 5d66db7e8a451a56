"""SIGTERM and SIGHUP end a command as Ctrl-C does: children are ended and folders removed on the way out."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_NUMBERS = (signal.SIGTERM, signal.SIGHUP)


class EndedError(SystemExit):
    """A signal came; the exit code is that of a shell, 128 + its number."""


@contextmanager
def by_signal() -> Iterator[None]:
    """Within it, SIGTERM and SIGHUP raise EndedError (main thread only; nohup's ignoring of SIGHUP is kept)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken = [number for number in _NUMBERS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _end) for number in taken}
    try:
        yield
    except EndedError as exc:
        sys.stderr.write(f"edged: ended by {signal.Signals(int(str(exc.code)) - 128).name}\n")
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    # What is being removed meanwhile must not be left half removed by a second signal.
    for other in _NUMBERS:
        signal.signal(other, signal.SIG_IGN)
    raise EndedError(128 + number)

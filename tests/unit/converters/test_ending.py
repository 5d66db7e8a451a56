"""SIGTERM and SIGHUP end a command as Ctrl-C does."""

from __future__ import annotations

import signal
import threading

import pytest

from converters import ending


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_unwinds(number: signal.Signals, capsys: pytest.CaptureFixture[str]) -> None:
    """What has to be undone is undone, a second signal does not disturb it, and the exit code is a shell's."""
    before, undone = signal.getsignal(number), []

    def work() -> None:
        try:
            signal.raise_signal(number)
        finally:
            signal.raise_signal(number)
            undone.append(number)

    with pytest.raises(SystemExit) as caught, ending.by_signal():
        work()
    assert (undone, caught.value.code) == ([number], 128 + number)
    assert capsys.readouterr().err == f"edged: ended by {number.name}\n"
    assert signal.getsignal(number) is before


def test_nohup_is_kept() -> None:
    """A terminal that goes away does not end what was started with nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending.by_signal():
            signal.raise_signal(signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_another_thread_takes_no_signals() -> None:
    """Only the main thread may; a program that converts in another one is not stopped from doing so."""
    done: list[int] = []

    def work() -> None:
        with ending.by_signal():
            done.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [1]

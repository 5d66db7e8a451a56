"""The process of an isolated engine, without one: what its parts share, and what they may take together."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from edged.engines import base, isolated_process
from edged.engines.isolated_process import Process


class Buried:
    """Stands for a Popen that has ended. Whoever asks waits a moment for a second one that asks as well."""

    returncode = 0

    def __init__(self, both: threading.Barrier | None = None) -> None:
        self._both = both

    def wait(self) -> int:
        return self.returncode

    def poll(self) -> int:
        if self._both is not None:
            with contextlib.suppress(threading.BrokenBarrierError):
                self._both.wait(0.2)
        return 0


@pytest.fixture
def left() -> Iterator[list[Any]]:
    yield isolated_process._left
    isolated_process._left.clear()


def test_two_threads_bury_what_was_left(left: list[Any]) -> None:
    """Engines of two models end at once, and both find the one that could not be ended before."""
    left.append(Buried(threading.Barrier(2)))
    errors: list[BaseException] = []

    def end() -> None:
        process = Process.__new__(Process)
        process._popen = Buried()  # type: ignore[assignment]
        try:
            assert process._gone()
        except BaseException as exc:  # noqa: BLE001  # told by the test
            errors.append(exc)

    threads = [threading.Thread(target=end) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (errors, left) == ([], [])


def test_closing_is_done_in_its_time() -> None:
    """The library's time, then the wait for its end, then the one for its end by force: what a GuardedEngine says."""
    longest = isolated_process._CLOSING_MS / 1000 + 2 * isolated_process._KILLING_S
    assert longest <= base.CLOSING_S
    assert isolated_process._CLOSING_MS >= 1000

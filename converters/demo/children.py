"""Child processes of the demo: each in its own process group, its words kept in a log, its end bounded.

A child that reports writes JSON lines on standard output; `Child.last` holds the newest. Whatever way the demo ends,
`Children` stops them all, the newest first.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from edged import childprocess
from edged.errors import InternalError

STOP_S = 8.0
TAIL_LINES = 15


class Child:
    """One running child. `last`: the newest JSON line it wrote, {} before the first."""

    def __init__(self, name: str, argv: list[str], log: Path) -> None:
        self.name, self.log = name, log
        self.last: dict[str, Any] = {}
        log.unlink(missing_ok=True)
        with log.open("ab") as errors:  # appending: the reader's lines go to the same file
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                cwd=childprocess.NO_MODULES,
                env=childprocess.environment(),
            )
        self._reader = threading.Thread(target=self._read, name=f"read-{name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101  # opened as a pipe above
        with self._process.stdout as lines:
            for line in lines:
                try:
                    value = json.loads(line)
                except ValueError:
                    value = None
                if isinstance(value, dict):
                    self.last = value
                else:  # words for a person go where its other words are
                    with self.log.open("ab") as log:
                        log.write(line)

    @property
    def pid(self) -> int:
        """The process id, which is also that of its group."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit status; None while it runs."""
        return self._process.poll()

    def finish(self, timeout_s: float) -> dict[str, Any]:
        """Wait for a good end and return its last JSON line; raises InternalError, with its log, for any other end."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as exc:
            raise self.failure(f"was not done after {timeout_s:.0f} s") from exc
        self._reader.join(STOP_S)
        if code:
            raise self.death(code)
        return self.last

    def death(self, code: int) -> InternalError:
        """Make the error for a child that ended by itself."""
        return self.failure(childprocess.ended(code))

    def failure(self, what: str) -> InternalError:
        """Make the error that shows the end of the child's log."""
        lines = self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return InternalError(f"edged demo: {self.name}", "\n  ".join([what, *lines]))

    def stop(self) -> None:
        """End it and the rest of its group: politely, then by force. Safe to call twice.

        Once it has ended, what it left behind is not looked for: its group's number may be somebody else's by then.
        """
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is not None:
                break
            try:
                os.killpg(self.pid, number)
                self._process.wait(STOP_S)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        self._reader.join(STOP_S)


class Children:
    """The children of one demo; leaving the block stops them."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: list[Child] = []

    def __enter__(self) -> Children:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in reversed(self._running):
            child.stop()

    def python(self, name: str, module: str, *args: str) -> Child:
        """Start `python -m module args…`; its log is NAME.log."""
        with _uninterrupted():
            child = Child(name, childprocess.command(module, *args), self._logs / f"{name}.log")
            self._running.append(child)
        return child


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back: between its start and its being known a child would be left to itself."""
    if threading.current_thread() is not threading.main_thread():  # Python gives signals to the main thread alone
        yield
        return
    caught: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda got, _frame: caught.append(got)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for got in caught:
            signal.raise_signal(got)

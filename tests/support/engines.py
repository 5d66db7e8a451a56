"""Engines that misbehave on command, behind the engine protocol: what no real model does when asked to."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from edged.clock import NS_PER_S, now_ns
from edged.engines.base import Array, EngineInfo, EngineLostError

_PIDS = itertools.count(4_000_001)  # above every real one, so that nobody is mistaken for it


class ScriptedEngine:
    """Answers y = 2x for float32 [1, 3]; the next invokes raise, hang until released, or answer NaN, as told."""

    info = EngineInfo("scripted", "cpu", 1)

    def __init__(self) -> None:
        self.inputs: Sequence[Array] = [np.zeros((1, 3), np.float32)]
        self.outputs: Sequence[Array] = [np.zeros((1, 3), np.float32)]
        self.raises: Exception | None = None
        self.nan_at: int | None = None  # which element
        self.off_by = 0.0
        self.hang = threading.Event()
        self.hang.set()
        self.entered = threading.Event()
        self.threads: set[int] = set()
        self.invokes = self.idles = 0
        self.closed = False

    def invoke(self) -> None:
        self.threads.add(threading.get_native_id())
        self.invokes += 1
        self.entered.set()
        self._wait()
        if self.raises is not None:
            raise self.raises
        self.outputs[0][...] = 2 * self.inputs[0] + np.float32(self.off_by)
        if self.nan_at is not None:
            self.outputs[0][0, self.nan_at] = np.nan

    def _wait(self) -> None:
        self.hang.wait()

    def idle(self) -> None:
        self.idles += 1
        self.invoke()

    def close(self) -> None:
        self.closed = True


class ScriptedDelegate(ScriptedEngine):
    """The same as a process of its own would: it can be lost, and is when it takes longer than `limit_ns`.

    takes_s: how long an invoke takes. lost: it is gone, as the text says; hung: for it did not answer. Once lost it
    stays so.
    """

    info = EngineInfo("scripted", "npu", 1, 3, 4, "partial")

    def __init__(self) -> None:
        super().__init__()
        self.limit_ns = NS_PER_S
        self.limits: list[int] = []
        self.pid = next(_PIDS)
        self.lost, self.hung = "", False
        self.takes_s = 0.0
        self.closers: list[str] = []

    def _wait(self) -> None:
        self.limits.append(self.limit_ns)
        started = now_ns()
        time.sleep(min(self.takes_s, self.limit_ns / NS_PER_S))
        if not self.hang.wait(self.limit_ns / NS_PER_S) or (self.takes_s and now_ns() - started >= self.limit_ns):
            self.lost, self.hung = f"gave no answer within {self.limit_ns // 1_000_000} ms", True
        if self.lost:
            raise EngineLostError(self.lost, hung=self.hung)

    def ended(self) -> bool:
        return bool(self.lost)

    def close(self) -> None:
        self.closers.append(threading.current_thread().name)
        super().close()


class Reopener:
    """What opens the delegate again: keeps what it opened; `script` is applied to each, `raises` is raised instead."""

    def __init__(self, script: Callable[[ScriptedDelegate], None] = lambda _: None) -> None:
        self.opened: list[ScriptedDelegate] = []
        self.script = script
        self.raises: Exception | None = None
        self.calls = 0
        self.asked_ns: list[int] = []
        self.hold = threading.Event()
        self.hold.set()

    def __call__(self) -> ScriptedDelegate:
        self.calls += 1
        self.asked_ns.append(now_ns())
        self.hold.wait()
        if self.raises is not None:
            raise self.raises
        engine = ScriptedDelegate()
        self.script(engine)
        self.opened.append(engine)
        return engine

"""Engines that misbehave on command, behind the engine protocol: what no real model does when asked to."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from edged.engines.base import Array, EngineInfo


class ScriptedEngine:
    """Answers y = 2x for float32 [1, 3]; the next invokes raise, hang until released, or answer NaN, as told."""

    info = EngineInfo("scripted", "cpu", 1)

    def __init__(self) -> None:
        self.inputs: Sequence[Array] = [np.zeros((1, 3), np.float32)]
        self.outputs: Sequence[Array] = [np.zeros((1, 3), np.float32)]
        self.raises: Exception | None = None
        self.hang = threading.Event()
        self.hang.set()
        self.entered = threading.Event()
        self.threads: set[int] = set()
        self.closed = False

    def invoke(self) -> None:
        self.threads.add(threading.get_native_id())
        self.entered.set()
        self.hang.wait()
        if self.raises is not None:
            raise self.raises
        self.outputs[0][...] = 2 * self.inputs[0]

    def close(self) -> None:
        self.closed = True

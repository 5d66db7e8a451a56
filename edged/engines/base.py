"""What an engine is: arrays in, invoke, arrays out, on the one thread that opened it.

`inputs` and `outputs` hold what the *client* sends and gets (the bundle's wire dtypes and shapes). Where that is the
model's own dtype they are live views of the tensors: decoding into them is the only copy. Where the bundle says
`io: float` on a quantized model they are held scratch arrays, and `invoke` converts with scale, zero point and clip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy.typing as npt

Array = npt.NDArray[Any]


Taken = Literal["full", "partial", "unknown"]


@dataclass(frozen=True)
class EngineInfo:
    """What serves now. An engine replaces its `info` when that changes; whoever reports compares identities.

    runtime: name and version. delegate: the name that replies carry. nodes_delegated, nodes_total: None where the
    runtime does not tell. mapping: how much of the graph the delegate took, as far as that is told.
    degraded: why something lesser than what was chosen serves, empty while all is well. failovers, returns: how often
    it was left, and taken back.
    """

    runtime: str
    delegate: str
    threads: int
    nodes_delegated: int | None = None
    nodes_total: int | None = None
    mapping: Taken = "unknown"
    degraded: str = ""
    failovers: int = 0
    returns: int = 0


class EngineLostError(RuntimeError):
    """The process that served is gone, or was ended because it did not answer; the engine can only be closed."""


class Engine(Protocol):
    """One loaded model. Every method but `info` belongs to the thread that opened it."""

    info: EngineInfo
    inputs: Sequence[Array]
    outputs: Sequence[Array]

    def invoke(self) -> None:
        """Run the model on `inputs`, leaving the answer in `outputs` until the next call.

        `inputs` and `outputs` may be other arrays afterwards: read `outputs` after, and `inputs` before each call.
        Raises RuntimeError when the runtime refuses, EngineLostError when the process that serves is gone.
        """

    def idle(self) -> None:
        """Do what keeps it fit while no request waits; `inputs` and `outputs` hold anything afterwards. Raises nothing
        but what `invoke` does."""

    def close(self) -> None:
        """Drop the model; the arrays must not be used after."""


class GuardedEngine(Engine, Protocol):
    """An engine in a process of its own. Any one thread at a time may use it. limit_ns: an inference that takes longer
    is a hang: the process is killed and `invoke` raises EngineLostError. pid: of that process."""

    limit_ns: int
    pid: int

"""What an engine is: arrays in, invoke, arrays out, on the one thread that opened it.

`inputs` and `outputs` hold what the *client* sends and gets (the bundle's wire dtypes and shapes). Where that is the
model's own dtype they are live views of the tensors: decoding into them is the only copy. Where the bundle says
`io: float` on a quantized model they are held scratch arrays, and `invoke` converts with scale, zero point and clip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy.typing as npt

Array = npt.NDArray[Any]


Taken = Literal["full", "partial", "unknown"]

# How `EngineInfo.degraded` ends while the delegate that is away is tried: news that comes and goes.
PROBED = "being probed"
# How long `GuardedEngine.close` may take, in seconds: a library lets its device go, or its process is ended.
CLOSING_S = 4.0


@dataclass(frozen=True)
class EngineInfo:
    """What serves now. An engine replaces its `info` when that changes; whoever reports compares identities.

    runtime: name and version. delegate: the name that replies carry. nodes_delegated, nodes_total: None where the
    runtime does not tell. mapping: how much of the graph the delegate took, as far as that is told.
    degraded: why something lesser than what was chosen serves, empty while all is well. failovers, returns: how often
    it was left, and taken back. scheduling: what the thread that infers achieved of its policy, in words, where that is
    not the thread which opened the engine.
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
    scheduling: str = ""


class EngineLostError(RuntimeError):
    """The process that served is gone, or was ended because it did not answer; the engine can only be closed.

    The text follows a subject: `was killed by SIGSEGV`. code: how it ended by itself, an exit status, or -N for
    signal N, as Popen tells it; None where it was ended by us, or does not end. hung: it did not answer, or open, in
    time.
    """

    def __init__(self, text: str, *, code: int | None = None, hung: bool = False) -> None:
        super().__init__(text)
        self.code, self.hung = code, hung


class SettledError(RuntimeError):
    """Raised where a delegate is opened again: it was judged meanwhile, and trying once more is no use.

    The text says why. rightful: what stands in is the better choice, so nothing is amiss; else the delegate is refused.
    """

    def __init__(self, text: str, *, rightful: bool) -> None:
        super().__init__(text)
        self.rightful = rightful


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
    is a hang: the process is killed and `invoke` raises EngineLostError. pid: of that process. `close` takes CLOSING_S
    at most."""

    limit_ns: int
    pid: int

    def ended(self) -> bool:
        """Whether the process ended by itself: cheap, and for any thread, also while another one uses the engine."""


@runtime_checkable
class SelfChecked(Protocol):
    """An engine that checked its golden samples when it was made, and that ends a hang by itself.

    limit_ns: an inference that takes longer is ended, 0 when nothing is. pid: of the process that serves, None for this
    one. recheck_s: seconds after which `idle` wants to be called, 0 for never. closing_s: how long `close` may take.
    ended: whether that process ended, or something else came up that `idle` looks after. Any thread may ask all of it.
    """

    @property
    def limit_ns(self) -> int: ...  # noqa: D102  # see the class
    @property
    def pid(self) -> int | None: ...  # noqa: D102
    @property
    def recheck_s(self) -> float: ...  # noqa: D102
    @property
    def closing_s(self) -> float: ...  # noqa: D102
    def ended(self) -> bool: ...  # noqa: D102

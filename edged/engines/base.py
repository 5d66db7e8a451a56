"""What an engine is: arrays in, invoke, arrays out, on the one thread that opened it.

`inputs` and `outputs` hold what the *client* sends and gets (the bundle's wire dtypes and shapes). Where that is the
model's own dtype they are live views of the tensors: decoding into them is the only copy. Where the bundle says
`io: float` on a quantized model they are held scratch arrays, and `invoke` converts with scale, zero point and clip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class EngineInfo:
    """What serves: runtime and version, delegate, its share of the graph (None: the runtime does not tell)."""

    runtime: str
    delegate: str
    threads: int
    nodes_delegated: int | None = None
    nodes_total: int | None = None


class Engine(Protocol):
    """One loaded model. Every method but `info` belongs to the thread that opened it."""

    info: EngineInfo
    inputs: Sequence[Array]
    outputs: Sequence[Array]

    def invoke(self) -> None:
        """Run the model on `inputs`, leaving the answer in `outputs` until the next call.

        Raises RuntimeError when the runtime refuses.
        """

    def close(self) -> None:
        """Drop the model; the arrays must not be used after."""

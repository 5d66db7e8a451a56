"""Inputs with known answers, by which a delegate that serves is judged: golden ones, or what its stand-in answered."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edged.bundle import Bundle
from edged.clock import NS_PER_S, now_ns
from edged.engines import agreement, golden
from edged.engines.agreement import CAP, MARGIN, Compared
from edged.engines.base import Array, Engine
from edged.engines.randominputs import RandomInputs
from edged.golden import Golden

# Of the drawn ones: at most so many, of so many bytes, drawn for so long; but one in any case.
DRAWN, DRAWN_BYTES, DRAWN_NS = 8, 16 << 20, NS_PER_S
# The selection compared with the CPU's plain kernels, and forgave at most CAP times the rule of the dtype, where the
# default ones, which stand in, differ from these by CAP / MARGIN of it. So the two may be apart by the sum.
APART = CAP * (1 + 1 / MARGIN)


class GoldenSamples:
    """The bundle's own. count: how many. at_least: how many must be run to tell anything."""

    at_least = 1

    def __init__(self, bundle: Bundle, samples: Golden) -> None:
        self._bundle, self._golden, self.count = bundle, samples, samples.samples

    def begin(self) -> None:
        """Another process is judged from now on."""

    def fill(self, engine: Engine, index: int) -> None:
        """Put a sample into the inputs."""
        golden.fill(engine, self._bundle, self._golden, index)

    def wrong(self, engine: Engine, index: int) -> str | None:
        """Return how the outputs differ from that sample's beyond the tolerance; None where they do not."""
        found = golden.compared(engine, self._bundle, self._golden, index)
        return next((str(difference) for difference in found if not difference.agrees), None)


class DrawnSamples:
    """Random inputs with the stand-in's answers, for a bundle that brings none: see `GoldenSamples`.

    They are judged together, by the last answers to all of them, as the selection judges random inputs: an output's
    range over several is what its error is measured by. That tells a delegate that went wrong, not one that is a bit
    less exact than it should be: see APART.
    """

    def __init__(self, bundle: Bundle, stand_in: Engine) -> None:
        self._specs = bundle.manifest.outputs
        self._inputs: list[Sequence[Array]] = []
        self._wanted: list[Sequence[Array]] = []
        drawn, end_ns, left = RandomInputs(bundle, None), now_ns() + DRAWN_NS, DRAWN_BYTES
        for number in range(DRAWN):
            if self._inputs and (left <= 0 or now_ns() > end_ns):
                break
            left -= self._learn(stand_in, drawn.draw(number))
        self.count = self.at_least = len(self._inputs)
        self.begin()

    def _learn(self, stand_in: Engine, inputs: Sequence[Array]) -> int:
        """Keep the answer to these; returns the bytes that they take, with a delegate's answer beside it."""
        _put(stand_in, inputs)
        try:
            stand_in.invoke()
        except RuntimeError:  # an index that its table does not have, say: nobody chose it
            return 0
        outputs = [output.copy() for output in stand_in.outputs]
        self._inputs.append(inputs)
        self._wanted.append(outputs)
        return sum(array.nbytes for array in inputs) + 2 * sum(array.nbytes for array in outputs)

    def begin(self) -> None:
        """Another process is judged from now on: what the one before answered is forgotten."""
        self._answers: dict[int, Sequence[Array]] = {}

    def fill(self, engine: Engine, index: int) -> None:
        """Put a sample into the inputs."""
        _put(engine, self._inputs[index])

    def wrong(self, engine: Engine, index: int) -> str | None:
        """Return how the last answers differ too much; None where they do not, or not all samples were answered."""
        self._answers[index] = [output.copy() for output in engine.outputs]
        if len(self._answers) < self.count:
            return None
        compared = [Compared(spec) for spec in self._specs]
        for number, answers in self._answers.items():
            for one, answer, wanted in zip(compared, answers, self._wanted[number], strict=True):
                one.add(answer, wanted)
        found = agreement.worst(compared)
        return found.text if found.ratio > APART else None


def _put(engine: Engine, inputs: Sequence[Array]) -> None:
    for array, value in zip(engine.inputs, inputs, strict=True):
        np.copyto(array, value)

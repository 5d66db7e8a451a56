"""What a conversion found: one document, which the terminal, report.json and report.html show.

It holds plain values only. What differs from run to run (times) is in fields whose names end in `_us`; a bundle's own
report leaves them out, for the same input and flags must give the same bytes. A reason is a sentence for a person;
several in one text are parted by `; `.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from converters.gates import Gate, OutputParity
from converters.truth import Facts
from edged.bundle import Calibration
from edged.engines.tflite_coverage import Coverage

# The score of a file that a runtime does not run: a number, for JSON has no infinity.
NOT_RUN = -1000.0


@dataclass(frozen=True)
class Pinned:
    """An open dimension that was given a size. reason: in words, for a person."""

    input: str
    dimension: int
    size: int
    reason: str


@dataclass(frozen=True)
class Source:
    """What was converted. path: its last part. kind: `SavedModel`, `Keras file`, …; size: bytes of all its files.

    signature, tags: the ones chosen; signatures, tag_sets: all there are.
    """

    path: str
    kind: str
    size: int
    signature: str
    signatures: tuple[str, ...]
    tags: tuple[str, ...]
    tag_sets: tuple[str, ...] = ()
    pinned: tuple[Pinned, ...] = ()


@dataclass(frozen=True)
class Histogram:
    """How errors (converted - float, in the output's units) are spread: len(edges) = len(counts) + 1."""

    output: str
    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class TargetRun:
    """The model on one runtime.

    runtime: with its version, e.g. `ai-edge-litert 2.3.0`. delegate: `default`, as a device runs it, XNNPACK where it
    takes the ops; `reference`, the runtime's own kernels alone, which only the first runtime that runs it is asked
    for; or "" where it was not run here and its table of ops was looked at instead.
    state: `refused` where a gate fails, an output never changes or differs from the first runtime's, where the runtime
    does not load the model, does not run it or dies of it, and where the table of a runtime that a person named lacks
    an op. `not run`: of every other runtime that is not here.
    reason: what failed; of a runtime that is not here what its table says.
    outputs: every output against the SavedModel; empty where there were no answers. p50_us: the median of an inference
    with the default delegate; 0 where it was not measured.
    """

    runtime: str
    delegate: str
    state: Literal["passed", "refused", "not run"]
    reason: str = ""
    outputs: tuple[OutputParity, ...] = ()
    p50_us: float = 0.0


@dataclass(frozen=True)
class LayerError:
    """How far one op's output is from the float model's. index: of the op in the main graph of the converted file.

    snr_db: of this op's output, all errors before it included. relative: largest error / largest float value.
    output: the model's output that this tensor is, "" where it is none.
    """

    index: int
    op: str
    tensor: str
    snr_db: float
    relative: float
    output: str = ""


@dataclass(frozen=True)
class LayerCost:
    """What one layer costs the accuracy, or a run of them: `a … b (7 layers)`, op `5x CONV_2D, 2x NEG`.

    score: with this layer int8 and all others float; see MixedSearch. gained: how much better with this one float too.
    extra_bytes: what it takes as float16 instead of int8.
    """

    layer: str
    op: str
    score: float
    gained: float
    extra_bytes: int
    kept_float: bool


@dataclass(frozen=True)
class MixedSearch:
    """The search for the layers to keep float. score: the figure that was improved, in words.

    tried: conversions made, of at most `budget`. uniform, final: the score with every layer int8, and of the result;
    NOT_RUN for a file that not every runtime runs.
    """

    score: str
    tried: int
    budget: int
    uniform: float
    final: float
    costs: tuple[LayerCost, ...] = ()


@dataclass(frozen=True)
class Attempt:
    """One mode, tried. reasons: why it may not ship; empty where it passed.

    state: `died` where the converter's process ended without a result, killed by a signal, by a limit or by itself.
    `refused` is everything else: no such model can be made, a gate fails, a runtime refuses the model or dies of it.
    model_bytes: 0 where there is no file, or its answers could not be compared. facts, targets, histograms: of the
    file, where there is one. coverage: of the attempt that the report shows in full alone. layers: where the one mode
    that was asked for was refused. mixed: of the mode `mixed` alone.
    notes: what a person should know of a file that passed, such as a runtime that cannot serve it.
    """

    quantize: str
    state: Literal["passed", "refused", "died"]
    reasons: tuple[str, ...] = ()
    model_bytes: int = 0
    facts: Facts | None = None
    targets: tuple[TargetRun, ...] = ()
    coverage: tuple[Coverage, ...] = ()
    histograms: tuple[Histogram, ...] = ()
    layers: tuple[LayerError, ...] = ()
    mixed: MixedSearch | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """One conversion. quantize: what was asked (`auto` too); chosen: the mode that ships, "" when none may.

    outside: input → share of evaluation samples with a value outside the range that calibration saw.
    advice: what to do about a refusal. attempts: every mode that was tried, in the order they were tried.
    """

    name: str
    version: int
    quantize: str
    chosen: str
    source: Source
    attempts: tuple[Attempt, ...]
    calibration: Calibration = field(default_factory=Calibration)
    outside: Mapping[str, float] = field(default_factory=dict)
    evaluation: str = ""
    samples: int = 0
    advice: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def ships(self) -> bool:
        """Whether there is a model that passed every gate."""
        return bool(self.chosen)

    @property
    def shown(self) -> Attempt:
        """The attempt to show in full: the chosen one, else the mode that was asked for; of `auto` what comes nearest.

        That is the file whose worst figure misses its limit by least; of equal ones the one that fewest runtimes
        refuse without an answer, then the smallest.
        """
        named = [attempt for attempt in self.attempts if attempt.quantize in (self.chosen, self.quantize)]
        made = [attempt for attempt in self.attempts if attempt.model_bytes]
        return named[0] if named else max(made, key=_nearness, default=self.attempts[0])


def slack(gate: Gate) -> float:
    """Return how far a gate is from failing, negative where it fails; what is no number is the worst there is."""
    return gate.margin if math.isfinite(gate.value) else -math.inf


def _nearness(attempt: Attempt) -> tuple[float, int, int]:
    least = min((slack(g) for run in attempt.targets for p in run.outputs for g in p.gates), default=-math.inf)
    silent = sum(run.state == "refused" and not run.outputs for run in attempt.targets)
    return min(least, 0.0), -silent, -attempt.model_bytes

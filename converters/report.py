"""What a conversion found: one document, which the terminal, report.json and report.html show.

It holds plain values only. What differs from run to run (times) is in fields whose names end in `_us`; a bundle's own
report leaves them out, for the same input and flags must give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from converters.parity import OutputParity
from converters.truth import Facts
from edged.bundle import Calibration

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
    """The model on one runtime with one delegate. state `not run`: the runtime is not here; reason: what is known.

    runtime: e.g. `ai-edge-litert 2.3.0`. delegate: `default` (as a device runs it, XNNPACK where it takes the ops) or
    `reference` (the runtime's own kernels alone).
    outputs: every output against the SavedModel. p50_us: the median of an inference; 0 where not measured.
    """

    runtime: str
    delegate: str
    state: Literal["passed", "refused", "not run"]
    reason: str = ""
    outputs: tuple[OutputParity, ...] = ()
    p50_us: float = 0.0


@dataclass(frozen=True)
class Refusal:
    """Ops that a delegate leaves to the CPU: the op's name, how many of them, and why where that is known."""

    op: str
    count: int
    reason: str = ""


@dataclass(frozen=True)
class Coverage:
    """How much of the main graph a delegate takes.

    how: measured by loading the model here, or told by the delegate's documented table. source: the runtime, or the
    document. partition: for every op of the main graph in order, the number of its partition, or -1 for the CPU; empty
    where the delegate cannot serve at all, and `reason` says why.
    """

    delegate: str
    how: Literal["measured", "documented"]
    source: str
    taken: int
    total: int
    partitions: int
    refused: tuple[Refusal, ...] = ()
    partition: tuple[int, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class LayerError:
    """How far one op's output is from the float model's. index: of the op in the main graph of the converted file.

    snr_db: of this op's output, all errors before it included. relative: largest error / largest float value.
    """

    index: int
    op: str
    tensor: str
    snr_db: float
    relative: float


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
    """One mode, tried. state `died`: the converter or a runtime did not survive it; reasons says how.

    reasons: why it may not ship. model_bytes: 0 where there is no file. targets, coverage: of this mode's file.
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
        """The attempt to show in full: the chosen one, else what was asked for; of `auto` the last that made a file."""
        chosen = [attempt for attempt in self.attempts if attempt.quantize in (self.chosen, self.quantize)]
        made = [attempt for attempt in self.attempts if attempt.model_bytes]
        return (chosen or made[-1:] or self.attempts)[0]

"""What one conversion was asked for, and what each quantization mode means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Mode:
    """A quantization mode and its default gates.

    integer: the dtype that every float input and output gets inside the model; "" keeps float32.
    calibrated: the mode needs calibration data.
    agreement: the least argmax agreement of a classifier, None where none is asked for.
    cosine: the least cosine similarity of any float output.
    steps: the least tolerance of a golden sample, in quantization steps, for integer outputs.
    relative: the same for float outputs, as a share of the largest absolute reference value; it covers float16
    arithmetic on accelerators, and kernels that quantize activations on the fly (dynamic).
    """

    integer: str
    calibrated: bool
    agreement: float | None
    cosine: float
    steps: int
    relative: float


MODES: Mapping[str, Mode] = {
    "none": Mode("", calibrated=False, agreement=None, cosine=0.99999, steps=2, relative=1e-4),
    "float16": Mode("", calibrated=False, agreement=None, cosine=0.999, steps=2, relative=1e-2),
    "dynamic": Mode("", calibrated=False, agreement=0.95, cosine=0.99, steps=2, relative=2e-2),
    "int8": Mode("int8", calibrated=True, agreement=0.95, cosine=0.95, steps=2, relative=1e-4),
    # Some layers int8, some float: inputs and outputs stay float32, so that a float layer at either end loses nothing.
    "mixed": Mode("", calibrated=True, agreement=0.95, cosine=0.95, steps=2, relative=2e-2),
    "int16x8": Mode("int16", calibrated=True, agreement=0.95, cosine=0.99, steps=8, relative=1e-4),
}
AUTO = "auto"


@dataclass(frozen=True)
class Options:
    """One conversion, as the command line gives it. `calibration` is a path or `module:function`; "" is not given.

    quantize: a key of MODES, or AUTO for each of them in turn.
    max_accuracy_loss, max_mae_growth: with labels, the largest loss of accuracy (share of samples) and the largest
    growth of the mean absolute error (share of the SavedModel's). threshold: what counts as "on" in scores.
    targets: runtimes and delegates of the fleet; empty: every runtime that is known. allow_flex, allow_custom: ops
    outside TFLite that may stay. search_budget: conversions that `mixed` may try. time_limit_s, memory_limit: of each
    child process; memory in bytes, 0 for most of what the machine has. report: where the report page goes as well.
    """

    model: Path
    output: Path
    name: str
    version: int
    quantize: str = "none"
    calibration: str = ""
    evaluation: str = ""
    labels: str = ""
    signature: str = ""
    tags: str = ""
    io: str = "float"
    batch: int = 1
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    preprocess: str = ""
    postprocess: str = ""
    min_agreement: float | None = None
    max_error: float | None = None
    max_accuracy_loss: float = 0.01
    max_mae_growth: float = 0.05
    threshold: float = 0.5
    targets: tuple[str, ...] = ()
    dynamic_batch: bool = False
    allow_flex: bool = False
    allow_custom: tuple[str, ...] = ()
    search_budget: int = 60
    time_limit_s: float = 3600.0
    memory_limit: int = 0
    report: str = ""
    golden: int = 8
    force: bool = False
    verbose: bool = False

    @property
    def mode(self) -> Mode:
        """The quantization mode's row; AUTO has none."""
        return MODES[self.quantize]

    @property
    def calibrated(self) -> bool:
        """Whether what was asked for uses calibration data."""
        return self.quantize == AUTO or self.mode.calibrated

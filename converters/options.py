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
    "none": Mode("", calibrated=False, agreement=None, cosine=0.999, steps=2, relative=1e-4),
    "float16": Mode("", calibrated=False, agreement=None, cosine=0.999, steps=2, relative=1e-2),
    "dynamic": Mode("", calibrated=False, agreement=0.95, cosine=0.99, steps=2, relative=2e-2),
    "int8": Mode("int8", calibrated=True, agreement=0.95, cosine=0.95, steps=2, relative=1e-4),
    "int16x8": Mode("int16", calibrated=True, agreement=0.95, cosine=0.99, steps=8, relative=1e-4),
}


@dataclass(frozen=True)
class Options:
    """One conversion, as the command line gives it. `calibration` is a path or `module:function`; "" is not given."""

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
    golden: int = 8
    force: bool = False
    verbose: bool = False

    @property
    def mode(self) -> Mode:
        """The quantization mode's row."""
        return MODES[self.quantize]

"""What one conversion was asked for, and what each quantization mode means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from edged import schema
from edged.errors import InternalError
from edged.limits import Limits


@dataclass(frozen=True)
class Mode:
    """A quantization mode: what it makes, its default gates, and where `auto` prefers it.

    says: what it makes, in words. rank: the place in the order in which `auto` prefers modes whose files are of one
    size, from 0.
    agreement: the least argmax agreement, or F1, of scores.
    cosine: the least cosine similarity of any float output. r2: the least coefficient of determination of an output of
    real numbers that are no scores. equal: the least share of equal whole numbers.
    steps: the least tolerance of a golden sample, in quantization steps, for integer outputs.
    relative: the same for float outputs, as a share of the largest absolute reference value; it covers float16
    arithmetic on accelerators, and kernels that quantize activations on the fly (dynamic).
    integer: the dtype that every float input and output gets inside the model; "" keeps float32.
    calibrated: the mode needs calibration data. searched: which layers become integers is found by trying.
    needs_kind: the kind of op (`truth.Facts.kinds`) that the file must have some of; "" for none. needs_constants:
    dtypes, one of which some constant must have; empty for none. no_effect: what is said of a file without.
    """

    says: str
    rank: int
    agreement: float
    cosine: float
    r2: float
    equal: float
    steps: int
    relative: float
    integer: str = ""
    calibrated: bool = False
    searched: bool = False
    needs_kind: str = ""
    needs_constants: frozenset[str] = frozenset()
    no_effect: str = ""


# In the order in which they are told and tried.
MODES: Mapping[str, Mode] = {
    "none": Mode(
        "float32, as it was", rank=4, agreement=0.99, cosine=0.99999, r2=0.9999, equal=1.0, steps=2, relative=1e-4
    ),
    "float16": Mode(
        "float16 weights, half the size; float arithmetic",
        rank=3,
        agreement=0.95,
        cosine=0.999,
        r2=0.999,
        equal=0.99,
        steps=2,
        relative=1e-2,
        needs_constants=frozenset({"float16"}),
        no_effect="no constant became float16",
    ),
    "dynamic": Mode(
        "int8 weights, float arithmetic",
        rank=2,
        agreement=0.95,
        cosine=0.99,
        r2=0.95,
        equal=0.95,
        steps=2,
        relative=2e-2,
        needs_constants=frozenset({"int8", "uint8", "int4", "uint4", "int2"}),
        no_effect="no constant became int8; weights of fewer than 1024 values are left as they are",
    ),
    # What most accelerators, and XNNPACK, take whole.
    "int8": Mode(
        "whole numbers throughout, which most accelerators want",
        rank=0,
        agreement=0.95,
        cosine=0.95,
        r2=0.9,
        equal=0.95,
        steps=2,
        relative=1e-4,
        integer="int8",
        calibrated=True,
        needs_kind="int8",
        no_effect="no op works on int8",
    ),
    # Inputs and outputs stay float32, so that a float layer at either end loses nothing.
    "mixed": Mode(
        "int8, but for the few layers that cost the accuracy: searched for, kept float",
        rank=1,
        agreement=0.95,
        cosine=0.95,
        r2=0.9,
        equal=0.95,
        steps=2,
        relative=2e-2,
        calibrated=True,
        searched=True,
        needs_kind="int8",
        no_effect="no op works on int8",
    ),
    # Runs on reference kernels nearly everywhere.
    "int16x8": Mode(
        "16-bit activations, int8 weights: accurate, and slow almost everywhere",
        rank=5,
        agreement=0.95,
        cosine=0.99,
        r2=0.95,
        equal=0.95,
        steps=8,
        relative=1e-4,
        integer="int16",
        calibrated=True,
        needs_kind="int16",
        no_effect="no op works on int16",
    ),
}
AUTO = "auto"
# The modes as `auto` prefers them among files of one size, the best first.
PREFERRED = tuple(sorted(MODES, key=lambda name: MODES[name].rank))


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
    def limits(self) -> Limits:
        """What each child process may take."""
        return Limits(self.time_limit_s, self.memory_limit)

    @property
    def calibrated(self) -> bool:
        """Whether what was asked for uses calibration data."""
        return self.quantize == AUTO or self.mode.calibrated

    def to_plain(self) -> dict[str, Any]:
        """Return what JSON can hold, for another process; `from_plain` makes the same Options of it."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Options:
        """Return the Options that `to_plain` was called of, before or after JSON."""
        made, problems = schema.build(cls, plain)
        if made is None:
            raise InternalError("options", "; ".join(f"{p.path}: {p.message}" for p in problems))
        return made


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return list(value) if isinstance(value, tuple) else value

"""How far a delegate's answers are from the CPU's on inputs that nobody chose, and how far they may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edged.bundle import TensorSpec
from edged.engines.agreement_classes import Classes
from edged.engines.agreement_columns import Columns
from edged.engines.base import Array

# See `Compared`.
STEPS = 2.0
SHARE = 8 * 2.0**-11
MARGIN = 3.0
CAP = 10.0
_ABSOLUTE = 1e-6
# float32 rounding of a dequantized difference of whole steps.
_ROUNDING = 1.001


@dataclass(frozen=True)
class Worst:
    """The output that is furthest off. ratio: error / tolerance, infinite for NaN. text: which, with the numbers."""

    ratio: float
    text: str


class Compared:
    """One output over many inputs: the candidate, and the CPU's default kernels, against the CPU's plain kernels.

    An output agrees while its largest error is within the largest of
    - the bundle's own tolerance for it;
    - a rule of its dtype. Quantized: two steps, one for the rounding of each of two implementations that are not
      bit-exact, which the LiteRT 8-bit quantization specification allows for
      (https://ai.google.dev/edge/litert/models/quantization_spec). Floats: 2^-8 of the largest reference value.
      Accelerators compute in half precision, whose unit roundoff is 2^-11 (IEEE 754 binary16), and the rounding errors
      of n layers grow like the root of n (N. Higham, Accuracy and Stability of Numerical Algorithms, 2.8): eight of
      them are 64 layers;
    - three times what the CPU's default kernels differ from its plain ones on the same inputs, for so much two honest
      implementations differ by; but no more than ten times the larger of the above, or a runtime that answers rubbish
      would make everything right.
    And so must be every column of it, in a tolerance of its own: see `Columns`. Whole numbers that are no quantized
    values are counted instead: see `Classes`.
    NaN or an infinity where the reference has a number never agrees. Where the reference has none, nothing is compared.
    """

    def __init__(self, spec: TensorSpec, tolerance: float = 0.0) -> None:
        self._spec, self._given = spec, tolerance
        discrete = not spec.scale and np.dtype(spec.dtype).kind != "f"
        self._classes = Classes(spec.shape) if discrete else None
        self._columns = Columns(spec.shape)
        self._error = self._honest = self._largest = 0.0
        self._lost = 0

    def add(self, output: Array, reference: Array, default: Array | None = None) -> None:
        """Take one more input's answers, in the client's dtypes. default: of the CPU's default kernels, if it has."""
        if self._classes is not None:
            self._classes.add(output, reference, default)
            return
        numbers = np.isfinite(reference)
        wanted = reference[numbers].astype(np.float64)
        self._largest = max(self._largest, float(np.abs(wanted).max(initial=0.0)))
        found = output[numbers].astype(np.float64)
        self._lost += int(np.count_nonzero(~np.isfinite(found)))
        self._error = max(self._error, _off(found, wanted))
        if default is not None:
            self._honest = max(self._honest, _off(default[numbers].astype(np.float64), wanted))
        self._columns.add(output, reference, default)

    def add_known(self, output: Array, reference: Array) -> None:
        """Take a golden sample's answer, which was judged as a whole by the bundle's tolerance: for its columns."""
        if self._classes is None:
            self._columns.add(output, reference)

    def worst(self) -> Worst:
        """Say how far it is off."""
        name = f"random inputs, output {self._spec.name!r}"
        if self._classes is not None:
            share, told = self._classes.worst()
            return Worst(share, f"{name}: {told}")
        if self._lost:
            return Worst(float("inf"), f"{name}: NaN or infinite where the CPU has a number")
        tolerance = self.tolerance
        whole = Worst(ratio(self._error, tolerance), f"{name}: {_told(self._error, tolerance)}")
        return max(whole, self._worst_column(tolerance), key=lambda found: found.ratio)

    def _worst_column(self, whole: float) -> Worst:
        found = self._columns.worst(self._by_dtype(self._columns.largest), whole)
        if found is None:
            return Worst(0.0, "")
        name = f"output {self._spec.name!r}, column {found.number} ({found.low:.6g} to {found.high:.6g})"
        return Worst(ratio(found.error, found.tolerance), f"{name}: {_told(found.error, found.tolerance)}")

    @property
    def tolerance(self) -> float:
        """What the largest error may be, in the client's units; of discrete values the share of elements."""
        if self._classes is not None:
            return self._classes.tolerance
        low = max(self._given, float(self._by_dtype(self._largest)))
        return min(CAP * low, max(low, MARGIN * self._honest))

    def _by_dtype(self, largest: Any) -> Any:
        """Return the rule's tolerance for a largest value, or for each of an array of them."""
        if self._spec.scale:
            return 0 * largest + STEPS * (self._spec.scale * _ROUNDING if self._spec.converts else 1.0)
        return SHARE * largest + _ABSOLUTE


def _off(found: Array, wanted: Array) -> float:
    return float(np.nan_to_num(np.abs(found - wanted), nan=0.0, posinf=0.0).max(initial=0.0))


def _told(error: float, tolerance: float) -> str:
    return f"off by {error:.6g}, tolerance {tolerance:.6g}"


def ratio(error: float, tolerance: float) -> float:
    """Return error / tolerance: 0 for no error at all, infinite for NaN and for an error where none is allowed."""
    if error == 0.0:
        return 0.0
    return error / tolerance if tolerance and np.isfinite(error) else float("inf")


def worst(compared: Sequence[Compared]) -> Worst:
    """Return the worst of several outputs."""
    return max((one.worst() for one in compared), key=lambda found: found.ratio)

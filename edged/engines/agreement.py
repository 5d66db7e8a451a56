"""How far a delegate's answers are from the CPU's on inputs that nobody chose, and how far they may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edged.bundle import TensorSpec
from edged.engines.base import Array

# See `Tolerance`.
STEPS = 2.0
SHARE = 8 * 2.0**-11
FLIPS = 0.1
MARGIN = 3.0
CAP, DISCRETE_CAP = 10.0, 5.0
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
      them are 64 layers. Whole numbers that are no quantized values (class numbers, indices, flags): a tenth of the
      elements may be another, since inputs that nobody chose lie near the border between two classes more often than
      data does;
    - three times what the CPU's default kernels differ from its plain ones on the same inputs, for so much two honest
      implementations differ by; but no more than ten times (of discrete values: five times) the larger of the above,
      or a runtime that answers rubbish would make everything right.
    NaN or an infinity where the reference has a number never agrees. Where the reference has none, nothing is compared.
    """

    def __init__(self, spec: TensorSpec, tolerance: float = 0.0) -> None:
        self._spec, self._given = spec, tolerance
        self._discrete = not spec.scale and np.dtype(spec.dtype).kind != "f"
        self._error = self._honest = self._largest = 0.0
        self._elements = 0
        self._lost = 0

    def add(self, output: Array, reference: Array, default: Array | None = None) -> None:
        """Take one more input's answers, in the client's dtypes. default: of the CPU's default kernels, if it has."""
        numbers = np.isfinite(reference)
        wanted = reference[numbers].astype(np.float64)
        self._elements += wanted.size
        self._largest = max(self._largest, float(np.abs(wanted).max(initial=0.0)))
        found = output[numbers].astype(np.float64)
        self._lost += int(np.count_nonzero(~np.isfinite(found)))
        self._error = self._off(self._error, found, wanted)
        if default is not None:
            self._honest = self._off(self._honest, default[numbers].astype(np.float64), wanted)

    def _off(self, before: float, found: Array, wanted: Array) -> float:
        if self._discrete:
            return before + float(np.count_nonzero(found != wanted))
        return max(before, float(np.nan_to_num(np.abs(found - wanted), nan=0.0, posinf=0.0).max(initial=0.0)))

    def worst(self) -> Worst:
        """Say how far it is off."""
        name = f"random inputs, output {self._spec.name!r}"
        if self._lost:
            return Worst(float("inf"), f"{name}: NaN or infinite where the CPU has a number")
        error, tolerance = self._error, self.tolerance
        if self._discrete:
            error = error / max(1, self._elements)
            told = f"{error:.1%} of the elements differ, tolerance {tolerance:.1%}"
        else:
            told = f"off by {error:.6g}, tolerance {tolerance:.6g}"
        return Worst(ratio(error, tolerance), f"{name}: {told}")

    @property
    def tolerance(self) -> float:
        """What the largest error may be, in the client's units; of discrete values the share of elements."""
        if self._discrete:
            honest = MARGIN * self._honest / max(1, self._elements)
            return min(DISCRETE_CAP * FLIPS, max(FLIPS, honest))
        low = max(self._given, self._by_dtype())
        return min(CAP * low, max(low, MARGIN * self._honest))

    def _by_dtype(self) -> float:
        if self._spec.scale:
            return STEPS * (self._spec.scale * _ROUNDING if self._spec.converts else 1.0)
        return SHARE * self._largest + _ABSOLUTE


def ratio(error: float, tolerance: float) -> float:
    """Return error / tolerance: 0 for no error at all, infinite for NaN and for an error where none is allowed."""
    if error == 0.0:
        return 0.0
    return error / tolerance if tolerance and np.isfinite(error) else float("inf")


def worst(compared: Sequence[Compared]) -> Worst:
    """Return the worst of several outputs."""
    return max((one.worst() for one in compared), key=lambda found: found.ratio)

"""How far a delegate's whole numbers are from the CPU's: class numbers, indices, flags, of which none is close by."""

from __future__ import annotations

import numpy as np

from edged.engines.base import Array

# See `Classes`.
FLIPS, MARGIN, CAP = 0.1, 3.0, 5.0
STUCK, LEAST_INPUTS = 0.01, 4
BEYOND, WIDE = 16, 1 << 16


class Classes:
    """One output of whole numbers that are no quantized values, over many inputs.

    It agrees while
    - at most a tenth of the elements differ, since inputs that nobody chose lie near the border between two classes
      more often than data does; or three times what the CPU's default kernels differ from its plain ones, but no more
      than a half;
    - no element is stuck, that is differs for more than half of four inputs or more: borders are crossed here and
      there. Of outputs with many elements a hundredth may be, for where inputs hardly matter (the margin of a map of
      classes) an element may lie on a border for all of them;
    - every number is one that the model could mean: no more than 65536 or 16 times the largest of the reference, and
      below -1, a usual word for none, only where the reference is so too.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._wrong = np.zeros(shape, np.int64)
        self._inputs = self._honest = 0
        self._wanted, self._found = np.zeros(2), np.zeros(2)

    def add(self, found: Array, wanted: Array, default: Array | None = None) -> None:
        """Take one more input's answers, of the output's shape."""
        self._inputs += 1
        self._wrong += found != wanted
        self._wanted, self._found = _widened(self._wanted, wanted), _widened(self._found, found)
        if default is not None:
            self._honest += int(np.count_nonzero(default != wanted))

    def worst(self) -> tuple[float, str]:
        """Return how far it is off as a share of what is allowed, and in words."""
        told = [self._share(), self._stuck(), self._beyond()]
        return max(told, key=lambda one: one[0])

    @property
    def tolerance(self) -> float:
        """What share of the elements may differ."""
        return min(CAP * FLIPS, max(FLIPS, MARGIN * self._honest / self._all))

    @property
    def _all(self) -> int:
        return max(1, self._inputs * self._wrong.size)

    def _share(self) -> tuple[float, str]:
        share, tolerance = float(self._wrong.sum()) / self._all, self.tolerance
        return share / tolerance, f"{share:.1%} of the elements differ, tolerance {tolerance:.1%}"

    def _stuck(self) -> tuple[float, str]:
        stuck = int(np.count_nonzero(2 * self._wrong > self._inputs))
        if self._inputs < LEAST_INPUTS or not stuck:
            return 0.0, ""
        most = int(self._wrong.max())
        where = [int(index) for index in np.unravel_index(int(self._wrong.argmax()), self._wrong.shape)]
        text = f"{stuck} of the elements differ for most inputs: {where} for {most} of {self._inputs}"
        return stuck / self._wrong.size / STUCK, text

    def _beyond(self) -> tuple[float, str]:
        most = max(float(WIDE), BEYOND * float(np.abs(self._wanted).max()))
        least = -1.0 if self._wanted[0] >= 0 else -most
        low, high = self._found
        if least <= low and high <= most:
            return 0.0, ""
        off = low if low < least else high
        return float("inf"), f"{off:.0f} where the CPU has {self._wanted[0]:.0f} to {self._wanted[1]:.0f}"


def _widened(ends: Array, values: Array) -> Array:
    """Return the least and the largest number, float64; 0 is always between them."""
    return np.array([min(ends[0], float(values.min(initial=0))), max(ends[1], float(values.max(initial=0)))])

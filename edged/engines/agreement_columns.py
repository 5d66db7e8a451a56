"""Whether a delegate is right in every column of an output: a small column hides in the tolerance of a large one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edged.engines.base import Array

# See `Columns`.
MOST = 512
QUARTER = 0.25
UNIT_ROUNDOFF, LEAST_NORMAL = 2.0**-11, 2.0**-14
# The largest difference of a few inputs is below that of many.
_FEW = 3.0


@dataclass(frozen=True)
class Column:
    """The column that is furthest off: its number, the ends of what the reference has in it, error, tolerance."""

    number: int
    low: float
    high: float
    error: float
    tolerance: float


class Columns:
    """The largest errors and the spans of an output's columns over many inputs.

    A column is an index of the last axis: one coordinate of all boxes, one class of all scores. Where that axis has
    more than MOST entries it is an index of the second one, for channels that come before the positions. An output of
    fewer than two axes has none, and neither has one whose both axes are longer, which the caller judges as a whole.

    One tolerance for the whole output comes from its largest value. With boxes in pixels and scores in one tensor it is
    larger than any score, so scores that are off by 100 % pass. A tolerance from the column's own values alone would
    refuse honest half precision: its errors are relative to the largest number that the column was computed from,
    which may be far larger than what is left of it (the tail of a softmax, a difference of two large sums). So a column
    agrees while its largest error is within the largest of these, and within the tolerance of the whole in any case:

    - the rule of the dtype, with the column's own largest value;
    - a quarter of the column's own span over all inputs and positions. Half precision leaves less than that where a
      column is worth anything; a factor of two, a wrong sign, or another column's values leave more;
    - what its conditioning excuses. Two honest float implementations differ in a column in proportion to the numbers
      it was computed from, whatever their precision, for to first order a rounding error is the unit roundoff times the
      condition number (N. Higham, Accuracy and Stability of Numerical Algorithms, 1.6). So the differences of the CPU's
      default and plain kernels tell how an error that just reaches the whole's tolerance is spread over the columns:
      tolerance times the column's difference over that of the worst column, and three times this, for both are the
      largest of few. It excuses a column that is close to zero among large ones by cancellation, and no score beside
      boxes. Where the two do not differ in the column nothing is known of it, and a quarter of its largest value is
      excused, or one half-precision rounding of the whole's largest value, 2^-11 of it;
    - 2^-14, the least normal number of IEEE 754 binary16: accelerators flush what is smaller to zero.

    A column that the reference has at zero in more than half of its elements is left to the whole's tolerance: it was
    clipped (a unit behind a ReLU), and its few small values do not tell its scale.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        axes = [axis for axis in (len(shape) - 1, 1) if len(shape) > 1 and 1 < shape[axis] <= MOST]
        self._axis = axes[0] if axes else None
        count = shape[axes[0]] if axes else 0
        self._error, self._honest = np.zeros(count), np.zeros(count)
        self._low, self._high = np.full(count, np.inf), np.full(count, -np.inf)
        self._zeros, self._elements = np.zeros(count, np.int64), np.zeros(count, np.int64)

    def add(self, found: Array, wanted: Array, default: Array | None = None) -> None:
        """Take one more input's answers, of the output's shape; elements where `wanted` is not finite do not count."""
        if self._axis is None:
            return
        wanted = self._rows(wanted)
        numbers = np.isfinite(wanted)
        self._low = np.minimum(self._low, np.where(numbers, wanted, np.inf).min(axis=0))
        self._high = np.maximum(self._high, np.where(numbers, wanted, -np.inf).max(axis=0))
        self._zeros += np.count_nonzero(wanted == 0, axis=0)
        self._elements += np.count_nonzero(numbers, axis=0)
        self._error = np.maximum(self._error, _largest(self._rows(found), wanted))
        if default is not None:
            self._honest = np.maximum(self._honest, _largest(self._rows(default), wanted))

    def _rows(self, array: Array) -> Array:
        """Return it as float64 [positions, columns]."""
        last = np.moveaxis(array, self._axis or 0, -1)
        return last.reshape(-1, last.shape[-1]).astype(np.float64)

    @property
    def largest(self) -> Array:
        """The largest absolute reference value of every column, 0 where there is none."""
        ends = np.maximum(np.abs(self._low), np.abs(self._high))
        return np.where(self._elements > 0, ends, 0.0)  # none is finite

    def worst(self, rule: Array, whole: float) -> Column | None:
        """Return the column that is furthest off in its tolerance; None where no column is judged by itself.

        rule: of the dtype, one for each column. whole: the tolerance of the whole output.
        """
        judged = self._elements > 2 * self._zeros
        if not judged.any() or whole <= 0:
            return None
        allowed = self._allowed(rule, whole)
        number = int(np.argmax(np.where(judged, self._error / allowed, -1.0)))
        ends = float(self._low[number]), float(self._high[number])
        return Column(number, *ends, float(self._error[number]), float(allowed[number]))

    def _allowed(self, rule: Array, whole: float) -> Array:
        largest, known = self.largest, self._honest > 0
        spread = _FEW * whole * self._honest / (float(self._honest.max()) or 1.0)
        unknown = np.maximum(QUARTER * largest, UNIT_ROUNDOFF * float(largest.max()))
        span = np.where(self._elements > 0, self._high - self._low, 0.0)
        excused = np.maximum(LEAST_NORMAL, np.where(known, spread, unknown))
        allowed: Array = np.minimum(whole, np.maximum(np.maximum(rule, QUARTER * span), excused))
        return allowed


def _largest(found: Array, wanted: Array) -> Array:
    """Return the largest error in every column; what is not finite on either side is not counted here."""
    both = np.isfinite(found) & np.isfinite(wanted)
    errors = np.abs(np.where(both, found, 0.0) - np.where(both, wanted, 0.0))
    largest: Array = errors.max(axis=0)
    return largest

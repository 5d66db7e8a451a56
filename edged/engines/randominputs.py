"""Inputs that nobody chose, and that the model could meet: seeded, and within what its own data spans.

Golden samples are few, and a delegate may be right on them and wrong elsewhere. An input far outside of the data says
nothing: a half-precision accelerator overflows on it, honestly.
"""

from __future__ import annotations

import zlib

import numpy as np

from edged.bundle import Bundle, TensorSpec
from edged.engines.base import Array
from edged.golden import Golden

_SEED = 20_240_229
# Of an input without data: floats of a usual scale; whole numbers that no table of any size lacks.
_FLOATS, _INDICES = (-1.0, 1.0), (0, 1)
# See `_widened`.
ALIKE = 0.1
_BYTES = frozenset({"uint8", "int8"})


class RandomInputs:
    """Draws inputs of a bundle. The same bundle gives the same ones, on every machine.

    Each element lies between the least and the largest value that it has in the golden samples, where there are two or
    more; else between those that calibration saw of the input; else in what the dtype can hold (quantized, and bytes),
    in -1…1 (floats), or in 0…1 (other whole numbers, which mostly are indices).
    Calibration sees many more samples than are kept as golden ones. So where it saw a wider range of the input, every
    second draw is wider too: see `_widened`.
    """

    def __init__(self, bundle: Bundle, golden: Golden | None) -> None:
        self._specs = bundle.manifest.inputs
        self._ranges = {spec.name: _range(spec, bundle, golden) for spec in self._specs}
        self._wider = {spec.name: _widened(self._ranges[spec.name], _calibrated(spec, bundle)) for spec in self._specs}

    def draw(self, number: int) -> list[Array]:
        """Return input `number`, in the declared order: arrays of the wire dtypes and shapes."""
        return [self._one(spec, number) for spec in self._specs]

    def _one(self, spec: TensorSpec, number: int) -> Array:
        rng = np.random.default_rng([_SEED, number, zlib.crc32(spec.name.encode())])
        low, high = (self._wider if number % 2 else self._ranges)[spec.name]
        share = rng.random(spec.shape)
        if spec.wire_dtype.kind in "iub":
            # Half a step wider on both sides, so that the ends come as often as the rest.
            drawn = np.clip(np.rint(low - 0.5 + (high - low + 1) * share), low, high)
        else:
            drawn = low + (high - low) * share
        return np.asarray(drawn, spec.wire_dtype)


def _range(spec: TensorSpec, bundle: Bundle, golden: Golden | None) -> tuple[Array, Array]:
    """Return the least and the largest value of each element, float64, each of the shape or a single number."""
    if golden is not None and golden.samples > 1:
        seen = golden.inputs[spec.name].astype(np.float64)
        return seen.min(axis=0), seen.max(axis=0)
    low, high = _span(spec, bundle)
    return np.float64(low), np.float64(high)  # type: ignore[return-value]  # an array of no dimensions will do


def _widened(seen: tuple[Array, Array], calibrated: tuple[float, float] | None) -> tuple[Array, Array]:
    """Return the ranges `seen` of the elements as far as calibration, which has one range for the whole input, allows.

    An element that spans a tenth of that range or more is taken to be of its scale, like a pixel, and may take all of
    it. Any other may be of another unit (a column in thousandths beside one in thousands), so it is widened on either
    side in the proportion in which the whole input is.
    """
    if calibrated is None:
        return seen
    (low, high), (least, most) = seen, calibrated
    span, whole = high - low, float(high.max() - low.min())
    below, above = max(0.0, float(low.min()) - least), max(0.0, most - float(high.max()))
    share = span / whole if whole else np.zeros_like(span)
    alike = span >= ALIKE * (most - least)
    lower = np.where(alike, np.minimum(low, least), low - share * below)
    return lower, np.where(alike, np.maximum(high, most), high + share * above)


def _calibrated(spec: TensorSpec, bundle: Bundle) -> tuple[float, float] | None:
    for seen in bundle.manifest.calibration.ranges:
        if seen.input == spec.name:
            return _to_wire(seen.minimum, spec), _to_wire(seen.maximum, spec)
    return None


def _span(spec: TensorSpec, bundle: Bundle) -> tuple[float, float]:
    calibrated = _calibrated(spec, bundle)
    if calibrated is not None:
        return calibrated
    if spec.scale or spec.dtype in _BYTES:
        limits = np.iinfo(spec.dtype)
        return _to_real(limits.min, spec), _to_real(limits.max, spec)
    return _FLOATS if spec.wire_dtype.kind == "f" else _INDICES


def _to_wire(real: float, spec: TensorSpec) -> float:
    """Calibration tells real values; a client that sends a quantized tensor sends steps."""
    if not spec.scale or spec.converts:
        return real
    limits = np.iinfo(spec.dtype)
    return float(np.clip(round(real / spec.scale) + spec.zero_point, limits.min, limits.max))


def _to_real(step: int, spec: TensorSpec) -> float:
    return spec.scale * (step - spec.zero_point) if spec.converts else float(step)

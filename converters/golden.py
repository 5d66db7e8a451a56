"""The golden samples of a bundle: inputs, known answers, and how far a delegate may be from them.

The tolerance of an output is twice the worst difference seen between a runtime's default kernels and the reference,
with a floor and a cap: without the floor honest rounding of another kernel fails, without the cap a runtime that
answers rubbish would make itself right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from converters.loadtest import Outcome
from converters.options import Mode
from converters.samples import Array
from edged.bundle import Golden, TensorSpec
from edged.engines.golden import largest_error
from edged.quant import dequantize, quantize

_MARGIN = 2.0
_CAP = 10.0
_ABSOLUTE = 1e-6
# float32 rounding of a dequantized difference of whole steps.
_ROUNDING = 1.001


def pick(count: int, wanted: int, *, in_order: bool) -> Array:
    """Return the indices of at most `wanted` samples, spread over all (data is often sorted by class).

    in_order: the first ones, for a model whose answer depends on the samples before.
    """
    if in_order:
        return np.arange(min(count, wanted))
    return np.unique(np.linspace(0, count - 1, num=min(count, wanted)).round().astype(np.int64))


def to_model(arrays: Mapping[str, Array], specs: Sequence[TensorSpec]) -> dict[str, Array]:
    """Return real inputs in the model's dtypes."""
    return {spec.name: quantize(arrays[spec.name], spec) if spec.scale else arrays[spec.name] for spec in specs}


def to_wire(arrays: Mapping[str, Array], specs: Sequence[TensorSpec]) -> dict[str, Array]:
    """Return tensors of the model's dtypes as the client sends or gets them."""
    return {spec.name: dequantize(arrays[spec.name], spec) if spec.converts else arrays[spec.name] for spec in specs}


def to_real(arrays: Mapping[str, Array], specs: Sequence[TensorSpec]) -> dict[str, Array]:
    """Return tensors of the model's dtypes as real numbers, whatever the client gets."""
    return {spec.name: dequantize(arrays[spec.name], spec) if spec.scale else arrays[spec.name] for spec in specs}


@dataclass(frozen=True)
class Agreement:
    """One runtime's worst difference from the reference, output name → value in the client's units."""

    runtime: str
    errors: Mapping[str, float]

    def beyond(self, caps: Mapping[str, float]) -> str:
        """Return what is wrong, or nothing."""
        bad = [
            f"output {name!r} is off by {e:.4g} (at most {caps[name]:.4g})"
            for name, e in self.errors.items()
            if not e <= caps[name]
        ]
        return "; ".join(bad)


def agreements(
    outcomes: Sequence[Outcome], reference: Mapping[str, Array], specs: Sequence[TensorSpec]
) -> list[Agreement]:
    """Compare what every runtime answered, with its own and with its default kernels, to `reference` (wire dtypes)."""
    found = []
    for outcome in outcomes:
        if outcome.reference is None or outcome.default is None:
            continue
        answers = [to_wire(outcome.reference, specs), to_wire(outcome.default, specs)]
        errors = {spec.name: max(_worst(a[spec.name], reference[spec.name]) for a in answers) for spec in specs}
        found.append(Agreement(outcome.runtime, errors))
    return found


def _worst(answer: Array, reference: Array) -> float:
    if answer.shape != reference.shape:
        return float("nan")
    return largest_error(answer, reference)


def floors(reference: Mapping[str, Array], specs: Sequence[TensorSpec], mode: Mode) -> dict[str, float]:
    """Return the least tolerance of every output: a few quantization steps, or a share of the largest value."""
    return {spec.name: _floor(reference[spec.name], spec, mode) for spec in specs}


def _floor(reference: Array, spec: TensorSpec, mode: Mode) -> float:
    if spec.scale:
        return mode.steps * spec.scale * _ROUNDING if spec.converts else float(mode.steps)
    if reference.dtype.kind != "f":
        return 0.0  # a class number or an index is right or wrong
    finite = reference[np.isfinite(reference)]
    return mode.relative * float(np.abs(finite).max(initial=0.0)) + _ABSOLUTE


def caps(floor: Mapping[str, float]) -> dict[str, float]:
    """Return the largest tolerance of every output."""
    return {name: _CAP * value for name, value in floor.items()}


def tolerances(floor: Mapping[str, float], agreed: Sequence[Agreement]) -> dict[str, float]:
    """Return every output's tolerance, so that each of `agreed` passes with a margin."""
    worst = {name: max((a.errors[name] for a in agreed), default=0.0) for name in floor}
    return {name: float(f"{min(_CAP * low, max(low, _MARGIN * worst[name])):.6g}") for name, low in floor.items()}


def make(
    inputs: Mapping[str, Array],
    floats: Mapping[str, Array],
    reference: Mapping[str, Array],
    specs: Sequence[TensorSpec],
    tolerance: Mapping[str, float],
) -> Golden:
    """Build the bundle's Golden. inputs, floats: real values of the golden samples; reference: in wire dtypes."""
    wire = {s.name: quantize(inputs[s.name], s) if s.scale and not s.converts else inputs[s.name] for s in specs}
    return Golden(wire, reference, floats, tolerance)

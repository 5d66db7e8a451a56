"""Affine quantization between the client's floats and the model's integers, without allocating.

real = scale * (q - zero_point), the definition of the TFLite 8-bit quantization specification
(https://ai.google.dev/edge/litert/models/quantization_spec). Rounding is to nearest, ties to even, as XNNPACK does;
values outside the range saturate.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from edged.bundle import TensorSpec

Array = npt.NDArray[Any]


def quantize_into(real: Array, spec: TensorSpec, out: Array, scratch: Array) -> None:
    """Write `real` (float32) into `out` (`spec.dtype`); `scratch` is float32 of the same shape and is overwritten."""
    limits = np.iinfo(out.dtype)
    with np.errstate(over="ignore"):  # a quotient beyond float32 saturates like any other
        np.divide(real, np.float32(spec.scale), out=scratch)
    np.rint(scratch, out=scratch)
    np.add(scratch, np.float32(spec.zero_point), out=scratch)
    np.clip(scratch, limits.min, limits.max, out=scratch)
    np.copyto(out, scratch, casting="unsafe")


def dequantize_into(quantized: Array, spec: TensorSpec, out: Array) -> None:
    """Write `quantized` (`spec.dtype`) into `out` (float32 of the same shape)."""
    np.copyto(out, quantized, casting="unsafe")
    np.subtract(out, np.float32(spec.zero_point), out=out)
    np.multiply(out, np.float32(spec.scale), out=out)


def quantize(real: Array, spec: TensorSpec) -> Array:
    """Return `real` quantized: the allocating form, for code outside the hot path."""
    real = np.ascontiguousarray(real, dtype=np.float32)
    out = np.empty(real.shape, dtype=spec.dtype)
    quantize_into(real, spec, out, np.empty_like(real))
    return out


def dequantize(quantized: Array, spec: TensorSpec) -> Array:
    """Return `quantized` as float32: the allocating form."""
    out = np.empty(quantized.shape, dtype=np.float32)
    dequantize_into(quantized, spec, out)
    return out

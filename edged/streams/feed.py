"""A full window → the payload of a request: whether a model can be fed from a stream, and the bytes of its input."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edged import quant

if TYPE_CHECKING:
    from edged.bundle import Signature, TensorSpec
    from edged.streams.window import FloatArray


class Feed:
    """Fills the one input of a model with windows of (length, features) samples.

    Raises ValueError when the model has more inputs, takes another number of values, or takes neither float32 nor
    quantized values.
    """

    def __init__(self, signature: Signature, model: str, length: int, features: int) -> None:
        if len(signature.inputs) != 1:
            raise ValueError(f"model {model} has {len(signature.inputs)} inputs; a stream feeds a model with one")
        self._spec = spec = signature.inputs[0]
        if length * features != spec.elements:
            shape = " x ".join(map(str, spec.shape))
            raise ValueError(
                f"{features} fields x a window of {length} samples are {features * length} values, but input "
                f"{spec.name} of model {model} takes {spec.elements} ({shape})"
            )
        self._quantizes = _quantizes(spec, model)

    def payload(self, window: FloatArray) -> bytes:
        """Return the raw payload: the window's values in order, in the dtype a client of the model sends."""
        return (quant.quantize(window, self._spec) if self._quantizes else window).tobytes()


def _quantizes(spec: TensorSpec, model: str) -> bool:
    if spec.wire_dtype == np.float32:
        return False
    if spec.scale == 0.0:
        raise ValueError(f"input {spec.name} of model {model} takes {spec.dtype}; a stream gives float32")
    return True

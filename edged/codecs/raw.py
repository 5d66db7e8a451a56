"""Raw tensors, the default and the fast path: little-endian, C order, concatenated in declared order, nothing else.

Decoding is one copy from the payload into each input and one pass over floats for NaN and Inf; nothing of the
payload's size is allocated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from edged.bundle import Signature
from edged.codecs.base import NO_ANNOTATIONS, Array
from edged.codecs.common import copy_elements, invalid, little, little_endian
from edged.request import Buffer


class Raw:
    """`application/octet-stream`. There is no room for annotations: `encode` leaves them out."""

    name: ClassVar[str] = "raw"
    content_type: ClassVar[str] = "application/octet-stream"
    reply_codec: ClassVar[str] = "raw"

    def decode(self, payload: Buffer, signature: Signature, into: Sequence[Array]) -> None:
        """Fill `into`; raises INVALID_ARGUMENT for another length, NaN or Inf in floats, bools other than 0 and 1."""
        expected, got = sum(array.nbytes for array in into), memoryview(payload).nbytes
        if got != expected:
            raise invalid(f"expected {expected} bytes ({_sizes(signature)}), got {got}")
        offset = 0
        for spec, array in zip(signature.inputs, into, strict=True):
            if array.size:  # np.frombuffer refuses an empty buffer
                flat = np.frombuffer(payload, little(array.dtype), array.size, offset)
                copy_elements(flat.reshape(array.shape), spec, array)
            offset += array.nbytes

    def encode(
        self,
        outputs: Sequence[Array],
        signature: Signature,  # noqa: ARG002  # the protocol's
        annotations: Mapping[str, object] = NO_ANNOTATIONS,  # noqa: ARG002  # the protocol's
    ) -> bytes:
        """Return the outputs' bytes in declared order."""
        if len(outputs) == 1:
            return little_endian(outputs[0]).tobytes()
        return b"".join([little_endian(output).tobytes() for output in outputs])


def _sizes(signature: Signature) -> str:
    return ", ".join(f"{spec.name!r}: {spec.wire_dtype.name} {list(spec.shape)}" for spec in signature.inputs)

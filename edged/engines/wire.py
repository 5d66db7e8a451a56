"""The client's arrays, where somebody else says where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edged.engines.base import Array


@dataclass(frozen=True)
class Wire:
    """One array for each input and each output, in the bundle's wire dtypes and shapes, C-contiguous.

    Behind each lie at least 16 bytes more that can be read: XNNPACK's kernels read past the end of a tensor
    (XNN_EXTRA_BYTES in xnnpack.h).
    """

    inputs: Sequence[Array]
    outputs: Sequence[Array]

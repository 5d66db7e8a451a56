"""The tensors of one side of a model (inputs or outputs), and the client's arrays in front of them.

Between an array and its tensor lies as little as can be: nothing where the array is a view of the tensor, else one
conversion or one copy. What is left to do at each inference is told as calls without arguments, made once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Any

import numpy as np

from edged.bundle import TensorSpec
from edged.engines.base import Array
from edged.quant import dequantize_into, quantize_into

Steps = Sequence[Callable[[], None]]


class Side:
    """wire: what the client writes or reads, in the bundle's wire dtypes.

    stays: whether tensors keep their addresses over invokes. placed: indices of the tensors whose memory the given
    arrays are. bound: tensor index and what the bundle says of it. given: the client's arrays; own ones without.
    """

    def __init__(
        self, interpreter: Any, bound: Sequence[tuple[int, TensorSpec]], given: Sequence[Array] | None, *,
        stays: bool, placed: Container[int],
    ) -> None:  # fmt: skip
        self._tensors = [
            _Tensor(
                interpreter, index, spec, None if given is None else given[number], live=stays, same=index in placed
            )
            for number, (index, spec) in enumerate(bound)
        ]
        self.wire = [tensor.wire for tensor in self._tensors]

    def to_tensors(self) -> Steps:
        """Return what is to be done before an invoke."""
        return tuple(step for tensor in self._tensors for step in tensor.fill())

    def from_tensors(self) -> Steps:
        """Return what is to be done after it."""
        return tuple(step for tensor in self._tensors for step in tensor.take())


class _Tensor:
    """One tensor in the model's dtype (`held`) and in the client's (`wire`); the same array where they do not differ.

    live: `held` is the interpreter's memory, not an array of ours that is copied in and out.
    """

    def __init__(
        self, interpreter: Any, index: int, spec: TensorSpec, given: Array | None, *, live: bool, same: bool
    ) -> None:
        self._interpreter, self._index, self._spec, self._live = interpreter, index, spec, live
        if same and given is not None:
            self.held = given
        elif live:
            self.held = _view(interpreter, index, spec)
        else:
            self.held = np.zeros(spec.shape, spec.dtype) if given is None or spec.converts else given
        self.wire: Array = (
            given if given is not None else np.zeros(spec.shape, np.float32) if spec.converts else self.held
        )

    def fill(self) -> Steps:
        steps: list[Callable[[], None]] = []
        if self._spec.converts:
            steps.append(partial(quantize_into, self.wire, self._spec, self.held, np.empty_like(self.wire)))
        elif self.wire is not self.held:
            steps.append(partial(np.copyto, self.held, self.wire))
        if not self._live:
            steps.append(partial(self._interpreter.set_tensor, self._index, self.held))
        return steps

    def take(self) -> Steps:
        steps: list[Callable[[], None]] = []
        if not self._live:
            steps.append(self._fetch)
        if self._spec.converts:
            steps.append(partial(dequantize_into, self.held, self._spec, self.wire))
        elif self.wire is not self.held:
            steps.append(partial(np.copyto, self.wire, self.held))
        return steps

    def _fetch(self) -> None:
        np.copyto(self.held, self._interpreter.get_tensor(self._index))


def _view(interpreter: Any, index: int, spec: TensorSpec) -> Array:
    """Return the interpreter's own memory, zeroed: fresh memory holds anything, and a warm-up would run on it."""
    borrowed = interpreter.tensor(index)()
    raw = (ctypes.c_uint8 * borrowed.nbytes).from_address(borrowed.ctypes.data)
    view = np.frombuffer(raw, dtype=spec.dtype).reshape(spec.shape)
    view[...] = 0
    return view

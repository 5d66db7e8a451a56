"""The TFLite engine: one interpreter, its tensors held as live views, on the thread that opened it.

Rules it keeps:
- The model comes from memory (bytes whose hash was checked), never from a path that can change.
- Input and output views are taken once after allocate_tensors, by address: an array that shares the interpreter's own
  reference would make `invoke` refuse ("at least 1 reference to internal data"). Nothing here resizes, which would move
  them; a model that moves them by itself is told at open and is served through copies.
- Several threads share nothing: open, invoke and close belong to one thread.
"""

from __future__ import annotations

import ctypes
from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from delegates.base import Delegate
from edged.bundle import Bundle, TensorSpec
from edged.engines import tflite_delegated
from edged.engines.base import Array, EngineInfo
from edged.engines.tflite_delegated import Node
from edged.engines.tflite_runtime import Runtime
from edged.errors import BadDataError
from edged.quant import dequantize_into, quantize_into


class TfliteEngine:
    """One loaded model.

    Raises BadDataError when the model is not what the bundle says, RuntimeError or ValueError as the runtime does when
    it refuses the model.
    """

    def __init__(self, bundle: Bundle, runtime: Runtime, delegate: Delegate, threads: int = 1) -> None:
        module = runtime.module()
        self._interpreter: Any = module.Interpreter(
            model_content=bundle.model, num_threads=threads, **delegate.open(module)
        )
        self._interpreter.allocate_tensors()
        nodes = tflite_delegated.listed(self._interpreter)
        taken = tflite_delegated.taken(nodes)
        side = _Live if _addresses_stay(self._interpreter, nodes, taken) else _Copied
        signature = _signature(self._interpreter, bundle)
        _whole(bundle, signature)
        self._inputs = side(self._interpreter, bundle.manifest.inputs, signature["inputs"], bundle)
        self._outputs = side(self._interpreter, bundle.manifest.outputs, signature["outputs"], bundle)
        self.inputs: Sequence[Array] = self._inputs.wire
        self.outputs: Sequence[Array] = self._outputs.wire
        counts = (len(taken), len(tflite_delegated.own(nodes))) if nodes else (None, None)
        self.info = EngineInfo(f"{runtime.name} {runtime.version}", delegate.name, threads, *counts)

    def invoke(self) -> None:
        """Quantize where the bundle says so, run, dequantize. Raises RuntimeError when the runtime refuses."""
        self._inputs.to_tensors()
        self._interpreter.invoke()
        self._outputs.from_tensors()

    def close(self) -> None:
        """Drop the interpreter and every view of its memory."""
        self.inputs = self.outputs = ()
        del self._inputs, self._outputs, self._interpreter


class _Side:
    """The tensors of one side (inputs or outputs) in the model's dtypes, and the client's arrays in front of them."""

    def __init__(self, interpreter: Any, specs: Sequence[TensorSpec], index: dict[str, int], bundle: Bundle) -> None:
        self._interpreter = interpreter
        self._indices = [_checked(interpreter, spec, index, bundle) for spec in specs]
        self._views = [self._view(at, spec) for at, spec in zip(self._indices, specs, strict=True)]
        self.wire = [
            np.zeros(spec.shape, np.float32) if spec.converts else view
            for spec, view in zip(specs, self._views, strict=True)
        ]
        self._conversions = [
            (spec, wire, view, np.empty_like(wire))
            for spec, wire, view in zip(specs, self.wire, self._views, strict=True)
            if spec.converts
        ]

    def _view(self, index: int, spec: TensorSpec) -> Array:
        raise NotImplementedError

    def to_tensors(self) -> None:
        for spec, wire, view, scratch in self._conversions:
            quantize_into(wire, spec, view, scratch)

    def from_tensors(self) -> None:
        for spec, wire, view, _ in self._conversions:
            dequantize_into(view, spec, wire)


class _Live(_Side):
    """Views of the interpreter's own memory."""

    def _view(self, index: int, spec: TensorSpec) -> Array:
        borrowed = self._interpreter.tensor(index)()
        raw = (ctypes.c_uint8 * borrowed.nbytes).from_address(borrowed.ctypes.data)
        view = np.frombuffer(raw, dtype=spec.dtype).reshape(spec.shape)
        view[...] = 0  # fresh memory holds anything, and a warm-up would run on it
        return view


class _Copied(_Side):
    """For a model whose tensors move: arrays of our own, copied in and out at each invoke."""

    def _view(self, index: int, spec: TensorSpec) -> Array:  # noqa: ARG002  # the base class needs the index
        return np.zeros(spec.shape, spec.dtype)

    def to_tensors(self) -> None:
        super().to_tensors()
        for index, held in zip(self._indices, self._views, strict=True):
            self._interpreter.set_tensor(index, held)

    def from_tensors(self) -> None:
        for index, held in zip(self._indices, self._views, strict=True):
            np.copyto(held, self._interpreter.get_tensor(index))
        super().from_tensors()


def _signature(interpreter: Any, bundle: Bundle) -> dict[str, dict[str, int]]:
    """Map signature names to tensor indices.

    The order of get_input_details is not the signature's order, so tensors are bound by name; a model without
    signatures is bound by tensor name.
    """
    key = bundle.manifest.signature
    signatures = interpreter.get_signature_list()
    if key in signatures:
        runner = interpreter.get_signature_runner(key)
        return {
            "inputs": {name: int(d["index"]) for name, d in runner.get_input_details().items()},
            "outputs": {name: int(d["index"]) for name, d in runner.get_output_details().items()},
        }
    if signatures:
        raise BadDataError(str(bundle.path), f"the model has no signature {key!r}", f"it has {', '.join(signatures)}")
    return {
        "inputs": {d["name"]: int(d["index"]) for d in interpreter.get_input_details()},
        "outputs": {d["name"]: int(d["index"]) for d in interpreter.get_output_details()},
    }


def _whole(bundle: Bundle, signature: dict[str, dict[str, int]]) -> None:
    """Raise BadDataError unless the bundle declares all the model has: an input nobody fills holds anything."""
    for side, specs in (("inputs", bundle.manifest.inputs), ("outputs", bundle.manifest.outputs)):
        missing = sorted(set(signature[side]) - {spec.name for spec in specs})
        if missing:
            raise BadDataError(str(bundle.path), f"bundle.json leaves out {side} {', '.join(missing)} of the model")


def _checked(interpreter: Any, spec: TensorSpec, index: dict[str, int], bundle: Bundle) -> int:
    """Return the tensor's index; raises BadDataError when it is not as the bundle says."""
    if spec.name not in index:
        raise BadDataError(str(bundle.path), f"the model has no tensor {spec.name!r}", f"it has {', '.join(index)}")
    details = next(d for d in interpreter.get_tensor_details() if d["index"] == index[spec.name])
    dtype, shape = np.dtype(details["dtype"]), tuple(int(n) for n in details["shape"])
    if dtype != np.dtype(spec.dtype) or shape != spec.shape:
        found, wanted = f"{dtype}{list(shape)}", f"{spec.dtype}{list(spec.shape)}"
        raise BadDataError(str(bundle.path), f"tensor {spec.name!r} is {found}, bundle.json says {wanted}")
    return index[spec.name]


def _addresses_stay(interpreter: Any, nodes: Sequence[Node], taken: Container[int]) -> bool:
    """Tell whether input and output tensors stay where they are over invokes.

    They do unless some node that runs makes a tensor whose size is known only when it runs (WHILE loops of recurrent
    layers, detection post-processing): the runtime then plans its memory again in the middle of an invoke, and even
    inputs move. Such a tensor has no memory after allocate_tensors.
    """
    numeric = {int(d["index"]) for d in interpreter.get_tensor_details() if np.dtype(d["dtype"]).kind in "fiub"}
    made = {int(t) for i, op in enumerate(nodes) if i not in taken for t in op["outputs"]}
    # Views of anything but numbers are never asked for: of a string tensor they kill the process.
    return bool(nodes) and made <= numeric and all(_has_memory(interpreter, t) for t in made)


def _has_memory(interpreter: Any, index: int) -> bool:
    try:
        interpreter.tensor(index)()
    except ValueError:  # "Tensor data is null"
        return False
    return True

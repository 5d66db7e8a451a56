"""The TFLite engine: one interpreter, its tensors held as live views, on the thread that opened it.

Rules it keeps:
- The model comes from memory (bytes whose hash was checked), never from a path that can change.
- Input and output views are taken once after allocate_tensors, by address: an array that shares the interpreter's own
  reference would make `invoke` refuse ("at least 1 reference to internal data"). The address is re-checked with
  every open and is 64-byte aligned; nothing here resizes, which is what would move it.
- Several threads share nothing: open, invoke and close belong to one thread.
Cost: invoke adds under 3 µs to the runtime's own where no conversion is needed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from delegates.base import Delegate
from edged.bundle import Bundle, TensorSpec
from edged.engines.base import Array, EngineInfo
from edged.engines.tflite_runtime import Runtime
from edged.errors import BadDataError
from edged.quant import dequantize_into, quantize_into

DELEGATE = "DELEGATE"


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
        signature = _signature(self._interpreter, bundle)
        self._inputs = _Tensors(self._interpreter, bundle.manifest.inputs, signature["inputs"], bundle)
        self._outputs = _Tensors(self._interpreter, bundle.manifest.outputs, signature["outputs"], bundle)
        self.inputs: Sequence[Array] = self._inputs.wire
        self.outputs: Sequence[Array] = self._outputs.wire
        self.info = _info(self._interpreter, f"{runtime.name} {runtime.version}", delegate.name, threads)

    def invoke(self) -> None:
        """Quantize where the bundle says so, run, dequantize. Raises RuntimeError when the runtime refuses."""
        self._inputs.to_tensors()
        self._interpreter.invoke()
        self._outputs.from_tensors()

    def close(self) -> None:
        """Drop the interpreter and every view of its memory."""
        self.inputs = self.outputs = ()
        del self._inputs, self._outputs, self._interpreter


class _Tensors:
    """The tensors of one side (inputs or outputs): the live views, and the client's arrays in front of them."""

    def __init__(self, interpreter: Any, specs: Sequence[TensorSpec], index: dict[str, int], bundle: Bundle) -> None:
        self._interpreter = interpreter
        self._views = []
        self._moving: list[tuple[int, Array]] = []
        for spec in specs:
            view = _view(interpreter, spec, index, bundle)
            if view is None:
                view = np.zeros(spec.shape, spec.dtype)
                self._moving.append((index[spec.name], view))
            self._views.append(view)
        self.wire = [
            np.zeros(spec.shape, np.float32) if spec.converts else view
            for spec, view in zip(specs, self._views, strict=True)
        ]
        self._conversions = [
            (spec, wire, view, np.empty_like(wire))
            for spec, wire, view in zip(specs, self.wire, self._views, strict=True)
            if spec.converts
        ]

    def to_tensors(self) -> None:
        for spec, wire, view, scratch in self._conversions:
            quantize_into(wire, spec, view, scratch)

    def from_tensors(self) -> None:
        for index, held in self._moving:
            np.copyto(held, self._interpreter.get_tensor(index))
        for spec, wire, view, _ in self._conversions:
            dequantize_into(view, spec, wire)


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


def _view(interpreter: Any, spec: TensorSpec, index: dict[str, int], bundle: Bundle) -> Array | None:
    """Return the live view; None for an output that has no memory before the first invoke and may move with each.

    Models with WHILE loops (recurrent layers) have such outputs.
    """
    if spec.name not in index:
        raise BadDataError(str(bundle.path), f"the model has no tensor {spec.name!r}", f"it has {', '.join(index)}")
    try:
        borrowed = interpreter.tensor(index[spec.name])()
    except ValueError:  # "Tensor data is null"
        return None
    if borrowed.dtype != np.dtype(spec.dtype) or borrowed.shape != spec.shape:
        found, wanted = f"{borrowed.dtype}{list(borrowed.shape)}", f"{spec.dtype}{list(spec.shape)}"
        raise BadDataError(str(bundle.path), f"tensor {spec.name!r} is {found}, bundle.json says {wanted}")
    address, size = borrowed.ctypes.data, borrowed.nbytes
    raw = (ctypes.c_uint8 * size).from_address(address)
    return np.frombuffer(raw, dtype=borrowed.dtype).reshape(spec.shape)


def _info(interpreter: Any, runtime: str, delegate: str, threads: int) -> EngineInfo:
    nodes = _nodes(interpreter)
    if not nodes:
        return EngineInfo(runtime, delegate, threads)
    total = sum(1 for op in nodes if op["op_name"] != DELEGATE)
    return EngineInfo(runtime, delegate, threads, _count_delegated(nodes), total)


def _nodes(interpreter: Any) -> list[dict[str, Any]]:
    """List the graph's nodes; empty where the runtime does not tell (the call is private in both)."""
    details = getattr(interpreter, "_get_ops_details", None)
    return [] if details is None else list(details())


def _count_delegated(nodes: Sequence[dict[str, Any]]) -> int:
    """Count the model's nodes that stand inside a DELEGATE node.

    The runtime lists replaced nodes and DELEGATE nodes side by side without saying which took which. A partition took
    what lies between its inputs and its outputs: walk back from its outputs and stop at its inputs.
    """
    maker = {int(t): i for i, op in enumerate(nodes) if op["op_name"] != DELEGATE for t in op["outputs"]}
    taken: set[int] = set()
    for partition in (op for op in nodes if op["op_name"] == DELEGATE):
        border = {int(t) for t in partition["inputs"]}
        pending = [int(t) for t in partition["outputs"]]
        while pending:
            node = maker.get(pending.pop())
            if node is not None and node not in taken:
                taken.add(node)
                pending.extend(int(t) for t in nodes[node]["inputs"] if int(t) not in border)
    return len(taken)

"""The TFLite engine: one interpreter, its tensors held as live views, on the thread that opened it.

Rules it keeps:
- The model comes from memory (bytes whose hash was checked), never from a path that can change.
- Input and output views are taken once after allocate_tensors, by address: an array that shares the interpreter's own
  reference would make `invoke` refuse ("at least 1 reference to internal data"). Nothing is resized once
  they are taken, which would move them; a model that moves them by itself is told at open and is served through copies.
- Several threads share nothing: open, invoke and close belong to one thread.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np

from delegates.base import DEFAULT, Delegate, Opening
from edged.bundle import MODEL_CPU, Bundle, TensorSpec
from edged.engines import tflite_delegated, tflite_shared
from edged.engines.base import Array, EngineInfo, Taken
from edged.engines.tflite_delegated import Node
from edged.engines.tflite_runtime import Runtime
from edged.engines.tflite_tensors import Side
from edged.engines.wire import Wire
from edged.errors import BadDataError


class TfliteEngine:
    """One loaded model.

    model: the bytes to load, when they are others than `bundle.model`. wire: the arrays that `inputs` and `outputs`
    shall be, own ones without it; one that the runtime can use for the tensor itself is the tensor.
    Raises BadDataError when the model is not what the bundle says, RuntimeError or ValueError as the runtime does when
    it refuses the model, OSError as the delegate's library does.
    """

    def __init__(
        self, bundle: Bundle, runtime: Runtime, delegate: Delegate, how: Opening = DEFAULT, *,
        model: bytes | None = None, wire: Wire | None = None,
    ) -> None:  # fmt: skip
        opened = _Opened(bundle, runtime, delegate, how, bundle.model if model is None else model)
        placed = opened.allocate(wire)
        if placed and not opened.stays:  # tensors that move leave the memory they were given: without it, then
            opened = _Opened(bundle, runtime, delegate, how, bundle.model if model is None else model)
            placed = opened.allocate(None)
        self._interpreter: Any = opened.interpreter
        inputs, outputs = (None, None) if wire is None else (wire.inputs, wire.outputs)
        where: Any = {"stays": opened.stays, "placed": placed}
        self._inputs = Side(opened.interpreter, opened.inputs, inputs, **where)
        self._outputs = Side(opened.interpreter, opened.outputs, outputs, **where)
        self._before, self._after = self._inputs.to_tensors(), self._outputs.from_tensors()
        self.inputs: Sequence[Array] = self._inputs.wire
        self.outputs: Sequence[Array] = self._outputs.wire
        self.info = EngineInfo(f"{runtime.name} {runtime.version}", delegate.name, how.threads, *opened.share())

    def invoke(self) -> None:
        """Quantize where the bundle says so, run, dequantize. Raises RuntimeError when the runtime refuses."""
        for step in self._before:
            step()
        self._interpreter.invoke()
        for step in self._after:
            step()

    def idle(self) -> None:
        """Run the model on whatever the inputs hold."""
        self.invoke()

    def close(self) -> None:
        """Drop the interpreter and every view of its memory."""
        self.inputs = self.outputs = self._before = self._after = ()
        del self._inputs, self._outputs, self._interpreter


class _Opened:
    """An interpreter with its delegate, and where its tensors are bound. `stays` holds after `allocate`."""

    def __init__(self, bundle: Bundle, runtime: Runtime, delegate: Delegate, how: Opening, model: bytes) -> None:
        module = runtime.module()
        self._bundle, self._runtime, self._vendor = bundle, runtime, delegate.isolated
        self.interpreter: Any = module.Interpreter(
            model_content=model, num_threads=how.threads, **delegate.open(module, how)
        )
        self._early = len(tflite_delegated.delegates(tflite_delegated.listed(self.interpreter)))
        signature = _signature(self.interpreter, bundle, model)
        _whole(bundle, signature)
        named, manifest = signature["inputs"], bundle.manifest
        present = [(named[spec.name], spec) for spec in manifest.inputs if spec.name in named]
        self._resized = sum(_resize(self.interpreter, index, spec) for index, spec in present) > 0
        self.inputs = [(self._checked(s, named), s) for s in manifest.inputs]
        self.outputs = [(self._checked(s, signature["outputs"], known=not self._resized), s) for s in manifest.outputs]

    def allocate(self, wire: Wire | None) -> set[int]:
        """Allocate; returns the indices of the tensors that live in the arrays of `wire`."""
        placed: set[int] = set()
        if wire is not None:
            bound = [*zip(self.inputs, wire.inputs, strict=True), *zip(self.outputs, wire.outputs, strict=True)]
            arrays = {index: array for (index, spec), array in bound if not spec.converts}
            placed = tflite_shared.place(self._runtime, self.interpreter, arrays)
        self.interpreter.allocate_tensors()
        self._nodes = tflite_delegated.listed(self.interpreter)
        self._taken = tflite_delegated.taken(self._nodes)
        self.stays = _addresses_stay(self.interpreter, self._nodes, self._taken)
        if self._resized:
            self._require_rows()
        return placed

    def _checked(self, spec: TensorSpec, index: Mapping[str, int], *, known: bool = True) -> int:
        return _checked(self.interpreter, spec, index, self._bundle, known=known)

    def _require_rows(self) -> None:
        """Raise BadDataError unless the outputs have as many rows as the inputs got: a run tells, not the file."""
        for index, _ in self.inputs:  # fresh memory holds anything
            self.interpreter.set_tensor(index, np.zeros_like(self.interpreter.get_tensor(index)))
        self.interpreter.invoke()
        for index, spec in self.outputs:
            shape = self.interpreter.get_tensor(index).shape
            if shape != spec.shape:
                what = f"with {spec.shape[0]} rows in, output {spec.name!r} is {list(shape)}, not {list(spec.shape)}"
                raise BadDataError(str(self._bundle.path), what)

    def share(self) -> tuple[int | None, int | None, Taken]:
        """Return how many nodes the delegate took, of how many, and what that makes.

        Of an accelerator, what XNNPACK took of the rest does not count: it comes later, when tensors are allocated.
        """
        if not self._nodes:
            return None, None, "unknown"
        taken = sum(not self._vendor or number < self._early for number in self._taken.values())
        total = len(tflite_delegated.own(self._nodes))
        return taken, total, "full" if taken == total else "partial"


def _signature(interpreter: Any, bundle: Bundle, model: bytes) -> dict[str, Mapping[str, int]]:
    """Map signature names to tensor indices.

    The order of get_input_details is not the signature's order, so tensors are bound by name; a model without
    signatures is bound by tensor name, or as the twin that it was compiled from.
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
    twin = bundle.files.get(MODEL_CPU)
    if twin is not None and model != twin:
        return _as_twin(bundle, model, twin)
    return {
        "inputs": {d["name"]: int(d["index"]) for d in interpreter.get_input_details()},
        "outputs": {d["name"]: int(d["index"]) for d in interpreter.get_output_details()},
    }


def _as_twin(bundle: Bundle, model: bytes, twin: bytes) -> dict[str, Mapping[str, int]]:
    from edged.engines import tflite_bind, tflite_file  # noqa: PLC0415  # for compiled models only

    key = bundle.manifest.signature
    ends = tflite_bind.compiled(tflite_file.read(model), tflite_file.read(twin), key)
    if ends is None:
        raise BadDataError(f"{bundle.path}/{MODEL_CPU}", f"the model has no signature {key!r}")
    return {"inputs": ends.inputs, "outputs": ends.outputs}


def _whole(bundle: Bundle, signature: Mapping[str, Mapping[str, int]]) -> None:
    """Raise BadDataError unless the bundle declares all the model has: an input nobody fills holds anything."""
    for side, specs in (("inputs", bundle.manifest.inputs), ("outputs", bundle.manifest.outputs)):
        missing = sorted(set(signature[side]) - {spec.name for spec in specs})
        if missing:
            raise BadDataError(str(bundle.path), f"bundle.json leaves out {side} {', '.join(missing)} of the model")


def _resize(interpreter: Any, index: int, spec: TensorSpec) -> bool:
    """Give an input the rows that `spec` says, where the file leaves its first dimension open; returns whether it had
    others."""
    details = next(d for d in interpreter.get_tensor_details() if d["index"] == index)
    shape, signature = tuple(map(int, details["shape"])), tuple(map(int, details["shape_signature"]))
    if shape == spec.shape or signature[:1] != (-1,) or shape[1:] != spec.shape[1:]:
        return False
    interpreter.resize_tensor_input(index, spec.shape)
    return True


def _checked(interpreter: Any, spec: TensorSpec, index: Mapping[str, int], bundle: Bundle, *, known: bool) -> int:
    """Return the tensor's index; raises BadDataError when it is not as the bundle says. known: its shape is final."""
    if spec.name not in index:
        raise BadDataError(str(bundle.path), f"the model has no tensor {spec.name!r}", f"it has {', '.join(index)}")
    details = next(d for d in interpreter.get_tensor_details() if d["index"] == index[spec.name])
    dtype, shape = np.dtype(details["dtype"]), tuple(int(n) for n in details["shape"])
    if dtype != np.dtype(spec.dtype) or (known and shape != spec.shape):
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

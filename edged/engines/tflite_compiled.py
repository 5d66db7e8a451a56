"""The engine on LiteRT's CompiledModel, through which it reaches GPUs and NPUs.

Rules it keeps:
- It holds the GIL while it works: it lives in a process of its own, never beside a network thread.
- The accelerator is tried alone. The CPU is put beside it only when the runtime then said, in numbers, that the
  accelerator takes a part: the two together also "work" where the CPU does it all.
- Buffers are made once. `write` takes arrays that are too short and of other dtypes: what the bundle says is compared
  with what the model has at open, and what is written is always a whole array of that dtype.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from delegates.base import DEFAULT, LITERT, Delegate, Opening
from edged.bundle import Bundle, TensorSpec
from edged.engines import tflite_file, tflite_runtime
from edged.engines.base import Array, EngineInfo, Taken
from edged.engines.tflite_compiled_log import Heard, listening
from edged.engines.wire import Wire
from edged.errors import BadDataError, UnavailableError
from edged.quant import dequantize_into, quantize_into

# The name that the runtime gives to the one signature of a file without signatures; its names are the tensors' own.
UNNAMED = "<placeholder signature>"
# Dtypes that its buffers can hold (ai_edge_litert/tensor_buffer.py), of those that a bundle can name.
DTYPES = frozenset({"float32", "float16", "int32", "int8", "uint8", "bool"})


class CompiledEngine:
    """One loaded model.

    wire: the arrays that `inputs` and `outputs` shall be; own ones without it. Raises BadDataError when the model is
    not what the bundle says, UnavailableError without ai-edge-litert, ValueError as the delegate does, and
    RuntimeError, with the runtime's own words for it, when the accelerator refuses the model or takes none of it.
    """

    def __init__(self, bundle: Bundle, delegate: Delegate, how: Opening = DEFAULT, *, wire: Wire | None = None) -> None:
        runtime = tflite_runtime.by_name(LITERT)
        opened = _open(_module(runtime.package), delegate, bundle.model, how)
        self._model = opened.model
        key, signature = _signature(self._model, bundle)
        self._number = 0 if key == UNNAMED else int(self._model.get_signature_index(key))
        inputs = _bound(bundle, bundle.manifest.inputs, signature["inputs"], self._model.get_input_tensor_details(key))
        outputs = _bound(
            bundle, bundle.manifest.outputs, signature["outputs"], self._model.get_output_tensor_details(key)
        )
        self._in, self._out = (
            self._model.create_input_buffers(self._number),
            self._model.create_output_buffers(self._number),
        )
        given = (None, None) if wire is None else (wire.inputs, wire.outputs)
        self._inputs = _slots(self._in, inputs, bundle.manifest.inputs, given[0])
        self._outputs = _slots(self._out, outputs, bundle.manifest.outputs, given[1])
        self.inputs: Sequence[Array] = [slot.wire for slot in self._inputs]
        self.outputs: Sequence[Array] = [slot.wire for slot in self._outputs]
        told = f"{runtime.name} {runtime.version}"
        self.info = EngineInfo(told, delegate.name, how.threads, *opened.share, mapping=opened.mapping)

    def invoke(self) -> None:
        """Quantize where the bundle says so, write, run, read, dequantize. Raises RuntimeError as the runtime does."""
        for slot in self._inputs:
            slot.write()
        self._model.run_by_index(self._number, self._in, self._out)
        for slot in self._outputs:
            slot.read()

    def idle(self) -> None:
        """Run the model on whatever the inputs hold."""
        self.invoke()

    def close(self) -> None:
        """Drop the buffers, then the model they came from."""
        self.inputs = self.outputs = ()
        self._inputs = self._outputs = ()
        for buffer in (*self._in, *self._out):
            buffer.destroy()
        self._model.close()


class _Slot:
    """One tensor: its buffer, an array in the model's dtype (`held`), and the client's (`wire`), which may be it."""

    def __init__(self, buffer: Any, spec: TensorSpec, given: Array | None) -> None:
        self._buffer, self._spec = buffer, spec
        self.wire: Array = np.zeros(spec.shape, np.float32 if spec.converts else spec.dtype) if given is None else given
        self._held = np.zeros(spec.shape, spec.dtype) if spec.converts else self.wire
        self._scratch = np.empty_like(self.wire)

    def write(self) -> None:
        if self._spec.converts:
            quantize_into(self.wire, self._spec, self._held, self._scratch)
        self._buffer.write(self._held)

    def read(self) -> None:
        flat = self._buffer.read(self._held.size, self._held.dtype)
        np.copyto(self._held, flat.reshape(self._held.shape))
        if self._spec.converts:
            dequantize_into(self._held, self._spec, self.wire)


@dataclass(frozen=True)
class _Opened:
    model: Any
    mapping: Taken
    share: tuple[int | None, int | None]


@dataclass(frozen=True)
class _Attempt:
    """A model, or the exception in place of it; heard: what was said meanwhile."""

    model: Any
    error: RuntimeError | None
    heard: Heard


def _open(module: ModuleType, delegate: Delegate, model: bytes, how: Opening) -> _Opened:
    alone = _attempt(module, delegate, model, replace(how, alone=True))
    if alone.error is None:
        whole = alone.model.is_fully_accelerated()
        return _Opened(alone.model, "full" if whole else "unknown", _whole(model) if whole else (None, None))
    share = alone.heard.share()
    if share is None or not share[0]:
        raise RuntimeError(alone.heard.reason(alone.error)) from alone.error
    both = _attempt(module, delegate, model, replace(how, alone=False))
    if both.error is not None:
        raise RuntimeError(both.heard.reason(both.error)) from both.error
    if both.heard.share() != share:
        msg = f"took {share[0]} of {share[1]} ops alone, and does not say so with the CPU beside it"
        raise RuntimeError(msg)
    return _Opened(both.model, "partial", share)


def _attempt(module: ModuleType, delegate: Delegate, model: bytes, how: Opening) -> _Attempt:
    with listening() as heard:
        try:
            return _Attempt(module.CompiledModel.from_buffer(model, **delegate.open(module, how)), None, heard)
        except RuntimeError as exc:
            return _Attempt(None, exc, heard)


def _module(package: str) -> ModuleType:
    try:
        return import_module(f"{package}.compiled_model")
    except ImportError as exc:
        raise UnavailableError(LITERT, f"has no CompiledModel: {exc}", f"pip install --upgrade {LITERT}") from exc


def _whole(model: bytes) -> tuple[int | None, int | None]:
    """Return the count of ops of the file, twice: all of them were taken. None where it has more than one graph."""
    graphs = tflite_file.read(model).graphs
    count = len(graphs[0].ops) if len(graphs) == 1 else None
    return count, count


def _signature(model: Any, bundle: Bundle) -> tuple[str, Mapping[str, Sequence[str]]]:
    """Return the signature's key in this model, and the names of its inputs and outputs in the order of the buffers."""
    found = model.get_signature_list()
    key = UNNAMED if list(found) == [UNNAMED] else bundle.manifest.signature
    if key not in found:
        raise BadDataError(str(bundle.path), f"the model has no signature {key!r}", f"it has {', '.join(found)}")
    return key, found[key]


def _bound(
    bundle: Bundle, specs: Sequence[TensorSpec], names: Sequence[str], details: Mapping[str, Mapping[str, Any]]
) -> list[int]:
    """Return each spec's place among the buffers. Raises BadDataError when model and bundle do not say the same."""
    where = str(bundle.path)
    if missing := sorted(set(names) - {spec.name for spec in specs}):
        raise BadDataError(where, f"bundle.json leaves out {', '.join(missing)} of the model")
    for spec in specs:
        if spec.name not in names:
            raise BadDataError(where, f"the model has no tensor {spec.name!r}", f"it has {', '.join(names)}")
        if spec.dtype not in DTYPES:
            raise BadDataError(where, f"tensor {spec.name!r} is {spec.dtype}", f"CompiledModel takes {sorted(DTYPES)}")
        found = (str(details[spec.name]["dtype"]), tuple(details[spec.name]["shape"]))
        if found != (spec.dtype, spec.shape):
            what = f"{found[0]}{list(found[1])}, bundle.json says {spec.dtype}{list(spec.shape)}"
            raise BadDataError(where, f"tensor {spec.name!r} is {what}")
    return [list(names).index(spec.name) for spec in specs]


def _slots(
    buffers: Sequence[Any], places: Sequence[int], specs: Sequence[TensorSpec], given: Sequence[Array] | None
) -> Sequence[_Slot]:
    arrays = [None] * len(specs) if given is None else given
    return [_Slot(buffers[place], spec, array) for place, spec, array in zip(places, specs, arrays, strict=True)]

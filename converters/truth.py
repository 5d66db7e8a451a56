"""Reading a model file back: what is really in it, and whether that is what was asked for.

The converter may return float where int8 was asked, or a model without its weights, and call both a success.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from converters.options import MODES
from converters.samples import InputInfo
from edged.bundle import TensorSpec
from edged.engines import tflite_schema
from edged.errors import BadDataError, InternalError

# Largest finite float16; a constant that reaches it was clamped.
_HALF_MAX = 65504.0
_STATE_OPS = frozenset({"VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"})
_RANDOM_OPS = frozenset({"RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "MULTINOMIAL"})
# Of an int8 model, the least share of ops that must work on integers only.
_INTEGER_SHARE = 0.5


@dataclass(frozen=True)
class Facts:
    """What the file holds. inputs, outputs: as the file declares them, scale 0 where not quantized.

    ops: name → highest version. dtypes: dtype → (tensors, bytes of constants).
    integer_share: share of ops that touch no float tensor; float_ops names the others.
    """

    signature: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    ops: Mapping[str, int]
    dtypes: Mapping[str, tuple[int, int]]
    integer_share: float
    float_ops: tuple[str, ...]
    clamped: tuple[str, ...]
    weightless: bool
    stateful: bool

    @property
    def random_ops(self) -> tuple[str, ...]:
        """Ops that answer differently on every run."""
        return tuple(sorted(_RANDOM_OPS & set(self.ops)))


def read(model: bytes) -> Facts:
    """Read a model file's facts. Raises InternalError when it holds no signature, UnavailableError without a reader."""
    reader = _Reader(model)
    return reader.facts()


class _Reader:
    """The unpacked file, with names for its numbers."""

    def __init__(self, model: bytes) -> None:
        schema = tflite_schema.load()
        self._model: Any = schema.ModelT.InitFromPackedBuf(bytearray(model), 0)
        self._op_names = _names(schema.BuiltinOperator)
        self._type_names: dict[int, Any] = {number: name.lower() for number, name in _names(schema.TensorType).items()}

    def facts(self) -> Facts:
        if not self._model.signatureDefs:
            raise InternalError("converters", "the converter wrote a model without a signature")
        signature = self._model.signatureDefs[0]
        graph = self._model.subgraphs[signature.subgraphIndex]
        ops = dict(sorted(self._ops().items()))
        float_ops = Counter(name for name, touches in self._touching() if touches)
        total = sum(1 for _ in self._touching())
        return Facts(
            signature=_text(signature.signatureKey),
            inputs=self._bound(signature.inputs, graph),
            outputs=self._bound(signature.outputs, graph),
            ops=ops,
            dtypes=self._dtypes(),
            integer_share=1 - sum(float_ops.values()) / total if total else 1.0,
            float_ops=tuple(sorted(float_ops)),
            clamped=self._clamped(),
            weightless="READ_VARIABLE" in ops and not {"CALL_ONCE", "ASSIGN_VARIABLE"} & set(ops),
            stateful=bool(_STATE_OPS & set(ops)) or any(t.isVariable for t in self._tensors()),
        )

    def _tensors(self) -> Iterator[Any]:
        for graph in self._model.subgraphs:
            yield from graph.tensors

    def _op_name(self, code: Any) -> str:
        if code.customCode is not None:
            return _text(code.customCode)
        # Files before schema 3a keep small numbers in the deprecated field only.
        return self._op_names[max(code.builtinCode, code.deprecatedBuiltinCode)]

    def _ops(self) -> dict[str, int]:
        ops: dict[str, int] = {}
        for code in self._model.operatorCodes:
            name = self._op_name(code)
            ops[name] = max(int(code.version), ops.get(name, 0))
        return ops

    def _touching(self) -> Iterator[tuple[str, bool]]:
        """For every op but the ones that convert: its name, and whether it touches a float tensor."""
        for graph in self._model.subgraphs:
            for op in graph.operators or ():
                name = self._op_name(self._model.operatorCodes[op.opcodeIndex])
                if name not in ("QUANTIZE", "DEQUANTIZE"):
                    indices = [i for side in (op.inputs, op.outputs) for i in (() if side is None else side) if i >= 0]
                    types = {self._type_names[graph.tensors[i].type] for i in indices}
                    yield name, bool(types & {"float32", "float16", "float64"})

    def _bound(self, bindings: Any, graph: Any) -> tuple[TensorSpec, ...]:
        named = {_text(binding.name): graph.tensors[binding.tensorIndex] for binding in bindings}
        return tuple(self._tensor(name, tensor) for name, tensor in sorted(named.items()))

    def _tensor(self, name: str, tensor: Any) -> TensorSpec:
        shape = () if tensor.shape is None else tuple(int(size) for size in tensor.shape)
        q = tensor.quantization
        one = q is not None and q.scale is not None and len(q.scale) == 1
        scale, zero_point = (float(q.scale[0]), int(q.zeroPoint[0])) if one else (0.0, 0)
        return TensorSpec(name, self._type_names[tensor.type], shape, scale, zero_point)

    def _data(self, tensor: Any) -> bytes:
        data = self._model.buffers[tensor.buffer].data
        return b"" if data is None else bytes(data)

    def _dtypes(self) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for tensor in self._tensors():
            name = self._type_names[tensor.type]
            count, size = found.get(name, (0, 0))
            found[name] = (count + 1, size + len(self._data(tensor)))
        return dict(sorted(found.items()))

    def _clamped(self) -> tuple[str, ...]:
        halves = [tensor for tensor in self._tensors() if self._type_names[tensor.type] == "float16"]
        values = {_text(tensor.name): np.frombuffer(self._data(tensor), np.float16) for tensor in halves}
        return tuple(sorted(name for name, a in values.items() if a.size and not np.all(np.abs(a) < _HALF_MAX)))


def _names(enum: Any) -> dict[int, str]:
    return {value: name for name, value in vars(enum).items() if isinstance(value, int)}


def _text(raw: bytes | str) -> str:
    return raw.decode() if isinstance(raw, bytes) else raw


def check(facts: Facts, inputs: tuple[InputInfo, ...], outputs: Mapping[str, str], quantize: str) -> list[str]:
    """Raise BadDataError when the file is not what was asked for; return warnings.

    inputs, outputs: those of the SavedModel's signature (outputs: name → numpy dtype).
    """
    mode = MODES[quantize]
    if facts.weightless:
        raise BadDataError("converted model", "holds no weights", "save the model with `model.export(DIRECTORY)`")
    _check_tensors("input", facts.inputs, {info.name: info.dtype for info in inputs}, mode.integer)
    _check_tensors("output", facts.outputs, outputs, mode.integer)
    if facts.clamped:
        what = f"float16 cannot hold the values of {facts.clamped[0]!r} (beyond {_HALF_MAX:.0f})"
        raise BadDataError("converted model", what, "use --quantize none or dynamic")
    if mode.integer and facts.integer_share < _INTEGER_SHARE:
        what = f"{quantize} was asked, but {1 - facts.integer_share:.0%} of the ops are float: "
        raise BadDataError("converted model", what + ", ".join(facts.float_ops))
    return list(_warnings(facts, quantize))


def _check_tensors(side: str, found: tuple[TensorSpec, ...], wanted: Mapping[str, str], integer: str) -> None:
    if {tensor.name for tensor in found} != set(wanted):
        names = [tensor.name for tensor in found]
        raise InternalError("converted model", f"has the {side}s {names}, the SavedModel {sorted(wanted)}")
    for tensor in found:
        dtype = integer if integer and wanted[tensor.name].startswith("float") else wanted[tensor.name]
        if tensor.dtype != dtype:
            raise BadDataError("converted model", f"{side} {tensor.name!r} is {tensor.dtype}, asked was {dtype}")
        if integer and dtype == integer and not tensor.scale > 0:
            raise BadDataError("converted model", f"{side} {tensor.name!r} has no scale")


def _warnings(facts: Facts, quantize: str) -> Iterator[str]:
    if MODES[quantize].integer and facts.float_ops:
        yield f"these ops stay float: {', '.join(facts.float_ops)}"
    smaller = {"float16": "float16", "dynamic": "int8", "int8": "int8", "int16x8": "int8"}.get(quantize)
    if smaller and smaller not in facts.dtypes:
        yield f"--quantize {quantize} had no effect: the weights are too small to be worth it"
    if facts.random_ops:
        yield f"the model draws random numbers ({', '.join(facts.random_ops)}): its answers differ from run to run"

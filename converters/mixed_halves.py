"""Large float32 constants of a file stored as float16: half the bytes of what stays float, and no loss that counts.

The runtimes make float32 of them again, once, when the model is loaded, as they do for a model of mode float16.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from edged import magics

# Below this the op that makes float32 again, and its tensor, take more than is saved.
_LEAST_BYTES = 1024
# float16 keeps 11 bits, about 70 dB; constants that fall short of this (too small, too large) stay as they are.
_LEAST_SNR = 1e6
_FLOAT32, _FLOAT16 = 0, 1
# The version of DEQUANTIZE that takes float16.
_VERSION = 3
# The format asks for this of every constant's place in the file: https://ai.google.dev/edge/litert (schema.fbs)
_ALIGNMENT = 16


def halve(model: bytes) -> bytes:
    """Return the .tflite with its large float32 constants as float16. Runs where TensorFlow can be imported."""
    from tensorflow.lite.python import schema_py_generated as schema  # noqa: PLC0415  # child process only

    unpacked = schema.ModelT.InitFromPackedBuf(bytearray(model), 0)
    graph, made = unpacked.subgraphs[0], {}
    for buffer, tensors in sorted(_constants(unpacked).items()):
        half = _half(unpacked.buffers[buffer].data)
        if half is None:
            continue
        unpacked.buffers[buffer].data = np.frombuffer(half.tobytes(), np.uint8)
        for index in tensors:
            made[index] = len(graph.tensors)
            graph.tensors.append(_restored(schema, graph.tensors[index]))
            graph.tensors[index].type = _FLOAT16
    if not made:
        return model
    for op in graph.operators:
        if op.inputs is not None:
            op.inputs = np.array([made.get(int(i), int(i)) for i in op.inputs], np.int32)
    code = _code(schema, unpacked)
    graph.operators = [*(_dequantize(schema, code, half, full) for half, full in made.items()), *graph.operators]
    return _packed(unpacked)


def _constants(model: Any) -> dict[int, list[int]]:
    """Return buffer → tensors, where those are float32 constants that nothing but ops of the main graph reads."""
    main = model.subgraphs[0]
    bound = {int(i) for side in (main.inputs, main.outputs) for i in side}
    users: dict[int, list[int]] = defaultdict(list)
    spoiled = set()
    for number, graph in enumerate(model.subgraphs):
        for index, tensor in enumerate(graph.tensors):
            users[tensor.buffer].append(index)
            if number or index in bound or tensor.type != _FLOAT32 or tensor.isVariable:
                spoiled.add(tensor.buffer)
    return {buffer: tensors for buffer, tensors in users.items() if buffer not in spoiled}


def _half(data: Any) -> np.ndarray[Any, np.dtype[np.float16]] | None:
    if data is None or len(data) < _LEAST_BYTES:
        return None
    full = np.frombuffer(bytes(data), np.float32)
    with np.errstate(over="ignore"):  # what does not fit becomes Inf, and stays float32
        half = full.astype(np.float16)
    wide, error = full.astype(np.float64), full.astype(np.float64) - half
    good = np.isfinite(half).all() and np.square(wide).sum() >= _LEAST_SNR * np.square(error).sum()
    return half if good else None


def _restored(schema: Any, constant: Any) -> Any:
    tensor = schema.TensorT()
    tensor.name, tensor.type, tensor.buffer = constant.name + b"_float32", _FLOAT32, 0
    tensor.shape, tensor.shapeSignature, tensor.hasRank = constant.shape, constant.shapeSignature, constant.hasRank
    return tensor


def _code(schema: Any, model: Any) -> int:
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.DEQUANTIZE
    code.version = _VERSION
    model.operatorCodes.append(code)
    return len(model.operatorCodes) - 1


def _dequantize(schema: Any, code: int, half: int, full: int) -> Any:
    op = schema.OperatorT()
    op.opcodeIndex, op.inputs, op.outputs = code, np.array([half], np.int32), np.array([full], np.int32)
    op.builtinOptionsType, op.builtinOptions = schema.BuiltinOptions.DequantizeOptions, schema.DequantizeOptionsT()
    return op


def _packed(model: Any) -> bytes:
    import flatbuffers  # type: ignore[import-untyped]  # noqa: PLC0415  # comes with TensorFlow; has no types

    class Aligned(flatbuffers.Builder):  # type: ignore[misc]  # no types
        """Keeps constants where the format wants them; the generated code asks for one byte."""

        def StartVector(self, elemSize: int, numElems: int, alignment: int) -> Any:  # noqa: N802, N803  # its names
            constant = elemSize == 1 and numElems >= _ALIGNMENT
            return super().StartVector(elemSize, numElems, _ALIGNMENT if constant else alignment)

    builder = Aligned(1024)
    builder.Finish(model.Pack(builder), magics.TFLITE)
    return bytes(builder.Output())

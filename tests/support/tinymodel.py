"""Small TFLite models and bundles made without TensorFlow, with answers that numpy can check.

The flatbuffer is written through the schema classes inside the ai-edge-litert wheel.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edged import bundle
from edged.bundle import Golden, Manifest, TensorSpec
from edged.engines import tflite_runtime

WEIGHTS = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], np.float32)  # 2 outputs x 3 inputs
BIAS = np.array([0.125, -0.5], np.float32)


def require_runtime(name: str) -> tflite_runtime.Runtime:
    """Return the runtime; a missing one is a skip on a laptop. CI names what it installed in EDGED_TEST_RUNTIMES."""
    for runtime in tflite_runtime.RUNTIMES:
        if runtime.name == name and runtime.installed:
            return runtime
    wanted = os.environ.get("EDGED_TEST_RUNTIMES", "").split(",")
    if name in wanted:
        pytest.fail(f"{name} must be installed here")
    pytest.skip(f"{name} is not installed")


def dense_expected(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What the dense model computes: y = relu-free x W^T + b, in float32."""
    return (x @ WEIGHTS.T + BIAS).astype(np.float32)


def dense_model(rows: int = 1, *, is_open: bool = False) -> bytes:
    """float32 [rows, 3] -> float32 [rows, 2], signature serving_default: x -> y; is_open: of any number of rows."""
    schema = _schema()
    tensors = [
        _tensor("x", (rows, 3), schema.TensorType.FLOAT32, 0),
        _tensor("w", (2, 3), schema.TensorType.FLOAT32, 1),
        _tensor("b", (2,), schema.TensorType.FLOAT32, 2),
        _tensor("y", (rows, 2), schema.TensorType.FLOAT32, 0),
    ]
    if is_open:
        tensors[0].shapeSignature, tensors[3].shapeSignature = [-1, 3], [-1, 2]
    buffers = [b"", WEIGHTS.tobytes(), BIAS.tobytes()]
    op = schema.OperatorT()
    op.inputs, op.outputs = [0, 1, 2], [3]
    op.builtinOptionsType = schema.BuiltinOptions.FullyConnectedOptions
    op.builtinOptions = schema.FullyConnectedOptionsT()
    return _pack(tensors, buffers, [(schema.BuiltinOperator.FULLY_CONNECTED, op)], {"x": 0}, {"y": 3})


def mean_model(rows: int, *, is_open: bool = False) -> bytes:
    """float32 [rows, 3] -> the same shape: each row less the mean of all, so that no row is by itself.

    is_open: the file says that input and output have any number of rows, and the answer is the mean, which has one.
    """
    schema = _schema()
    tensors = [
        _tensor("x", (rows, 3), schema.TensorType.FLOAT32, 0),
        _tensor("axis", (1,), schema.TensorType.INT32, 1),
        _tensor("mean", (1, 3), schema.TensorType.FLOAT32, 0),
        _tensor("y", (rows, 3), schema.TensorType.FLOAT32, 0),
    ]
    mean, sub = schema.OperatorT(), schema.OperatorT()
    mean.inputs, mean.outputs = [0, 1], [2]
    mean.builtinOptionsType, mean.builtinOptions = schema.BuiltinOptions.ReducerOptions, schema.ReducerOptionsT()
    mean.builtinOptions.keepDims = True
    sub.inputs, sub.outputs = [0, 2], [3]
    sub.builtinOptionsType, sub.builtinOptions = schema.BuiltinOptions.SubOptions, schema.SubOptionsT()
    ops = [(schema.BuiltinOperator.MEAN, mean), (schema.BuiltinOperator.SUB, sub)]
    buffers = [b"", np.array([0], np.int32).tobytes()]
    if is_open:
        tensors[0].shapeSignature = tensors[2].shapeSignature = [-1, 3]
        return _pack(tensors[:3], buffers, ops[:1], {"x": 0}, {"y": 2})
    return _pack(tensors, buffers, ops, {"x": 0}, {"y": 3})


def matrix_model(rows: int, width: int) -> bytes:
    """float32 [rows, width] -> the same shape: a full matrix, so large that reading it is most of the work."""
    schema = _schema()
    weights = np.random.default_rng(1).normal(size=(width, width)).astype(np.float32) / np.float32(width)
    tensors = [
        _tensor("x", (rows, width), schema.TensorType.FLOAT32, 0),
        _tensor("w", (width, width), schema.TensorType.FLOAT32, 1),
        _tensor("y", (rows, width), schema.TensorType.FLOAT32, 0),
    ]
    op = schema.OperatorT()
    op.inputs, op.outputs = [0, 1, -1], [2]
    op.builtinOptionsType = schema.BuiltinOptions.FullyConnectedOptions
    op.builtinOptions = schema.FullyConnectedOptionsT()
    return _pack(tensors, [b"", weights.tobytes()], [(schema.BuiltinOperator.FULLY_CONNECTED, op)], {"x": 0}, {"y": 2})


def write_matrix_bundle(path: Path, rows: int, width: int) -> Path:
    """Write a bundle of the matrix model, without golden samples."""
    shape = (rows, width)
    bundle.write(
        path, _manifest("matrix", 1, (spec("x", shape),), (spec("y", shape),)), {bundle.MODEL: matrix_model(*shape)}
    )
    return path


OFFSET = np.array([0.5, -0.25, 1.0], np.float32)  # so that a step of zeros leaves its trace
FEATURES = np.array([[0.5, -1.0, 0.25], [1.0, 0.5, -0.5]], np.float32)  # 2 filters x 3 inputs
TIMES = np.array([[0.25, 0.5, 1.0], [-1.0, 0.125, 0.5]], np.float32)  # of each filter, the newest step last


def memory_expected(steps: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What the memory model answers to [n, 3] steps from its first state: a sum over each filter's last three."""
    seen = np.concatenate([np.zeros((2, 2), np.float32), (steps + OFFSET) @ FEATURES.T])
    return np.stack([(seen[at : at + 3] * TIMES.T).sum(axis=0) for at in range(len(steps))]).astype(np.float32)


def memory_model() -> bytes:
    """float32 [1, 3] -> float32 [1, 2]: ADD, and SVDF, which keeps its last steps in a variable tensor."""
    schema = _schema()
    tensors = [
        _tensor("x", (1, 3), schema.TensorType.FLOAT32, 0),
        _tensor("features", (2, 3), schema.TensorType.FLOAT32, 1),
        _tensor("times", (2, 3), schema.TensorType.FLOAT32, 2),
        _tensor("state", (1, 6), schema.TensorType.FLOAT32, 0),
        _tensor("y", (1, 2), schema.TensorType.FLOAT32, 0),
        _tensor("offset", (3,), schema.TensorType.FLOAT32, 3),
        _tensor("moved", (1, 3), schema.TensorType.FLOAT32, 0),
    ]
    tensors[3].isVariable = True
    add, op = schema.OperatorT(), schema.OperatorT()
    add.inputs, add.outputs = [0, 5], [6]
    add.builtinOptionsType, add.builtinOptions = schema.BuiltinOptions.AddOptions, schema.AddOptionsT()
    op.inputs, op.outputs = [6, 1, 2, -1, 3], [4]
    op.builtinOptionsType, op.builtinOptions = schema.BuiltinOptions.SVDFOptions, schema.SVDFOptionsT()
    op.builtinOptions.rank = 1
    buffers = [b"", FEATURES.tobytes(), TIMES.tobytes(), OFFSET.tobytes()]
    ops = [(schema.BuiltinOperator.ADD, add), (schema.BuiltinOperator.SVDF, op)]
    return _pack(tensors, buffers, ops, {"x": 0}, {"y": 4})


def write_memory_bundle(path: Path, *, wrong_golden: bool = False) -> Path:
    """Write a bundle of the memory model; its golden samples follow one another from the first state."""
    steps = np.array([[1, 2, 3], [0, -1, 0.5], [4, 0, 0], [0, 0, 0]], np.float32)
    x, y = steps[:, None], memory_expected(steps)[:, None] + np.float32(wrong_golden)
    golden = Golden({"x": x}, {"y": y}, {"y": y}, {"y": 1e-5})
    manifest = _manifest("memory", 1, (spec("x", (1, 3)),), (spec("y", (1, 2)),))
    manifest = dataclasses.replace(manifest, stateful=True)
    bundle.write(path, manifest, {bundle.MODEL: memory_model(), bundle.GOLDEN: golden.to_bytes()})
    return path


def write_rows_bundle(
    path: Path, rows: int, *, is_open: bool = False, model: bytes | None = None, width: int = 2
) -> Path:
    """Write a bundle of the dense model with a batch dimension, or of `model`, [rows, 3] to [rows, width]."""
    x = np.random.default_rng(3).normal(size=(4, rows, 3)).astype(np.float32)
    files = {bundle.MODEL: model or dense_model(rows, is_open=is_open)}
    if model is None:
        y = np.stack([dense_expected(sample) for sample in x])
        files[bundle.GOLDEN] = Golden({"x": x}, {"y": y}, {"y": y}, {"y": 1e-5}).to_bytes()
    manifest = _manifest("rows", 1, (spec("x", (rows, 3)),), (spec("y", (rows, width)),))
    bundle.write(path, manifest, files)
    return path


def difference_model() -> bytes:
    """Two float32 [1, 4] inputs; z_diff = b - a, m_first = a. Tensor order is not signature order."""
    schema = _schema()
    tensors = [
        _tensor("serving_b", (1, 4), schema.TensorType.FLOAT32, 0),
        _tensor("serving_a", (1, 4), schema.TensorType.FLOAT32, 0),
        _tensor("out_diff", (1, 4), schema.TensorType.FLOAT32, 0),
        _tensor("out_sum", (1, 4), schema.TensorType.FLOAT32, 0),
    ]
    sub, add = schema.OperatorT(), schema.OperatorT()
    sub.inputs, sub.outputs = [0, 1], [2]
    sub.builtinOptionsType, sub.builtinOptions = schema.BuiltinOptions.SubOptions, schema.SubOptionsT()
    add.inputs, add.outputs = [1, 0], [3]
    add.builtinOptionsType, add.builtinOptions = schema.BuiltinOptions.AddOptions, schema.AddOptionsT()
    ops = [(schema.BuiltinOperator.SUB, sub), (schema.BuiltinOperator.ADD, add)]
    return _pack(tensors, [b""], ops, {"a": 1, "b": 0}, {"z_diff": 2, "a_sum": 3})


def int8_model(scale: float = 0.05, zero_point: int = 3) -> bytes:
    """int8 [1, 8] -> int8 [1, 8]: MUL by 2 through ADD of the input to itself; output scale is twice the input's."""
    schema = _schema()
    tensors = [
        _tensor("x", (1, 8), schema.TensorType.INT8, 0, scale, zero_point),
        _tensor("y", (1, 8), schema.TensorType.INT8, 0, 2 * scale, zero_point),
    ]
    op = schema.OperatorT()
    op.inputs, op.outputs = [0, 0], [1]
    op.builtinOptionsType, op.builtinOptions = schema.BuiltinOptions.AddOptions, schema.AddOptionsT()
    return _pack(tensors, [b""], [(schema.BuiltinOperator.ADD, op)], {"x": 0}, {"y": 1})


def add_model(elements: int) -> bytes:
    """float32 [1, elements] -> the same shape: the input added to itself."""
    schema = _schema()
    tensors = [_tensor(name, (1, elements), schema.TensorType.FLOAT32, 0) for name in "xy"]
    op = schema.OperatorT()
    op.inputs, op.outputs = [0, 0], [1]
    op.builtinOptionsType, op.builtinOptions = schema.BuiltinOptions.AddOptions, schema.AddOptionsT()
    return _pack(tensors, [b""], [(schema.BuiltinOperator.ADD, op)], {"x": 0}, {"y": 1})


def write_add_bundle(path: Path, elements: int) -> Path:
    """Write a bundle of the adding model, for payloads of any size."""
    specs = (spec("x", (1, elements)),), (spec("y", (1, elements)),)
    bundle.write(path, _manifest("add", 1, *specs), {bundle.MODEL: add_model(elements)})
    return path


def wide_model(elements: int) -> bytes:
    """float32 [1] -> float32 [1, elements]: the input again and again, a large answer to a small question."""
    schema = _schema()
    tensors = [
        _tensor("x", (1,), schema.TensorType.FLOAT32, 0),
        _tensor("shape", (2,), schema.TensorType.INT32, 1),
        _tensor("y", (1, elements), schema.TensorType.FLOAT32, 0),
    ]
    op = schema.OperatorT()
    op.inputs, op.outputs = [0, 1], [2]
    buffers = [b"", np.array((1, elements), np.int32).tobytes()]
    return _pack(tensors, buffers, [(schema.BuiltinOperator.BROADCAST_TO, op)], {"x": 0}, {"y": 2}, versions={0: 2})


def write_wide_bundle(path: Path, elements: int) -> Path:
    """Write a bundle of the wide model."""
    specs = (spec("x", (1,)),), (spec("y", (1, elements)),)
    bundle.write(path, _manifest("wide", 1, *specs), {bundle.MODEL: wide_model(elements)})
    return path


def slow_model(size: int, repeats: int) -> bytes:
    """float32 [1] -> float32 [1]: broadcast to [size, size], `repeats` matrix products in a row, the largest element.

    Takes 2 * size^3 * repeats floating-point operations, for tests that need an invoke which does not return soon.
    """
    schema = _schema()
    square = (size, size)
    tensors = [
        _tensor("x", (1,), schema.TensorType.FLOAT32, 0),
        _tensor("shape", (2,), schema.TensorType.INT32, 1),
        _tensor("axes", (2,), schema.TensorType.INT32, 2),
        *(_tensor(f"m{n}", square, schema.TensorType.FLOAT32, 0) for n in range(repeats + 1)),
        _tensor("y", (1, 1), schema.TensorType.FLOAT32, 0),
    ]
    buffers = [b"", np.array(square, np.int32).tobytes(), np.array([0, 1], np.int32).tobytes()]
    broadcast, largest = schema.OperatorT(), schema.OperatorT()
    broadcast.inputs, broadcast.outputs = [0, 1], [3]
    largest.inputs, largest.outputs = [3 + repeats, 2], [4 + repeats]
    largest.builtinOptionsType, largest.builtinOptions = schema.BuiltinOptions.ReducerOptions, schema.ReducerOptionsT()
    largest.builtinOptions.keepDims = True
    ops = [(schema.BuiltinOperator.BROADCAST_TO, broadcast)]
    for n in range(repeats):
        product = schema.OperatorT()
        product.inputs, product.outputs = [3 + n, 3 + n], [4 + n]
        product.builtinOptionsType = schema.BuiltinOptions.BatchMatMulOptions
        product.builtinOptions = schema.BatchMatMulOptionsT()
        ops.append((schema.BuiltinOperator.BATCH_MATMUL, product))
    ops.append((schema.BuiltinOperator.REDUCE_MAX, largest))
    return _pack(tensors, buffers, ops, {"x": 0}, {"y": 4 + repeats}, versions={0: 2})


def counting_model() -> bytes:
    """float32 [1, 4] -> int32 [2]: how many elements are not zero, and 2; float32 [1, 4]: the input doubled.

    WHERE makes a tensor whose size is known only when it runs, so the runtime moves its tensors in the middle of it.
    """
    schema = _schema()
    tensors = [
        _tensor("x", (1, 4), schema.TensorType.FLOAT32, 0),
        _tensor("where", (-1, 2), schema.TensorType.INT64, 0),
        _tensor("count", (2,), schema.TensorType.INT32, 0),
        _tensor("double", (1, 4), schema.TensorType.FLOAT32, 0),
    ]
    tensors[1].shape, tensors[1].shapeSignature = [1, 2], [-1, 2]
    where, shape, add = schema.OperatorT(), schema.OperatorT(), schema.OperatorT()
    where.inputs, where.outputs = [0], [1]
    shape.inputs, shape.outputs = [1], [2]
    shape.builtinOptionsType, shape.builtinOptions = schema.BuiltinOptions.ShapeOptions, schema.ShapeOptionsT()
    shape.builtinOptions.outType = schema.TensorType.INT32
    add.inputs, add.outputs = [0, 0], [3]
    add.builtinOptionsType, add.builtinOptions = schema.BuiltinOptions.AddOptions, schema.AddOptionsT()
    kinds = schema.BuiltinOperator
    ops = [(kinds.WHERE, where), (kinds.SHAPE, shape), (kinds.ADD, add)]
    return _pack(tensors, [b""], ops, {"x": 0}, {"count": 2, "double": 3})


def write_counting_bundle(path: Path) -> Path:
    """Write a bundle of the counting model."""
    outs = (spec("count", (2,), "int32"), spec("double", (1, 4)))
    bundle.write(path, _manifest("counting", 1, (spec("x", (1, 4)),), outs), {bundle.MODEL: counting_model()})
    return path


def without_signatures(model: bytes) -> bytes:
    """Return the same model as some compilers leave it: no signature, and the tensors' names are their own."""
    import flatbuffers  # comes with ai-edge-litert, like the schema

    unpacked = _schema().ModelT.InitFromObj(_schema().Model.GetRootAs(model))
    unpacked.signatureDefs = []
    for number, tensor in enumerate(unpacked.subgraphs[0].tensors):
        tensor.name = f"tensor_{number}"
    builder = flatbuffers.Builder(1024)
    builder.Finish(unpacked.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def write_slow_bundle(path: Path, size: int = 1400, repeats: int = 12) -> Path:
    """Write a bundle of the slow model; it has no golden samples, so that opening it stays short."""
    manifest = _manifest("slow", 1, (spec("x", (1,)),), (spec("y", (1, 1)),))
    bundle.write(path, manifest, {bundle.MODEL: slow_model(size, repeats)})
    return path


def spec(name: str, shape: tuple[int, ...], dtype: str = "float32", **more: Any) -> TensorSpec:
    """Shorthand for a TensorSpec."""
    return TensorSpec(name=name, dtype=dtype, shape=shape, **more)


def write_dense_bundle(path: Path, *, name: str = "dense", version: int = 1, wrong_golden: bool = False) -> Path:
    """Write a bundle of the dense model with golden samples computed by numpy."""
    x = np.array([[[1, 2, 3]], [[-1, 0.5, 0.25]], [[0, 0, 0]]], np.float32)
    y = np.stack([dense_expected(sample) for sample in x]) + np.float32(1.0 if wrong_golden else 0.0)
    golden = Golden({"x": x}, {"y": y}, {"y": y}, {"y": 1e-5})
    manifest = _manifest(name, version, (spec("x", (1, 3)),), (spec("y", (1, 2)),))
    bundle.write(path, manifest, {bundle.MODEL: dense_model(), bundle.GOLDEN: golden.to_bytes()})
    return path


def write_int8_bundle(path: Path, *, io: str = "float", name: str = "int8") -> Path:
    """Write a bundle of the int8 model; `io` is what the client sends."""
    ins = (spec("x", (1, 8), "int8", scale=0.05, zero_point=3, io=io),)
    outs = (spec("y", (1, 8), "int8", scale=0.1, zero_point=3, io=io),)
    manifest = dataclasses.replace(_manifest(name, 1, ins, outs), quantize="int8")
    bundle.write(path, manifest, {bundle.MODEL: int8_model()})
    return path


def write_difference_bundle(path: Path) -> Path:
    """Write a bundle of the two-input model; declared order a, b and z_diff, a_sum."""
    ins = (spec("a", (1, 4)), spec("b", (1, 4)))
    outs = (spec("z_diff", (1, 4)), spec("a_sum", (1, 4)))
    bundle.write(path, _manifest("difference", 1, ins, outs), {bundle.MODEL: difference_model()})
    return path


def _manifest(name: str, version: int, ins: tuple[TensorSpec, ...], outs: tuple[TensorSpec, ...]) -> Manifest:
    return Manifest(
        format=1, name=name, version=version, files={}, signature="serving_default", inputs=ins, outputs=outs
    )


def _schema() -> Any:
    return pytest.importorskip("ai_edge_litert.schema_py_generated")


def _tensor(name: str, shape: tuple[int, ...], kind: int, buffer: int, scale: float = 0.0, zero: int = 0) -> Any:
    schema = _schema()
    tensor = schema.TensorT()
    tensor.name, tensor.shape, tensor.type, tensor.buffer = name, list(shape), kind, buffer
    if scale:
        tensor.quantization = schema.QuantizationParametersT()
        tensor.quantization.scale, tensor.quantization.zeroPoint = [scale], [zero]
    return tensor


def _pack(
    tensors: list[Any],
    buffers: list[bytes],
    ops: list[tuple[int, Any]],
    ins: dict[str, int],
    outs: dict[str, int],
    versions: dict[int, int] | None = None,
) -> bytes:
    import flatbuffers  # comes with ai-edge-litert, like the schema

    schema = _schema()
    model = schema.ModelT()
    model.version, model.description = 3, "edged test model"
    model.operatorCodes = []
    graph = schema.SubGraphT()
    graph.name, graph.tensors, graph.operators = "main", tensors, []
    for index, (builtin, op) in enumerate(ops):
        code = schema.OperatorCodeT()
        code.builtinCode, code.deprecatedBuiltinCode = builtin, min(builtin, 127)
        code.version = (versions or {}).get(index, 1)
        model.operatorCodes.append(code)
        op.opcodeIndex = index
        graph.operators.append(op)
    graph.inputs, graph.outputs = sorted(ins.values()), sorted(outs.values())
    model.subgraphs, model.buffers = [graph], []
    for data in buffers:
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(data, np.uint8) if data else None
        model.buffers.append(buffer)
    model.signatureDefs = [_signature(schema, ins, outs)]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _signature(schema: Any, ins: dict[str, int], outs: dict[str, int]) -> Any:
    signature = schema.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = "serving_default", 0
    signature.inputs = [_binding(schema, *item) for item in ins.items()]
    signature.outputs = [_binding(schema, *item) for item in outs.items()]
    return signature


def _binding(schema: Any, name: str, index: int) -> Any:
    binding = schema.TensorMapT()
    binding.name, binding.tensorIndex = name, index
    return binding

""".tflite files of every kind, and what a second reader finds in them: the format's own generated classes.

`written` packs one file through those classes, with the fields that the converter seldom writes.
`converted` makes real ones with TensorFlow, in a child process, once in a session:

cnn_none, cnn_float16, cnn_dynamic, cnn_int8, cnn_int16x8   one net: conv relu6, depthwise relu, pool, dense 64, dense 4
cnn_offset   cnn_none with its constants behind the flatbuffer
cnn_open     cnn_none with a batch of any size
gru          a GRU that is not unrolled: WHILE with two more graphs
count        keeps a running sum in a variable
flex, custom matrix inverse, which TFLite lacks, as TensorFlow's op and as a custom op
clamped      float16 with a factor of 1e5
masked       float16 with a mask of -1e9 before a softmax
two          signatures big and count, of two graphs
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import require

from edged.engines.tflite_file import FileSignature, Graph, ModelFile, Op, Tensor

_ROOT = Path(__file__).resolve().parent.parent.parent

_MAKE = """
import sys, numpy as np, tensorflow as tf, keras
out = sys.argv[1] + "/"
keras.utils.set_random_seed(0)
L, lite = keras.layers, tf.lite
HALF = dict(optimizations=[lite.Optimize.DEFAULT])

def spec(shape, name):
    return tf.TensorSpec(shape, tf.float32, name=name)

def write(name, converter, target=(), **options):
    for key, value in options.items():
        setattr(converter, key, value)
    for key, value in dict(target).items():
        setattr(converter.target_spec, key, value)
    open(out + name + ".tflite", "wb").write(converter.convert())

def samples():
    return ([np.random.default_rng(i).random((1, 16, 16, 3), np.float32)] for i in range(10))

net = keras.Sequential([
    keras.Input((16, 16, 3)), L.Conv2D(8, 3, activation="relu6"), L.DepthwiseConv2D(3, activation="relu"),
    L.AveragePooling2D(2), L.Flatten(), L.Dense(64, activation="relu"), L.Dense(4, activation="softmax"),
])
for name, batch in (("one", 1), ("any", None)):
    net.export(out + name, verbose=False, input_signature=[spec((batch, 16, 16, 3), "x")])
def cnn(name="one"):
    return lite.TFLiteConverter.from_saved_model(out + name)
integers = dict(HALF, representative_dataset=samples)
ops = lite.OpsSet
wide = ops.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
write("cnn_none", cnn())
write("cnn_open", cnn("any"))
write("cnn_offset", cnn(), _experimental_use_buffer_offset=True)
write("cnn_float16", cnn(), {"supported_types": [tf.float16]}, **HALF)
write("cnn_dynamic", cnn(), **HALF)
write("cnn_int8", cnn(), {"supported_ops": [ops.TFLITE_BUILTINS_INT8]}, **integers,
      inference_input_type=tf.int8, inference_output_type=tf.int8)
write("cnn_int16x8", cnn(), {"supported_ops": [wide]}, **integers,
      inference_input_type=tf.int16, inference_output_type=tf.int16)
keras.Sequential([keras.Input((10, 6)), L.GRU(8), L.Dense(4)]).export(
    out + "rnn", verbose=False, input_signature=[spec((1, 10, 6), "x")])
write("gru", cnn("rnn"))

class Models(tf.Module):
    def __init__(self):
        self.total = tf.Variable(tf.zeros([1, 3]))
        self.weights = tf.constant(np.full((3, 3), 1e-3, np.float32))
    @tf.function(input_signature=[spec([1, 3], "v")])
    def count(self, v):
        self.total.assign_add(v)
        return {"sum": self.total * 1.0}
    @tf.function(input_signature=[spec([1, 3, 3], "v")])
    def inverse(self, v):
        return {"o": tf.linalg.inv(v)}
    @tf.function(input_signature=[spec([1, 3], "v")])
    def big(self, v):
        return {"o": v * 1e5 + v @ self.weights}
    @tf.function(input_signature=[spec([1, 3], "v")])
    def masked(self, v):
        return {"o": tf.nn.softmax(v + [[0.0, -1e9, 0.0]]) @ self.weights}
m = Models()
signatures = {"count": m.count, "inverse": m.inverse, "big": m.big, "masked": m.masked}
tf.saved_model.save(m, out + "several", signatures=signatures)
def several(*keys):
    return lite.TFLiteConverter.from_saved_model(out + "several", signature_keys=list(keys))
write("count", several("count"), experimental_enable_resource_variables=True)
write("two", several("big", "count"), experimental_enable_resource_variables=True)
write("flex", several("inverse"), {"supported_ops": [ops.TFLITE_BUILTINS, ops.SELECT_TF_OPS]})
write("custom", several("inverse"), allow_custom_ops=True)
write("clamped", several("big"), {"supported_types": [tf.float16]}, **HALF)
write("masked", several("masked"), {"supported_types": [tf.float16]}, **HALF)
"""


@functools.cache
def _made() -> Path:
    require.packages("tensorflow")
    out = Path(tempfile.mkdtemp(prefix="edged-tflitefiles-"))
    atexit.register(shutil.rmtree, out, ignore_errors=True)
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": str(_ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", _MAKE, str(out)],
        env={**os.environ, **quiet}, capture_output=True, text=True, check=False, timeout=150,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return out


def converted(name: str) -> bytes:
    """Return the bytes of a converted file by its name in the list above."""
    return (_made() / f"{name}.tflite").read_bytes()


def schema() -> Any:
    """The generated classes of the file format, which come in the ai-edge-litert wheel."""
    return pytest.importorskip("ai_edge_litert.schema_py_generated")


def packed(**fields: Any) -> bytes:
    """Pack a model of schema version 3; fields: those of ModelT, in place of none."""
    import flatbuffers  # comes with ai-edge-litert, like the schema

    model = schema().ModelT()
    model.version = 3
    for name, value in fields.items():
        setattr(model, name, value)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def part(kind: str, **fields: Any) -> Any:
    """Return one table of the format, e.g. `part("Tensor", name="x")`."""
    made = getattr(schema(), f"{kind}T")()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def buffer(data: bytes = b"") -> Any:
    """Return a buffer that holds its bytes itself."""
    return part("Buffer", data=np.frombuffer(data, np.uint8) if data else None)


def code(builtin: int, **more: Any) -> Any:
    """Return an operator code as newer converters write it."""
    return part("OperatorCode", builtinCode=builtin, deprecatedBuiltinCode=min(builtin, 127), **more)


def graph(tensors: list[Any], ops: list[Any], inputs: list[int], outputs: list[int], name: str = "main") -> Any:
    """Return a graph."""
    return part("SubGraph", tensors=tensors, operators=ops, inputs=inputs, outputs=outputs, name=name)


def written() -> bytes:
    """Return a file with custom and unknown ops, per-channel scales, state, open shapes, two graphs and metadata."""
    types, builtin, options = schema().TensorType, schema().BuiltinOperator, schema().BuiltinOptions
    scales = part("QuantizationParameters", scale=[0.5, 0.25], zeroPoint=[0, 0], quantizedDimension=3)
    one = part("QuantizationParameters", scale=[0.125], zeroPoint=[-7])
    tensors = [
        part("Tensor", name="in", type=types.FLOAT32, shape=[1, 4], shapeSignature=[-1, 4], buffer=0),
        part("Tensor", name="w", type=types.INT8, shape=[1, 1, 1, 2], buffer=1, quantization=scales),
        part("Tensor", name="state", type=types.INT16, shape=[2], isVariable=True, quantization=one),
        part("Tensor", name="scalar", type=types.FLOAT16, buffer=2),
        part("Tensor", name="new", type=len(_names(types)) + 17, shape=[3]),
        part("Tensor", name="nibbles", type=types.INT4, shape=[3], buffer=3),
    ]
    fused = part("Conv2DOptions", fusedActivationFunction=schema().ActivationFunctionType.RELU6)
    ops = [
        part("Operator", opcodeIndex=0, inputs=[0, 1, -1], outputs=[2],
             builtinOptionsType=options.Conv2DOptions, builtinOptions=fused),
        part("Operator", opcodeIndex=1, inputs=[2], outputs=[4]),
        part("Operator", opcodeIndex=2, inputs=[4], outputs=[3]),
        part("Operator", opcodeIndex=3, inputs=None, outputs=None),
    ]  # fmt: skip
    body = graph([part("Tensor", name="b", type=types.BOOL, shape=[])], [], [0], [0], name="body")
    return packed(
        operatorCodes=[
            code(builtin.CONV_2D, version=5),
            code(builtin.CUSTOM, customCode="FlexErf"),
            code(builtin.CUSTOM, customCode="MyOp", version=3),
            code(len(_names(builtin)) + 7),
            code(builtin.SUB, version=9),  # no graph uses it
        ],
        subgraphs=[graph(tensors, ops, [0], [3]), body],
        buffers=[buffer(), buffer(b"\x01\xff"), buffer(b"\x00\x3c"), buffer(b"\x21\x03"), buffer(b"2.5.0\0\0\0")],
        metadata=[part("Metadata", name="other", buffer=1), part("Metadata", name="min_runtime_version", buffer=4)],
        signatureDefs=[signature("serve", {"x": 0}, {"y": 3, "s": 2}), signature("body", {"b": 0}, {"c": 0}, 1)],
    )


def with_version(model: bytes, version: int) -> bytes:
    """Return the same file with another version of its first operator."""
    loaded = schema().ModelT.InitFromPackedBuf(bytearray(model), 0)
    loaded.operatorCodes[0].version = version
    return packed(**vars(loaded))


def signature(key: str, inputs: dict[str, int], outputs: dict[str, int], number: int = 0) -> Any:
    """Return a signature of graph `number`."""

    def bound(names: dict[str, int]) -> list[Any]:
        return [part("TensorMap", name=name, tensorIndex=index) for name, index in names.items()]

    return part("SignatureDef", signatureKey=key, inputs=bound(inputs), outputs=bound(outputs), subgraphIndex=number)


def second_reading(model: bytes) -> ModelFile:
    """Read a file through the generated classes alone; what our reader must find, field by field."""
    loaded = schema().ModelT.InitFromPackedBuf(bytearray(model), 0)
    data = [_data(model, one) for one in loaded.buffers]
    notes = {_text(one.name): data[one.buffer] for one in loaded.metadata or []}
    codes = [_code(one) for one in loaded.operatorCodes]
    return ModelFile(
        graphs=tuple(_graph(one, codes, data) for one in loaded.subgraphs),
        signatures=tuple(
            FileSignature(_text(s.signatureKey), _bound(s.inputs), _bound(s.outputs), s.subgraphIndex)
            for s in loaded.signatureDefs or []
        ),
        min_runtime_version=notes.get("min_runtime_version", b"").decode().strip("\0"),
        versions={name: max(v for n, v, _ in codes if n == name) for name, _, _ in sorted(codes)},
    )


def _data(model: bytes, one: Any) -> bytes:
    return model[one.offset : one.offset + one.size] if one.offset > 1 else bytes(_list(one.data))


def _code(one: Any) -> tuple[str, int, bool]:
    number = max(one.builtinCode, one.deprecatedBuiltinCode)
    custom = number == schema().BuiltinOperator.CUSTOM
    name = _text(one.customCode) if custom else _names(schema().BuiltinOperator).get(number, f"OP_{number}")
    return name, one.version, custom


def _graph(one: Any, codes: list[tuple[str, int, bool]], data: list[bytes]) -> Graph:
    return Graph(
        _text(one.name),
        tuple(_tensor(t, data) for t in one.tensors),
        tuple(_op(op, *codes[op.opcodeIndex]) for op in one.operators or []),
        _list(one.inputs),
        _list(one.outputs),
    )


def _tensor(one: Any, data: list[bytes]) -> Tensor:
    q = one.quantization or schema().QuantizationParametersT()
    dtype = _names(schema().TensorType).get(one.type, f"type_{one.type}").lower()
    shape = _list(one.shape)
    return Tensor(
        _text(one.name), dtype, shape, _list(one.shapeSignature) or shape, _list(q.scale), _list(q.zeroPoint),
        q.quantizedDimension, data[one.buffer], bool(one.isVariable),
    )  # fmt: skip


def _op(one: Any, name: str, version: int, custom: bool) -> Op:
    fused = getattr(one.builtinOptions, "fusedActivationFunction", 0)
    activation = _names(schema().ActivationFunctionType)[fused] if fused else ""
    once = getattr(one.builtinOptions, "initSubgraphIndex", -1)
    return Op(name, version, _list(one.inputs), _list(one.outputs), custom, activation, once)


def _bound(pairs: Any) -> dict[str, int]:
    return {_text(one.name): one.tensorIndex for one in pairs}


def _list(values: Any) -> tuple[Any, ...]:
    return () if values is None else tuple(np.asarray(values).tolist())


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""


def _names(enum: Any) -> dict[int, str]:
    return {value: name for name, value in vars(enum).items() if isinstance(value, int)}

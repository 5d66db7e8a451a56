"""The models of the benchmarks: a tiny one, MobileNetV2 int8, and large inputs without arithmetic."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import report
from support import tinymodel

from edged import bundle
from edged.bundle import Bundle, Manifest
from edged.engines import tflite_runtime

CONVERT = """
import sys, tempfile
import numpy as np, tensorflow as tf
model = tf.keras.applications.MobileNetV2(weights=None)
spec = tf.TensorSpec((1, 224, 224, 3), tf.float32, name="x")
random = np.random.default_rng(1)
with tempfile.TemporaryDirectory() as folder:
    model.export(folder, input_signature=[spec])
    converter = tf.lite.TFLiteConverter.from_saved_model(folder)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([random.random((1, 224, 224, 3), np.float32)] for _ in range(8))
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    with open(sys.argv[1], "wb") as out:
        out.write(converter.convert())
"""


def mobilenet(folder: Path) -> Bundle | None:
    """MobileNetV2 int8 with random weights, converted once and kept in the temporary directory; None without
    TensorFlow."""
    kept = Path(tempfile.gettempdir()) / f"edged-bench-mobilenetv2-{os.getuid()}.tflite"
    if not kept.exists():
        part = kept.with_suffix(".part")
        done = subprocess.run([sys.executable, "-c", CONVERT, str(part)], capture_output=True, check=False)
        if done.returncode:
            return None
        part.rename(kept)
    model = kept.read_bytes()
    signature = tflite_runtime.installed()[0].module().Interpreter(model_content=model).get_signature_runner()
    specs = [
        [tinymodel.spec(n, tuple(map(int, d["shape"])), np.dtype(d["dtype"]).name) for n, d in details.items()]
        for details in (signature.get_input_details(), signature.get_output_details())
    ]
    manifest = Manifest(1, "mobilenetv2", 1, {}, "serving_default", tuple(specs[0]), tuple(specs[1]))
    bundle.write(folder / "mobilenetv2", manifest, {bundle.MODEL: model})
    return bundle.read(folder / "mobilenetv2")


def needed(folder: Path) -> Bundle:
    """MobileNetV2 as above; ends the benchmark with one line without TensorFlow."""
    found = mobilenet(folder)
    if found is None:
        report.lacking("MobileNetV2 is made by TensorFlow, which is not here (pip install 'edged[convert]')")
    return found


def payload(loaded: Bundle, path: Path) -> Path:
    """Write a raw payload for the model's one input."""
    (spec,) = loaded.manifest.inputs
    array = np.random.default_rng(0).random(spec.shape)
    path.write_bytes((array * 255 - 128 if spec.dtype == "int8" else array).astype(spec.wire_dtype).tobytes())
    return path


def write_slice_bundle(path: Path, elements: int) -> Bundle:
    """float32 [1, elements] -> float32 [1, 16], the first values: what a payload costs without arithmetic."""
    schema = tinymodel._schema()
    op = schema.OperatorT()
    op.inputs, op.outputs = [0, 1, 2], [3]
    op.builtinOptionsType, op.builtinOptions = schema.BuiltinOptions.SliceOptions, schema.SliceOptionsT()
    tensors = [
        tinymodel._tensor("x", (1, elements), schema.TensorType.FLOAT32, 0),
        tinymodel._tensor("begin", (2,), schema.TensorType.INT32, 1),
        tinymodel._tensor("size", (2,), schema.TensorType.INT32, 2),
        tinymodel._tensor("y", (1, 16), schema.TensorType.FLOAT32, 0),
    ]
    constants = [b"", np.array([0, 0], np.int32).tobytes(), np.array([1, 16], np.int32).tobytes()]
    model = tinymodel._pack(tensors, constants, [(schema.BuiltinOperator.SLICE, op)], {"x": 0}, {"y": 3})
    specs = (tinymodel.spec("x", (1, elements)),), (tinymodel.spec("y", (1, 16)),)
    bundle.write(path, Manifest(1, "slice", 1, {}, "serving_default", *specs), {bundle.MODEL: model})
    return bundle.read(path)

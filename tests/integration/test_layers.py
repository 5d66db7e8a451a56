"""Per-layer errors on real files: the layer that is ruined is the one that is named, by the figures of numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import tflitefiles, tinymodel

from converters import layers
from converters.report import LayerError
from edged.engines import tflite_file
from edged.limits import Limits

pytestmark = pytest.mark.tf

X = np.random.default_rng(1).random((4, 1, 16, 16, 3), np.float32)


def ruined(model: bytes) -> bytes:
    """Return the file with the weights of its last dense layer turned upside down."""
    schema = tflitefiles.schema()
    unpacked = schema.ModelT.InitFromPackedBuf(bytearray(model), 0)
    graph = unpacked.subgraphs[0]
    dense = [
        op
        for op in graph.operators
        if unpacked.operatorCodes[op.opcodeIndex].builtinCode == schema.BuiltinOperator.FULLY_CONNECTED
    ]
    buffer = unpacked.buffers[graph.tensors[dense[-1].inputs[1]].buffer]
    buffer.data = np.frombuffer(bytes(buffer.data), np.int8)[::-1].view(np.uint8).copy()
    import flatbuffers

    builder = flatbuffers.Builder(1024)
    builder.Finish(unpacked.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def compared(folder: Path, model: bytes) -> tuple[LayerError, ...]:
    (folder / "float.tflite").write_bytes(tflitefiles.converted("cnn_none"))
    (folder / "other.tflite").write_bytes(model)
    name = next(iter(tflite_file.read(model).signatures[0].inputs))
    files = (folder / "float.tflite", folder / "other.tflite")
    return layers.compare(*files, {name: X}, folder / "layers", [].append, Limits())


def every_tensor(model: bytes) -> list[dict[str, np.ndarray[Any, Any]]]:
    """Every tensor's real values, sample by sample, of a bare Interpreter."""
    module = tinymodel.require_runtime("ai-edge-litert").module()
    interpreter = module.Interpreter(
        model_content=model,
        experimental_op_resolver_type=module.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    interpreter.allocate_tensors()
    (source,) = interpreter.get_input_details()
    found = []
    for x in X:
        scale, zero = source["quantization"]
        interpreter.set_tensor(
            source["index"], np.clip(np.rint(x / scale) + zero, -128, 127).astype(np.int8) if scale else x
        )
        interpreter.invoke()
        found.append({d["name"]: _real(interpreter, d) for d in interpreter.get_tensor_details()})
    return found


def _real(interpreter: Any, detail: dict[str, Any]) -> np.ndarray[Any, Any]:
    scale, zero = detail["quantization"]
    value = interpreter.get_tensor(detail["index"]).astype(np.float64)
    return (value - zero) * scale if scale else value


def test_figures_are_those_of_the_tensors(tmp_path: Path) -> None:
    """SNR and relative error of every op equal those of all tensors read from two bare interpreters."""
    int8 = tflitefiles.converted("cnn_int8")
    found = compared(tmp_path, int8)
    assert {layer.op for layer in found} >= {"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "SOFTMAX"}
    real, whole = every_tensor(tflitefiles.converted("cnn_none")), every_tensor(int8)
    for layer in found:
        a, b = (np.stack([sample[layer.tensor] for sample in side]) for side in (real, whole))
        snr = 10 * np.log10(np.square(a).sum() / np.square(b - a).sum())
        assert layer.snr_db == pytest.approx(snr, abs=0.01)
        assert layer.relative == pytest.approx(np.abs(b - a).max() / np.abs(a).max(), rel=1e-3)
    assert [layer.snr_db for layer in found] == sorted(layer.snr_db for layer in found)
    outputs = tflite_file.read(int8).signatures[0].outputs
    assert {layer.output for layer in found} == {"", *outputs}
    assert [layer.op for layer in found if layer.output] == ["SOFTMAX"]


def test_the_ruined_layer_is_where_the_error_jumps(tmp_path: Path) -> None:
    """Worst first, and all layers before the ruined one are as good as in the sound file."""
    int8 = tflitefiles.converted("cnn_int8")
    (tmp_path / "sound").mkdir()
    sound = {layer.index: layer for layer in compared(tmp_path / "sound", int8)}
    found = {layer.index: layer for layer in compared(tmp_path, ruined(int8))}
    culprit = max(layer.index for layer in sound.values() if layer.op == "FULLY_CONNECTED")
    assert all(found[index] == sound[index] for index in found if index < culprit)
    assert found[culprit].snr_db < 5 < sound[culprit].snr_db - 10


def test_a_file_that_kills_the_runtime_costs_nothing_but_the_table(tmp_path: Path) -> None:
    """It explains a verdict that stands without it."""
    int8 = tflitefiles.converted("cnn_int8")
    name = next(iter(tflite_file.read(int8).signatures[0].inputs))
    (tmp_path / "float.tflite").write_bytes(tflitefiles.converted("cnn_none")[:400])
    (tmp_path / "other.tflite").write_bytes(int8)
    files = (tmp_path / "float.tflite", tmp_path / "other.tflite")
    assert layers.compare(*files, {name: X}, tmp_path / "layers", [].append, Limits()) == ()

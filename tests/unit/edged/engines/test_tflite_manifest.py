"""Whether a file is what a manifest says: hand-made files, each with one thing otherwise."""

from __future__ import annotations

import dataclasses

import pytest
from support import tinymodel

from edged.engines import tflite_flatbuffer, tflite_manifest
from edged.engines.tflite_file import FileSignature, Graph, ModelFile, Op, Tensor
from edged.engines.tflite_flatbuffer import TooLargeError
from edged.manifest import Manifest, TensorSpec


def file(*, output: Tensor, signed: bool = True) -> ModelFile:
    """x → RELU → output, with a signature or without."""
    tensors = (Tensor("x", "float32", (1, 4), (1, 4)), output)
    signatures = (FileSignature("serving_default", {"x": 0}, {"y": 1}, 0),) if signed else ()
    return ModelFile((Graph("main", tensors, (Op("RELU", 1, (0,), (1,)),), (0,), (1,)),), signatures, "", {"RELU": 1})


def manifest(shape: tuple[int, ...]) -> Manifest:
    """One float input of four, one float output."""
    ins, outs = (TensorSpec("x", "float32", (1, 4)),), (TensorSpec("y", "float32", shape),)
    return Manifest(1, "m", 1, {}, "serving_default", ins, outs)


def found(said: Manifest, model: ModelFile) -> list[str]:
    return list(tflite_manifest.of_file(said, model))


def test_an_open_dimension_is_what_the_manifest_says() -> None:
    """How many boxes NON_MAX_SUPPRESSION keeps is not in the file, which stores a 1; what is not open is."""
    opened = file(output=Tensor("y", "float32", (1, 4), (-1, 4)))
    assert found(manifest((3, 4)), opened) == []
    assert found(manifest((3, 5)), opened) == ["output 'y' is float32 3x4, the manifest says float32 3x5"]
    assert found(manifest((4,)), opened) == ["output 'y' is float32 1x4, the manifest says float32 4"]


def test_a_file_without_signatures_is_bound_by_its_tensors() -> None:
    """As the engine binds it."""
    assert found(manifest((1, 4)), file(output=Tensor("y", "float32", (1, 4), (1, 4)), signed=False)) == []
    other = found(manifest((1, 4)), file(output=Tensor("z", "float32", (1, 4), (1, 4)), signed=False))
    assert other == ["model.tflite has the outputs z, the manifest y"]


def test_a_scale_is_a_float32() -> None:
    """0.05 in a manifest is the float32 next to it in the file; a scale that differs in the last bit is another one."""
    scaled = file(output=Tensor("y", "float32", (1, 4), (1, 4), (0.05000000074505806,), (3,)))
    outputs = (TensorSpec("y", "float32", (1, 4), 0.05, 3),)
    assert found(dataclasses.replace(manifest((1, 4)), outputs=outputs), scaled) == []
    (told,) = found(manifest((1, 4)), scaled)
    assert told == "output 'y' is float32 1x4, scale 0.05, zero point 3, the manifest says float32 1x4"
    outputs = (TensorSpec("y", "float32", (1, 4), 0.05000001, 3),)
    assert len(found(dataclasses.replace(manifest((1, 4)), outputs=outputs), scaled)) == 1


def test_a_model_that_is_too_large_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of it, so nothing contradicts; what is damaged does."""
    model = tinymodel.dense_model()
    (told,) = tflite_manifest.contradictions(manifest((1, 4)), model[:100])
    assert told.startswith("model.tflite is cut short or damaged")
    monkeypatch.setattr(tflite_flatbuffer, "_BUDGET_CEILING", 500)
    with pytest.raises(TooLargeError):
        tflite_manifest.contradictions(manifest((1, 4)), model)

"""Whether a bundle's model is what its manifest says: told from the file alone, without any runtime.

A hash proves that the bytes are those somebody packed, not that they are the model which the manifest describes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from edged.bundle import Bundle
from edged.engines import tflite_bind, tflite_file, tflite_nodes
from edged.engines.tflite_bind import Ends
from edged.engines.tflite_file import Graph, ModelFile, Tensor
from edged.engines.tflite_flatbuffer import TooLargeError
from edged.manifest import MODEL, MODEL_CPU, Manifest, TensorSpec
from edged.shown import clipped, listed, shape

# Modes of which a file tells: the kinds of op that it cannot hold, and those whose ops mostly work on whole numbers.
_NEVER: Mapping[str, tuple[str, ...]] = {"none": ("int8", "int16", "hybrid")}
_WHOLE = frozenset({"int8", "int16x8"})
_INTEGER_SHARE = 0.5


def of_bundle(loaded: Bundle) -> tuple[str, ...]:
    """Return every point in which the manifest and the bytes of the model, and of its CPU twin, differ, each in words.

    Raises TooLargeError for a model that is too large to be read here.
    """
    twin = loaded.files.get(MODEL_CPU)
    if twin is None:
        return contradictions(loaded.manifest, loaded.model)
    return compiled_contradictions(loaded.manifest, loaded.model, twin)


def contradictions(manifest: Manifest, model: bytes) -> tuple[str, ...]:
    """Return every point in which the manifest and the bytes of the model differ, each in words.

    Raises TooLargeError for a model that is too large to be read here.
    """
    try:
        file = _read(model, MODEL)
    except _UnreadableError as exc:
        return (str(exc),)
    return tuple(of_file(manifest, file))


def compiled_contradictions(manifest: Manifest, compiled: bytes, twin: bytes) -> tuple[str, ...]:
    """Return the same for a model that is compiled for an accelerator and the twin that it was compiled from.

    The list of operators is that of the compiled one; state and quantization show in the twin alone.
    """
    try:
        file, source = _read(compiled, MODEL), _read(twin, MODEL_CPU)
    except _UnreadableError as exc:
        return (str(exc),)
    ends = tflite_bind.compiled(file, source, manifest.signature)
    return (
        *_ends_differ(manifest, file, ends, MODEL),
        *_operators(manifest.requirements.ops, file.versions),
        *_ends_differ(manifest, source, tflite_bind.ends(source, manifest.signature), MODEL_CPU),
        *_nature(manifest, source, MODEL_CPU),
    )


def of_file(manifest: Manifest, file: ModelFile) -> Iterator[str]:
    """Yield every point in which the manifest and a model file differ, each in words."""
    yield from _ends_differ(manifest, file, tflite_bind.ends(file, manifest.signature), MODEL)
    yield from _operators(manifest.requirements.ops, file.versions)
    yield from _nature(manifest, file, MODEL)


class _UnreadableError(Exception):
    """A model is no .tflite."""


def _read(model: bytes, name: str) -> ModelFile:
    try:
        return tflite_file.read(model)
    except TooLargeError:
        raise
    except ValueError as exc:
        raise _UnreadableError(f"{name} {exc}") from exc


def _ends_differ(manifest: Manifest, file: ModelFile, ends: Ends | None, name: str) -> Iterator[str]:
    if ends is None:
        there = listed(clipped(signature.key) for signature in file.signatures)
        yield f"{name} has no signature {clipped(manifest.signature)!r}: it has {there}"
    else:
        yield from _tensors(name, "input", manifest.inputs, ends.inputs, ends.graph)
        yield from _tensors(name, "output", manifest.outputs, ends.outputs, ends.graph)


def _nature(manifest: Manifest, file: ModelFile, name: str) -> Iterator[str]:
    stateful = tflite_nodes.stateful(file)
    if stateful != manifest.stateful:
        says, is_ = ("it does", "does not") if manifest.stateful else ("it does not", "does")
        yield f"{name} {is_} keep state from one inference to the next, the manifest says {says}"
    yield from _quantization(manifest.quantize, tflite_nodes.kinds(file), name)


def _tensors(
    model: str, side: str, specs: Sequence[TensorSpec], there: Mapping[str, int], graph: Graph
) -> Iterator[str]:
    names = [spec.name for spec in specs]
    if set(names) != set(there):
        has, says = (listed(map(clipped, sorted(some))) for some in (there, names))
        yield f"{model} has the {side}s {has}, the manifest {says}"
    for spec in specs:
        if spec.name in there:
            tensor = graph.tensors[there[spec.name]]
            found, wanted = _words(tensor, _shape(tensor, spec)), _wanted(spec)
            if found != wanted:
                yield f"{side} {clipped(spec.name)!r} is {found}, the manifest says {wanted}"


def _shape(tensor: Tensor, spec: TensorSpec) -> tuple[int, ...]:
    """Return the file's shape, in open dimensions the manifest's: what they become shows when it is loaded."""
    if len(tensor.signature) != len(spec.shape):
        return tensor.shape
    return tuple(
        said if size < 0 else held for size, held, said in zip(tensor.signature, tensor.shape, spec.shape, strict=True)
    )


def _words(tensor: Tensor, dims: Sequence[int]) -> str:
    one = len(tensor.scales) == 1
    return _told(tensor.dtype, dims, *((tensor.scales[0], tensor.zero_points[0]) if one else (0.0, 0)))


def _wanted(spec: TensorSpec) -> str:
    return _told(spec.dtype, spec.shape, spec.scale, spec.zero_point)


def _told(dtype: str, dims: Sequence[int], scale: float, zero_point: int) -> str:
    # The file holds a float32; JSON may hold the decimal that a person wrote.
    scaled = f", scale {np.float32(scale)!s}, zero point {zero_point}" if scale else ""
    return f"{dtype} {clipped(shape(dims))}{scaled}"


def _operators(said: Mapping[str, int], there: Mapping[str, int]) -> Iterator[str]:
    """Yield how a manifest that names operators differs from the file's declared ones."""
    if not said:
        return
    for word, names in (("lacks", set(said) - set(there)), ("has", set(there) - set(said))):
        if names:
            yield f"{MODEL} {word} {listed(map(clipped, sorted(names)))}, against the manifest's list of operators"
    other = [name for name in sorted(set(said) & set(there)) if said[name] != there[name]]
    if other:
        told = listed(f"{clipped(name)} {there[name]} (the manifest: {said[name]})" for name in other)
        yield f"{MODEL} needs other versions of operators: {told}"


def _quantization(quantize: str, kinds: Mapping[str, int], model: str) -> Iterator[str]:
    found = [f"{kinds[kind]} {kind} op{'s' * (kinds[kind] > 1)}" for kind in _NEVER.get(quantize, ()) if kinds[kind]]
    if found:
        yield f"quantize is {quantize}, and {model} has {', '.join(found)}"
    if quantize in _WHOLE and tflite_nodes.integer_share(kinds) < _INTEGER_SHARE:
        yield f"quantize is {quantize}, and most ops of {model} are float"

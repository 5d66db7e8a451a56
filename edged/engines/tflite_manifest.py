"""Whether a bundle's model is what its manifest says: told from the file alone, without any runtime.

A hash proves that the bytes are those somebody packed, not that they are the model which the manifest describes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from edged.engines import tflite_file, tflite_nodes
from edged.engines.tflite_file import Graph, ModelFile, Tensor
from edged.engines.tflite_flatbuffer import TooLargeError
from edged.manifest import MODEL, Manifest, TensorSpec
from edged.shown import clipped, listed, shape

# Modes of which a file tells: the kinds of op that it cannot hold, and those whose ops mostly work on whole numbers.
_NEVER: Mapping[str, tuple[str, ...]] = {"none": ("int8", "int16", "hybrid")}
_WHOLE = frozenset({"int8", "int16x8"})
_INTEGER_SHARE = 0.5


def contradictions(manifest: Manifest, model: bytes) -> tuple[str, ...]:
    """Return every point in which the manifest and the bytes of the model differ, each in words.

    Raises TooLargeError for a model that is too large to be read here.
    """
    try:
        file = tflite_file.read(model)
    except TooLargeError:
        raise
    except ValueError as exc:
        return (f"{MODEL} {exc}",)
    return tuple(of_file(manifest, file))


def of_file(manifest: Manifest, file: ModelFile) -> Iterator[str]:
    """Yield every point in which the manifest and a model file differ, each in words."""
    ends = _ends(manifest, file)
    if ends is None:
        there = listed(clipped(signature.key) for signature in file.signatures)
        yield f"{MODEL} has no signature {clipped(manifest.signature)!r}: it has {there}"
    else:
        graph, inputs, outputs = ends
        yield from _tensors("input", manifest.inputs, inputs, graph)
        yield from _tensors("output", manifest.outputs, outputs, graph)
    yield from _operators(manifest.requirements.ops, file.versions)
    stateful = tflite_nodes.stateful(file)
    if stateful != manifest.stateful:
        says, is_ = ("it does", "does not") if manifest.stateful else ("it does not", "does")
        yield f"{MODEL} {is_} keep state from one inference to the next, the manifest says {says}"
    yield from _quantization(manifest.quantize, tflite_nodes.kinds(file))


def _ends(manifest: Manifest, file: ModelFile) -> tuple[Graph, Mapping[str, int], Mapping[str, int]] | None:
    """Return the graph that is served and its tensors by name; a file without signatures is bound by tensor names."""
    if not file.signatures:
        graph = file.graphs[0]
        by_name = [{graph.tensors[index].name: index for index in side} for side in (graph.inputs, graph.outputs)]
        return graph, by_name[0], by_name[1]
    for signature in file.signatures:
        if signature.key == manifest.signature:
            return file.graphs[signature.graph], signature.inputs, signature.outputs
    return None


def _tensors(side: str, specs: Sequence[TensorSpec], there: Mapping[str, int], graph: Graph) -> Iterator[str]:
    names = [spec.name for spec in specs]
    if set(names) != set(there):
        has, says = (listed(map(clipped, sorted(some))) for some in (there, names))
        yield f"{MODEL} has the {side}s {has}, the manifest {says}"
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


def _quantization(quantize: str, kinds: Mapping[str, int]) -> Iterator[str]:
    found = [f"{kinds[kind]} {kind} op{'s' * (kinds[kind] > 1)}" for kind in _NEVER.get(quantize, ()) if kinds[kind]]
    if found:
        yield f"quantize is {quantize}, and {MODEL} has {', '.join(found)}"
    if quantize in _WHOLE and tflite_nodes.integer_share(kinds) < _INTEGER_SHARE:
        yield f"quantize is {quantize}, and most ops of {MODEL} are float"

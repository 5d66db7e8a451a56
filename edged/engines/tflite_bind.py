"""Which tensors are meant by the names of a bundle: told from the model's file.

By the signature; by the tensors' own names where a file has no signatures; and for a file that a vendor's compiler made
without signatures by position, for it keeps inputs and outputs in the order of the model that it was given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edged.engines.tflite_file import Graph, ModelFile


@dataclass(frozen=True)
class Ends:
    """The graph that is served, and its tensors by name: inputs, outputs → number in the graph."""

    graph: Graph
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


def ends(file: ModelFile, key: str) -> Ends | None:
    """Return the ends of the signature `key`; None where the file has others."""
    if not file.signatures:
        graph = file.graphs[0]
        by_name = [{graph.tensors[index].name: index for index in side} for side in (graph.inputs, graph.outputs)]
        return Ends(graph, *by_name)
    for signature in file.signatures:
        if signature.key == key:
            return Ends(file.graphs[signature.graph], signature.inputs, signature.outputs)
    return None


def leaves_rows_open(file: ModelFile, key: str) -> bool:
    """Whether the file leaves the first dimension of every input and every output open."""
    found = ends(file, key)
    if found is None:
        return False
    tensors = [found.graph.tensors[index] for index in (*found.inputs.values(), *found.outputs.values())]
    return all(tensor.signature[:1] == (-1,) for tensor in tensors)


def compiled(file: ModelFile, twin: ModelFile, key: str) -> Ends | None:
    """Return the ends of a compiled file; `twin` is the model that it was compiled from."""
    source = ends(twin, key)
    if file.signatures or source is None:
        return ends(file, key)
    graph = file.graphs[0]
    inputs = _by_place(source.inputs, source.graph.inputs, graph.inputs)
    return Ends(graph, inputs, _by_place(source.outputs, source.graph.outputs, graph.outputs))


def _by_place(named: Mapping[str, int], order: Sequence[int], here: Sequence[int]) -> dict[str, int]:
    """Return name → tensor in `here`, at the place which that name's tensor has in `order`; no place, no name."""
    places = {name: order.index(tensor) for name, tensor in named.items() if tensor in order}
    return {name: here[place] for name, place in places.items() if place < len(here)}

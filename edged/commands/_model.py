"""What a .tflite holds, as facts for a program and rows for a person; read by ourselves, without any runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edged.commands import _delegates, _runtimes
from edged.engines import tflite_file, tflite_nodes
from edged.engines.tflite_file import ModelFile, Tensor
from edged.manifest import MODEL, MODEL_CPU
from edged.shown import clipped, listed, shape, size


def facts(model: bytes, path: Path) -> dict[str, Any]:
    """Return the facts of a model; `path` holds the same bytes, for the runtimes. Raises ValueError when damaged."""
    file = tflite_file.read(model)
    tried = _runtimes.tried(path)
    return {
        **_ends(file),
        "operators": tflite_nodes.counts(file),
        "ops": _ops(file),
        "kinds": tflite_nodes.kinds(file),
        "constants": {dtype: size for dtype, (_, size) in tflite_nodes.dtypes(file).items() if size},
        "compiled_ops": _delegates.compiled_ops(file),
        "custom_ops": list(tflite_nodes.custom_ops(file, flex=False)),
        "flex_ops": list(tflite_nodes.custom_ops(file, flex=True)),
        "stateful": tflite_nodes.stateful(file),
        "min_runtime_version": file.min_runtime_version,
        "runtimes": list(_runtimes.facts(file, tried)),
        "delegates": list(_delegates.facts(file, tried)),
    }


def _ends(file: ModelFile) -> dict[str, Any]:
    graph = file.graphs[0]
    return {
        "inputs": [_tensor(graph.tensors[index]) for index in graph.inputs],
        "outputs": [_tensor(graph.tensors[index]) for index in graph.outputs],
        "signatures": {s.key: {"inputs": sorted(s.inputs), "outputs": sorted(s.outputs)} for s in file.signatures},
    }


def _tensor(tensor: Tensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": list(tensor.signature),
        "scales": list(tensor.scales),
        "zero_points": list(tensor.zero_points),
    }


def _ops(file: ModelFile) -> list[dict[str, Any]]:
    """Every op by name: the highest version, how many there are of each kind, and whether it is a custom one."""
    found: dict[str, Counter[str]] = {}
    for name, kind in tflite_nodes.every_op(file):
        found.setdefault(name, Counter())[kind] += 1
    custom = {op.name for graph in file.graphs for op in graph.ops if op.custom}
    return [
        {
            "name": name,
            "version": file.versions[name],
            "count": kinds.total(),
            "kinds": dict(sorted(kinds.items())),
            "custom": name in custom,
        }
        for name, kinds in sorted(found.items())
    ]


def rows(facts: dict[str, Any]) -> Iterator[list[str]]:
    """Return the table rows of a bare model's `facts`."""
    for kind in ("inputs", "outputs"):
        yield from ([kind[:-1], _tensor_words(tensor)] for tensor in facts[kind])
    for name, ends in facts["signatures"].items():
        yield [
            "signature",
            f"{clipped(name)}: {listed(map(clipped, ends['inputs']))} → {listed(map(clipped, ends['outputs']))}",
        ]
    yield ["state", "keeps state from one inference to the next" if facts["stateful"] else "none"]
    yield ["operators", counts(facts["operators"])]
    yield ["operators (version needed)", listed(f"{clipped(op['name'])} v{op['version']}" for op in facts["ops"])]
    yield from more_rows(facts)


def more_rows(facts: dict[str, Any]) -> Iterator[list[str]]:
    """Return the rows that a bundle's own manifest does not have."""
    yield from _kind_rows(facts["ops"])
    if facts["constants"]:
        sizes = (f"{dtype} {size(count)}" for dtype, count in facts["constants"].items())
        yield ["constants", ", ".join(sizes)]
    if facts["flex_ops"]:
        yield ["TensorFlow's own ops", f"{listed(map(clipped, facts['flex_ops']))} (need the Flex delegate)"]
    for made in facts["compiled_ops"]:
        yield ["compiled for", f"{made['accelerator']}: {made['op']} is its own code, and no CPU runs it"]
    if others := sorted({*facts["custom_ops"]} - {made["op"] for made in facts["compiled_ops"]}):
        yield ["custom ops", listed(map(clipped, others))]
    if facts["min_runtime_version"]:
        yield ["metadata", f"names runtime {clipped(facts['min_runtime_version'])}, which is often too old"]
    yield from map(_runtimes.row, facts["runtimes"])
    yield from map(_delegates.row, facts["delegates"])


def twin_rows(twin: dict[str, Any], compiled: dict[str, Any] | None) -> Iterator[list[str]]:
    """Return the rows of the CPU twin. compiled: the facts of the model that it stands in for, None if unreadable."""
    yield ["CPU twin", f"{MODEL_CPU}: the model that {MODEL} was compiled from; it answers where no accelerator does"]
    if compiled is not None and not compiled["compiled_ops"]:
        yield ["", f"which accelerator {MODEL} is compiled for is not told by the names of its ops"]
    for name, told in (["operators", counts(twin["operators"])], *more_rows(twin)):
        yield [f"twin: {name}", told]


def counts(operators: Mapping[str, int]) -> str:
    """Return operators and how many there are of each: `ADD 1, SUB 1`."""
    return listed(f"{clipped(name)} {count}" for name, count in operators.items())


def _kind_rows(ops: list[dict[str, Any]]) -> Iterator[list[str]]:
    """One row for each kind: `int8 ops   CONV_2D 12, ADD 3`."""
    for kind in ("int8", "int16", "hybrid", "float", "other"):
        found = {op["name"]: op["kinds"][kind] for op in ops if kind in op["kinds"]}
        if found:
            yield [f"{kind} ops", counts(found)]


def _tensor_words(tensor: dict[str, Any]) -> str:
    told = f"{clipped(tensor['name'])}: {tensor['dtype']} {clipped(shape(tensor['shape']))}"
    if len(tensor["scales"]) == 1:
        return f"{told}, scale {tensor['scales'][0]:g}, zero point {tensor['zero_points'][0]}"
    return f"{told}, {len(tensor['scales'])} scales" if tensor["scales"] else told

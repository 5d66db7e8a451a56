"""Bundles for accelerators that CompiledModel reaches, and their measurement as `edged` does it.

What an accelerator runs is never run in the test process: an engine on it lives in a child.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
from support import tflitefiles as files
from support import tinymodel

from delegates.select import Measured
from edged import bundle
from edged.bundle import Bundle, Golden
from edged.engines import measure
from edged.engines.candidate import Candidate
from edged.engines.measure import Job

Array = np.ndarray[Any, Any]

LITERT = "ai-edge-litert"


def cumsum(path: Path, shape: tuple[int, ...], axis: int) -> Bundle:
    """Write a bundle of one CUMSUM over `axis`, with golden samples by numpy."""
    schema, x = files.schema(), np.random.default_rng(0).uniform(0.5, 1.5, (4, *shape)).astype(np.float32)
    tensors = [
        _floats("x", shape),
        files.part("Tensor", name="axis", type=schema.TensorType.INT32, shape=[], buffer=1),
        _floats("y", shape),
    ]
    op = files.part(
        "Operator", opcodeIndex=0, inputs=[0, 1], outputs=[2],
        builtinOptionsType=schema.BuiltinOptions.CumsumOptions, builtinOptions=files.part("CumsumOptions"),
    )  # fmt: skip
    model = files.packed(
        operatorCodes=[files.code(schema.BuiltinOperator.CUMSUM, version=1)],
        subgraphs=[files.graph(tensors, [op], [0], [2])],
        buffers=[files.buffer(), files.buffer(np.array(axis, np.int32).tobytes())],
        signatureDefs=[files.signature("serving_default", {"x": 0}, {"y": 2})],
    )
    return _bundle(path, "cumsum", model, x, np.cumsum(x, axis + 1, dtype=np.float32))


def chain(path: Path, *names: str) -> Bundle:
    """Write a bundle of these ops in a row, each of one input: DOUBLE, ROUND, ELU, LOG_SOFTMAX."""
    schema = files.schema()
    x = np.random.default_rng(1).uniform(-2, 2, (4, 4, 8)).astype(np.float32)
    tensors = [_floats(f"t{number}", (4, 8)) for number in range(len(names) + 1)]
    ops = [_op(name, number) for number, name in enumerate(names)]
    model = files.packed(
        operatorCodes=[
            files.code(getattr(schema.BuiltinOperator, _BUILTIN.get(name, name)), version=1) for name in names
        ],
        subgraphs=[files.graph(tensors, ops, [0], [len(names)])],
        buffers=[files.buffer()],
        signatureDefs=[files.signature("serving_default", {"x": 0}, {"y": len(names)})],
    )
    y = functools.reduce(lambda values, name: _FUNCTIONS[name](values), names, x)
    return _bundle(path, "chain", model, x, y.astype(np.float32))


def _floats(name: str, shape: tuple[int, ...]) -> Any:
    return files.part("Tensor", name=name, type=files.schema().TensorType.FLOAT32, shape=list(shape), buffer=0)


def _op(name: str, number: int) -> Any:
    schema = files.schema()
    more = {}
    if name == "DOUBLE":
        more = {"builtinOptionsType": schema.BuiltinOptions.AddOptions, "builtinOptions": files.part("AddOptions")}
    inputs = [number] * (2 if name == "DOUBLE" else 1)
    return files.part("Operator", opcodeIndex=number, inputs=inputs, outputs=[number + 1], **more)


def _log_softmax(x: Array) -> Array:
    return np.asarray(x - np.log(np.exp(x).sum(axis=-1, keepdims=True)))


def _elu(x: Array) -> Array:
    return np.where(x > 0, x, np.expm1(x))


_BUILTIN = {"DOUBLE": "ADD"}
_FUNCTIONS = {"DOUBLE": lambda x: x + x, "LOG_SOFTMAX": _log_softmax, "ELU": _elu, "ROUND": np.round}


def _bundle(path: Path, name: str, model: bytes, x: Array, y: Array) -> Bundle:
    golden = Golden({"x": x}, {"y": y}, {"y": y}, {"y": 1e-4})
    specs = (tinymodel.spec("x", x.shape[1:]),), (tinymodel.spec("y", y.shape[1:]),)
    bundle.write(path, tinymodel._manifest(name, 1, *specs), {bundle.MODEL: model, bundle.GOLDEN: golden.to_bytes()})
    return bundle.read(path)


def measured(loaded: Bundle, delegate: str, options: dict[str, Any] | None = None) -> Measured:
    """Open it as it would be served, compare it with the CPU, time it."""
    return measure.measure(Job(loaded.path, loaded.model_sha256, Candidate.of(LITERT, delegate, options)))


def figures(row: Measured, cpu: Measured) -> str:
    """Return a line for a person: times on this machine, to be read as that."""
    return (
        f"{row.delegate}: open {row.open_ms} ms, first {row.first_ms} ms, P50 {row.p50_us} us, P99 {row.p99_us} us; "
        f"XNNPACK: open {cpu.open_ms} ms, P50 {cpu.p50_us} us; worst {row.worst} of tolerance ({row.worst_what})"
    )

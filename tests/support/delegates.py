"""The accelerator that needs no hardware (testdelegate/testdelegate.c), and bundles whose answers numpy computes."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from support import require, tflitefiles, tinymodel

from edged import bundle
from edged.bundle import Golden, Manifest

_SOURCE = Path(__file__).parent / "testdelegate" / "testdelegate.c"
_COMPILE = ("gcc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-shared", "-fPIC")

SIZE = 8
OPS = ("ADD", "MUL", "ADD", "MUL", "ADD", "MUL")
# The delegate leaves SUB to the CPU, so what it takes falls into two partitions.
SPLIT = ("ADD", "MUL", "SUB", "ADD", "MUL", "ADD")


@functools.cache
def _folder() -> Path:
    out = Path(tempfile.mkdtemp(prefix="edged-testdelegate-"))
    atexit.register(shutil.rmtree, out, ignore_errors=True)
    return out


@functools.cache
def _compiled(source: Path) -> Path:
    require.programs("gcc")
    out = _folder() / f"{source.stem}.compiled"
    done = subprocess.run(
        [*_COMPILE, "-o", str(out), str(source), "-lm"], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return out


@functools.cache
def library(name: str = "libedged_testdelegate.so") -> Path:
    """Return the test delegate under a file name of your choice, e.g. a vendor's; compiled once for all tests."""
    return Path(shutil.copy(_compiled(_SOURCE), _folder() / name))


@functools.cache
def not_a_delegate() -> Path:
    """Return a shared library that loads, and has nothing that a delegate has."""
    source = _folder() / "notadelegate.c"
    source.write_text("int edged_answer(void) { return 42; }\n")
    return Path(shutil.copy(_compiled(source), _folder() / "libnotadelegate.so"))


@functools.cache
def not_a_library() -> Path:
    """Return a text that is called a shared library."""
    path = _folder() / "libtext.so"
    path.write_text("this is no library\n")
    return path


def adder_expected(x: np.ndarray[Any, Any], ops: Sequence[str] = OPS) -> np.ndarray[Any, Any]:
    """Compute what the adder model answers, in float32 and in its order, so the delegate agrees to the last bit."""
    compute: dict[str, np.ufunc] = {"ADD": np.add, "MUL": np.multiply, "SUB": np.subtract}
    for op, constant in zip(ops, _constants(len(ops)), strict=True):
        x = compute[op](x, constant, dtype=np.float32)
    return x


def adder_model(ops: Sequence[str] = OPS, *, custom: bool = False) -> bytes:
    """float32 [1, 8] -> float32 [1, 8]: a chain of unfused ops, each with a constant; one signature, x -> y.

    custom: ADD and MUL as custom ops that only the test delegate can compute, like a model compiled for an accelerator.
    """
    part, schema = tflitefiles.part, tflitefiles.schema()
    names = ["x", *(f"t{n}" for n in range(1, len(ops))), "y"]
    flow = [part("Tensor", name=name, type=schema.TensorType.FLOAT32, shape=[1, SIZE], buffer=0) for name in names]
    fixed = [
        part("Tensor", name=f"c{n}", type=schema.TensorType.FLOAT32, shape=list(value.shape), buffer=1 + n)
        for n, value in enumerate(_constants(len(ops)))
    ]
    kinds = sorted(set(ops))
    nodes = [_node(op, kinds.index(op), [n, len(flow) + n], [n + 1], custom) for n, op in enumerate(ops)]
    return tflitefiles.packed(
        operatorCodes=[_code(kind, custom) for kind in kinds],
        subgraphs=[tflitefiles.graph(flow + fixed, nodes, [0], [len(ops)])],
        buffers=[tflitefiles.buffer(), *(tflitefiles.buffer(value.tobytes()) for value in _constants(len(ops)))],
        signatureDefs=[tflitefiles.signature("serving_default", {"x": 0}, {"y": len(ops)})],
    )


def adder_bundle(
    path: Path, *, ops: Sequence[str] = OPS, golden: bool = True, twin: bool = False, name: str = "adder",
    version: int = 1,
) -> Path:  # fmt: skip
    """Write a bundle of the adder model, with four golden samples by numpy.

    twin: the model is compiled for the test delegate alone (custom ops), and its CPU twin lies beside it.
    """
    specs = (tinymodel.spec("x", (1, SIZE)),), (tinymodel.spec("y", (1, SIZE)),)
    files = {bundle.MODEL: adder_model(ops, custom=twin)}
    if twin:
        files[bundle.MODEL_CPU] = adder_model(ops)
    if golden:
        files[bundle.GOLDEN] = _golden(ops).to_bytes()
    bundle.write(path, Manifest(1, name, version, {}, "serving_default", *specs), files)
    return path


def _golden(ops: Sequence[str]) -> Golden:
    x = np.random.default_rng(4).uniform(-2, 2, (4, 1, SIZE)).astype(np.float32)
    y = np.stack([adder_expected(sample, ops) for sample in x])
    return Golden({"x": x}, {"y": y}, {"y": y}, {"y": 1e-5})


def _constants(count: int) -> Iterator[np.ndarray[Any, Any]]:
    """For each op a vector; every third is a single number, which the op broadcasts."""
    for n in range(count):
        yield np.linspace(0.5, 1.5, SIZE if n % 3 else 1, dtype=np.float32).reshape(1, -1) + np.float32(n) / 8


def _node(op: str, code: int, inputs: list[int], outputs: list[int], custom: bool) -> Any:
    ends = {"opcodeIndex": code, "inputs": inputs, "outputs": outputs}
    if custom and op != "SUB":
        return tflitefiles.part("Operator", **ends)
    kind = f"{op.capitalize()}Options"
    options = getattr(tflitefiles.schema().BuiltinOptions, kind)
    return tflitefiles.part("Operator", **ends, builtinOptionsType=options, builtinOptions=tflitefiles.part(kind))


def _code(op: str, custom: bool) -> Any:
    builtin = tflitefiles.schema().BuiltinOperator
    if custom and op != "SUB":
        return tflitefiles.code(builtin.CUSTOM, customCode=f"edged-test-{op.lower()}")
    return tflitefiles.code(getattr(builtin, op))

"""`edged attach`: a compiled model and its CPU twin in one bundle, refused when they do not belong together."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from support import tflitefiles, tinymodel
from support.commands import edged

from edged import bundle
from edged.errors import ExitCode


def compiled(elements: int = 4, outputs: int = 2) -> bytes:
    """What a vendor's compiler writes of the difference model: one custom op, other tensor names, no signatures."""
    types, builtin = tflitefiles.schema().TensorType, tflitefiles.schema().BuiltinOperator
    names = ["p0", "p1", *(f"r{n}" for n in range(outputs))]
    tensors = [
        tflitefiles.part("Tensor", name=name, type=types.FLOAT32, shape=[1, elements], buffer=0) for name in names
    ]
    ends = [0, 1], list(range(2, 2 + outputs))
    op = tflitefiles.part("Operator", opcodeIndex=0, inputs=ends[0], outputs=ends[1])
    return tflitefiles.packed(
        operatorCodes=[tflitefiles.code(builtin.CUSTOM, customCode="edgetpu-custom-op", version=1)],
        subgraphs=[tflitefiles.graph(tensors, [op], *ends)],
        buffers=[tflitefiles.buffer()],
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A bundle of the difference model, whose signature has another order than its graph."""
    return tinymodel.write_difference_bundle(tmp_path / "source")


def attach(source: Path, model: bytes, tmp_path: Path, *more: str) -> tuple[int, str, str]:
    """Run the command with a compiled file of these bytes."""
    (tmp_path / "compiled.tflite").write_bytes(model)
    done = edged("attach", str(source), str(tmp_path / "compiled.tflite"), "-o", str(tmp_path / "new"), *more)
    return done.returncode, done.stdout, done.stderr


def test_the_new_bundle_holds_both(source: Path, tmp_path: Path) -> None:
    """model.tflite is the compiled one, model.cpu.tflite the one it was made from; the rest is as it was."""
    code, out, _ = attach(source, compiled(), tmp_path, "--version", "2", "--json")
    before, after = bundle.read(source), bundle.read(tmp_path / "new")
    assert code == ExitCode.OK
    assert json.loads(out)["custom_ops"] == ["edgetpu-custom-op"]
    assert (after.model, after.cpu_model) == (compiled(), before.model)
    assert (after.manifest.version, after.manifest.inputs) == (2, before.manifest.inputs)
    assert dict(after.manifest.requirements.ops) == {"edgetpu-custom-op": 1}


def test_inspect_finds_nothing_wrong(source: Path, tmp_path: Path) -> None:
    """Names are bound by place: the compiled file has no signatures and other tensor names."""
    attach(source, compiled(), tmp_path)
    done = edged("inspect", str(tmp_path / "new"), "--json")
    assert (done.returncode, json.loads(done.stdout)["contradictions"]) == (ExitCode.OK, [])


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (lambda: compiled(elements=5), "float32 1x5"),
        (lambda: compiled(outputs=1), "outputs"),
        (tinymodel.dense_model, "inputs"),
        (tinymodel.difference_model, "own model"),
        (lambda: b"no model", "compiled.tflite"),
        (lambda: compiled()[:60], "compiled.tflite"),
    ],
)
def test_what_does_not_belong_together_is_refused(model: object, told: str, source: Path, tmp_path: Path) -> None:
    """Another shape, fewer outputs, another model, the model itself, no model: one line, no bundle."""
    assert callable(model)
    code, _, err = attach(source, model(), tmp_path)
    assert (code, err.count("\n")) == (ExitCode.BAD_DATA, 1)
    assert told in err
    assert not (tmp_path / "new").exists()


def test_what_is_there_stays(source: Path, tmp_path: Path) -> None:
    """An output that exists is not replaced."""
    (tmp_path / "new").mkdir()
    code, _, err = attach(source, compiled(), tmp_path)
    assert (code, "already" in err, list((tmp_path / "new").iterdir())) == (ExitCode.USAGE, True, [])


def test_a_pipe_is_not_waited_for(source: Path, tmp_path: Path) -> None:
    """Nobody will ever write into it."""
    os.mkfifo(tmp_path / "pipe")
    done = edged("attach", str(source), str(tmp_path / "pipe"), "-o", str(tmp_path / "new"))
    assert (done.returncode, "pipe" in done.stderr) == (ExitCode.BAD_DATA, True)


def test_the_twin_answers_on_the_cpu(source: Path, tmp_path: Path) -> None:
    """An engine on the CPU runs the twin: difference and sum as numpy computes them."""
    from edged.engines.candidate import Candidate
    from edged.engines.opening import open_here

    attach(source, compiled(), tmp_path)
    engine = open_here(bundle.read(tmp_path / "new"), Candidate("ai-edge-litert"))
    a, b = np.float32([[1, 2, 3, 4]]), np.float32([[5, 4, 3, 9]])
    engine.inputs[0][...], engine.inputs[1][...] = a, b
    engine.invoke()
    np.testing.assert_array_equal(engine.outputs[0], b - a)
    np.testing.assert_array_equal(engine.outputs[1], a + b)

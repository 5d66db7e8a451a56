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


def compiled(elements: int = 4, outputs: int = 2, op_name: str = "edgetpu-custom-op") -> bytes:
    """What a vendor's compiler writes of the difference model: one custom op, other tensor names, no signatures."""
    types, builtin = tflitefiles.schema().TensorType, tflitefiles.schema().BuiltinOperator
    names = ["p0", "p1", *(f"r{n}" for n in range(outputs))]
    tensors = [
        tflitefiles.part("Tensor", name=name, type=types.FLOAT32, shape=[1, elements], buffer=0) for name in names
    ]
    ends = [0, 1], list(range(2, 2 + outputs))
    op = tflitefiles.part("Operator", opcodeIndex=0, inputs=ends[0], outputs=ends[1])
    return tflitefiles.packed(
        operatorCodes=[tflitefiles.code(builtin.CUSTOM, customCode=op_name, version=1)],
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
    code, out, _ = attach(source, compiled(), tmp_path, "--json")
    before, after = bundle.read(source), bundle.read(tmp_path / "new")
    assert code == ExitCode.OK
    assert json.loads(out)["custom_ops"] == ["edgetpu-custom-op"]
    assert (after.model, after.cpu_model) == (compiled(), before.model)
    assert (after.manifest.version, after.manifest.inputs) == (before.manifest.version + 1, before.manifest.inputs)
    assert dict(after.manifest.requirements.ops) == {"edgetpu-custom-op": 1}


@pytest.mark.parametrize("where", ["inside", "deeper/inside", "link/inside.tar"])
def test_nothing_is_written_into_the_bundle_that_is_given(where: str, source: Path, tmp_path: Path) -> None:
    """It would be no bundle any more: a file that its manifest does not name."""
    (tmp_path / "compiled.tflite").write_bytes(compiled())
    (tmp_path / "link").symlink_to(source)
    output = tmp_path / where if where.startswith("link") else source / where
    before = sorted(source.rglob("*"))
    done = edged("attach", source, tmp_path / "compiled.tflite", "-o", output)
    assert done.returncode == ExitCode.USAGE
    assert f"lies in {source}" in done.stderr
    assert sorted(source.rglob("*")) == before


def test_inspect_and_check_find_nothing_wrong(source: Path, tmp_path: Path) -> None:
    """Names are bound by place: the compiled file has no signatures and other tensor names."""
    attach(source, compiled(), tmp_path)
    done = edged("inspect", str(tmp_path / "new"), "--json")
    assert (done.returncode, json.loads(done.stdout)["contradictions"]) == (ExitCode.OK, [])
    config = tmp_path / "edged.yaml"
    config.write_text("device: d\nbroker: {url: 'mqtt://x'}\nmodels: [{name: m, bundle: new}]\n")
    assert edged("check", "-c", str(config)).returncode == ExitCode.OK


def rows_of(text: str) -> dict[str, list[str]]:
    """What stands behind each title of a table."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        title, _, told = line.partition("  ")
        found.setdefault(title, []).append(told.strip())
    return found


def test_inspect_tells_what_it_is_compiled_for(source: Path, tmp_path: Path) -> None:
    """Its op names the accelerator: no table is held against it, and a runtime needs that delegate; so for a person."""
    attach(source, compiled(), tmp_path)
    model = json.loads(edged("inspect", str(tmp_path / "new"), "--json").stdout)["model"]
    made = {"op": "edgetpu-custom-op", "delegate": "edgetpu", "accelerator": "Coral Edge TPU"}
    assert model["compiled_ops"] == [made]
    assert [(row["name"], row["how"], row["taken"], row["total"]) for row in model["delegates"]] == [
        ("edgetpu", "compiled", 1, 1)
    ]
    assert [(row["loads"], row["needs"]) for row in model["runtimes"]] == [(False, ["edgetpu"])] * 2
    for path in ("new", "compiled.tflite"):
        rows = rows_of(edged("inspect", str(tmp_path / path)).stdout)
        assert rows["compiled for"][0].startswith("Coral Edge TPU: edgetpu-custom-op ")
        assert all("loads it only with the delegate edgetpu" in told for told in rows["runtime"])
        assert rows["delegate"] == ["edgetpu, what it is compiled for: 1 of 1 ops in 1 partition"]
        assert ("custom ops" in rows, "CPU twin" in rows) == (False, path == "new")


def test_inspect_shows_the_twin(source: Path, tmp_path: Path) -> None:
    """What is told of the twin is what is told of the bundle that it came from, to a program and to a person."""
    attach(source, compiled(), tmp_path)
    before = json.loads(edged("inspect", str(source), "--json").stdout)
    after = json.loads(edged("inspect", str(tmp_path / "new"), "--json").stdout)
    assert after["cpu_model"] == before["model"]
    assert after["cpu_model"]["operators"] == {"ADD": 1, "SUB": 1}
    assert "cpu_model" not in before
    alone, both = (rows_of(edged("inspect", str(path)).stdout) for path in (source, tmp_path / "new"))
    assert both["CPU twin"][0].startswith("model.cpu.tflite: ")
    for title in ("operators", "runtime", "delegate"):
        assert both[f"twin: {title}"] == alone[title]


def test_inspect_of_a_compiler_that_nobody_knows(source: Path, tmp_path: Path) -> None:
    """An op of no known name: that is said, and the twin is there all the same."""
    attach(source, compiled(op_name="acme-npu"), tmp_path)
    rows = rows_of(edged("inspect", str(tmp_path / "new")).stdout)
    assert (rows["custom ops"], rows["twin: operators"]) == (["acme-npu"], ["ADD 1, SUB 1"])
    assert "compiled for" not in rows
    assert "which accelerator model.tflite is compiled for is not told" in str(rows[""])
    assert any("it lacks custom op acme-npu" in told for told in rows["runtime"])


def test_inspect_of_a_twin_that_cannot_be_read(source: Path, tmp_path: Path) -> None:
    """The rest of the bundle is shown, and the command fails."""
    attach(source, compiled(), tmp_path)
    loaded = bundle.read(tmp_path / "new")
    bundle.write(tmp_path / "bad", loaded.manifest, {**loaded.files, bundle.MODEL_CPU: loaded.cpu_model[:99]})
    done = edged("inspect", str(tmp_path / "bad"))
    assert (done.returncode, done.stderr.count("\n")) == (ExitCode.BAD_DATA, 1)
    assert rows_of(done.stdout)["CPU twin"][0].startswith("model.cpu.tflite: not counted: the model is cut short")
    facts = json.loads(edged("inspect", str(tmp_path / "bad"), "--json").stdout)
    assert (facts["cpu_model"], facts["operators"]) == (None, {"edgetpu-custom-op": 1})


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

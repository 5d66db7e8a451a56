"""`edged inspect` for real: bundles, bare models, what is neither, and what means harm."""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from support import require, tflitefiles, tinymodel
from support.commands import edged

from edged import bundle
from edged.commands import inspect
from edged.engines import tflite_runtime, tflite_tried


@pytest.fixture
def any_runtime() -> None:
    """A TFLite runtime, whichever: missing on a laptop is a skip, missing in CI a failure."""
    require.any_runtime()


def test_inspect_a_bundle_and_its_tar(tmp_path: Path) -> None:
    """A person and a program are told the same; a .tar reads like its directory."""
    tinymodel.write_dense_bundle(tmp_path / "dense")
    tinymodel.write_dense_bundle(tmp_path / "dense.tar")
    done = edged("inspect", tmp_path / "dense")
    assert done.returncode == 0
    assert "dense version 1" in done.stdout
    assert done.stdout.replace("/dense\n", "/dense.tar\n") == edged("inspect", tmp_path / "dense.tar").stdout
    facts = json.loads(edged("inspect", tmp_path / "dense", "--json").stdout)
    assert facts["verified"] is True
    assert facts["inputs"][0]["shape"] == [1, 3]
    sha256 = bundle.read(tmp_path / "dense").model_sha256
    assert facts["files"]["model.tflite"]["sha256"] == sha256
    assert sha256[:12] in done.stdout
    (tmp_path / "dense/model.tflite").write_bytes(b"x")
    damaged = edged("inspect", tmp_path / "dense")
    assert damaged.returncode == 65
    assert damaged.stderr.count("\n") == 1


def test_inspect_tells_counts_from_versions(tmp_path: Path) -> None:
    """Two kinds of number, two rows: how many operators the model has, and which version of each it needs."""
    made = bundle.read(tinymodel.write_difference_bundle(tmp_path / "plain"))
    needs = dataclasses.replace(made.manifest, requirements=bundle.Requirements(ops={"ADD": 7, "SUB": 3}))
    for name in ("needs", "needs.tar"):
        bundle.write(tmp_path / name, needs, {bundle.MODEL: made.model})
        lines = edged("inspect", tmp_path / name).stdout.splitlines()
        rows = {line.split("  ")[0]: line.split("  ")[-1].strip() for line in lines}
        assert rows["operators"] == "ADD 1, SUB 1"
        assert rows["operators (version needed)"] == "ADD v7, SUB v3"
    facts = json.loads(edged("inspect", tmp_path / "needs", "--json").stdout)
    assert (facts["operators"], facts["requirements"]["ops"]) == ({"ADD": 1, "SUB": 1}, {"ADD": 7, "SUB": 3})


def test_inspect_a_bundle_whose_model_nobody_can_read(tmp_path: Path) -> None:
    """The hashes agree, the bundle is shown, and yet it is bad data: first of all, and in the exit code."""
    made = bundle.read(tinymodel.write_dense_bundle(tmp_path / "dense"))
    bundle.write(tmp_path / "half", made.manifest, {bundle.MODEL: made.model[:100]})
    done = edged("inspect", tmp_path / "half")
    assert (done.returncode, done.stderr.count("\n")) == (65, 1)
    assert done.stdout.startswith("contradiction")
    assert "not counted: the model is cut short or damaged" in done.stdout
    facts = json.loads(edged("inspect", tmp_path / "half", "--json").stdout)
    assert "is cut short or damaged" in facts["contradictions"][0]
    assert (facts["operators"], facts["model"]) == (None, None)
    assert facts["refused"].startswith("the model is cut short or damaged")


def test_inspect_sends_no_escapes_to_the_terminal(tmp_path: Path) -> None:
    """A tensor of others may be called anything; what moves a cursor or changes colours is left out."""
    named = tinymodel.dense_model().replace(b"x\0\0\0", b"\x1b\0\0\0")
    (tmp_path / "m.tflite").write_bytes(named)
    assert b"\x1b" in named
    done = edged("inspect", tmp_path / "m.tflite")
    assert done.returncode == 0
    assert not any(c in done.stdout for c in "\x1b\x9b\r")


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("window.npy", b"\x93NUMPY\x01\0v\0", "is a NumPy array"),
        ("eval.npz", b"PK\x03\x04\x14", "is a zip file"),
        ("m.h5", b"\x89HDF\r\n\x1a\n", "is an HDF5 file"),
        ("har.tar.gz", b"\x1f\x8b\x08", "is compressed with gzip"),
        ("empty", b"", "is empty"),
        ("notes", b"hello", "is some file"),
        ("bundle.json", b"{}", "give its directory"),
    ],
)
def test_inspect_what_is_neither(tmp_path: Path, name: str, data: bytes, says: str) -> None:
    """What it is, and that it is neither a bundle nor a model: no word of tar."""
    (tmp_path / name).write_bytes(data)
    done = edged("inspect", tmp_path / name)
    assert (done.returncode, done.stderr.count("\n")) == (65, 1)
    assert says in done.stderr
    assert "neither a bundle nor a .tflite model" in done.stderr
    assert "truncated" not in done.stderr


def test_inspect_a_savedmodel(tmp_path: Path) -> None:
    """The person is one command early, and is told which."""
    (tmp_path / "saved_model.pb").write_bytes(b"x")
    done = edged("inspect", tmp_path)
    assert done.returncode == 65
    assert "is a TensorFlow SavedModel" in done.stderr
    assert f"`edged convert {tmp_path} -o BUNDLE" in done.stderr


def test_inspect_a_bundle_in_a_tar_of_another_name(tmp_path: Path) -> None:
    """The first bytes of an archive tell it, whatever the name; a broken .tar is told as one."""
    tinymodel.write_dense_bundle(tmp_path / "dense.tar")
    (tmp_path / "dense.bundle").write_bytes((tmp_path / "dense.tar").read_bytes())
    assert edged("inspect", tmp_path / "dense.bundle").returncode == 0
    (tmp_path / "broken.tar").write_bytes(b"hello")
    assert "cannot be read" in edged("inspect", tmp_path / "broken.tar").stderr


def test_inspect_a_bare_model(tmp_path: Path) -> None:
    """Inputs, outputs, signature and operators of a model whose content we wrote ourselves."""
    path = tmp_path / "m.tflite"
    path.write_bytes(tinymodel.dense_model())
    facts = json.loads(edged("inspect", path, "--json").stdout)
    assert (facts["inputs"][0]["dtype"], facts["inputs"][0]["shape"]) == ("float32", [1, 3])
    assert facts["outputs"][0]["shape"] == [1, 2]
    assert facts["signatures"] == {"serving_default": {"inputs": ["x"], "outputs": ["y"]}}
    assert facts["operators"] == {"FULLY_CONNECTED": 1}
    assert "FULLY_CONNECTED 1" in edged("inspect", path).stdout
    # The magic of the format tells it, whatever the name.
    (tmp_path / "m.bin").write_bytes(path.read_bytes())
    assert edged("inspect", tmp_path / "m.bin").returncode == 0
    # A relative path means what it means where the command is typed.
    assert edged("inspect", "m.tflite", cwd=tmp_path).returncode == 0


def test_inspect_shows_what_few_models_have(tmp_path: Path) -> None:
    """Versions, kinds, state, foreign ops, open dimensions and the metadata's word, as we wrote them into the file."""
    path = tmp_path / "m.tflite"
    path.write_bytes(tflitefiles.written())
    facts = json.loads(edged("inspect", path, "--json").stdout)
    assert (facts["inputs"][0]["shape"], facts["stateful"]) == ([-1, 4], True)
    assert (facts["custom_ops"], facts["flex_ops"]) == (["MyOp"], ["FlexErf"])
    assert facts["min_runtime_version"] == "2.5.0"
    conv = next(op for op in facts["ops"] if op["name"] == "CONV_2D")
    assert conv == {"name": "CONV_2D", "version": 5, "count": 1, "kinds": {"hybrid": 1}, "custom": False}
    assert facts["constants"] == {"float16": 2, "int4": 2, "int8": 2}
    text = edged("inspect", path).stdout
    for told in ("CONV_2D v5", "hybrid ops", "keeps state", "FlexErf (need the Flex delegate)", "names runtime 2.5.0"):
        assert told in text


@pytest.mark.usefixtures("any_runtime")
def test_inspect_loads_the_model_with_every_runtime_here(tmp_path: Path) -> None:
    """What is said of an installed runtime is what its own interpreter does, XNNPACK's share included."""
    (tmp_path / "f.tflite").write_bytes(tinymodel.dense_model())
    (tmp_path / "i.tflite").write_bytes(tinymodel.int8_model())
    here = {runtime.name for runtime in tflite_runtime.installed()}
    for name, litert_takes, tflite_takes in (("f", 1, 1), ("i", 1, 0)):
        facts = json.loads(edged("inspect", tmp_path / f"{name}.tflite", "--json").stdout)
        loaded = {one["runtime"].split()[0] for one in facts["runtimes"] if one["how"] == "loaded" and one["loads"]}
        assert loaded == here
        assert {one["runtime"].split()[0] for one in facts["runtimes"]} == {r.name for r in tflite_runtime.RUNTIMES}
        measured = {d["source"].split()[0]: d["taken"] for d in facts["delegates"] if d["how"] == "measured"}
        expected = {"ai-edge-litert": litert_takes, "tflite-runtime": tflite_takes}
        assert measured == {runtime: expected[runtime] for runtime in here}
        assert all(d["total"] == 1 for d in facts["delegates"])
    assert "1 of 1 ops in 1 partition" in edged("inspect", tmp_path / "f.tflite").stdout


def test_inspect_names_the_op_version_that_a_runtime_lacks(tmp_path: Path) -> None:
    """FULLY_CONNECTED 12 of the newest converter: tflite-runtime has none, whether it is here to say so or not."""
    path = tmp_path / "m.tflite"
    path.write_bytes(tflitefiles.with_version(tinymodel.dense_model(), 12))
    facts = json.loads(edged("inspect", path, "--json").stdout)
    old = next(one for one in facts["runtimes"] if one["runtime"].startswith("tflite-runtime"))
    assert old["loads"] is False
    assert old["lacks"][0].startswith("FULLY_CONNECTED version 12")
    if old["how"] == "loaded":
        assert "FULLY_CONNECTED" in old["reason"]
    words = "does not load it: " if old["how"] == "loaded" else "lacks its ops by the table, and was not tried"
    told = edged("inspect", path).stdout
    assert words in told
    assert "it lacks FULLY_CONNECTED version 12" in told


def test_a_delegate_by_its_document(tmp_path: Path) -> None:
    """The Edge TPU takes int8 alone, by its maker's table: one model of each kind."""
    for name, model, taken in (("f", tinymodel.dense_model(), 0), ("i", tinymodel.int8_model(), 1)):
        (tmp_path / name).with_suffix(".tflite").write_bytes(model)
        facts = json.loads(edged("inspect", tmp_path / f"{name}.tflite", "--json").stdout)
        edgetpu = next(one for one in facts["delegates"] if one["delegate"] == "edgetpu")
        assert (edgetpu["how"], edgetpu["taken"], edgetpu["total"]) == ("documented", taken, 1)
        assert len(edgetpu["refused"]) == 1 - taken


@pytest.fixture
def no_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has neither TensorFlow nor a TFLite runtime."""
    for package in ("tensorflow", *(runtime.package for runtime in tflite_runtime.RUNTIMES)):
        monkeypatch.setitem(sys.modules, package, None)


def shown(path: Path, capsys: pytest.CaptureFixture[str], *, as_json: bool = True) -> str:
    """Run the command in this process and return what it prints."""
    assert inspect.run(argparse.Namespace(path=path, json=as_json)) == 0
    return capsys.readouterr().out


@pytest.mark.usefixtures("no_runtime")
def test_inspect_without_any_runtime(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bundle and bare model are read all the same; each runtime is judged by its table, XNNPACK by its document."""
    bare = tmp_path / "m.tflite"
    bare.write_bytes(tinymodel.dense_model())
    made = tinymodel.write_dense_bundle(tmp_path / "dense")
    for facts in (json.loads(shown(bare, capsys)), json.loads(shown(made, capsys))["model"]):
        assert facts["operators"] == {"FULLY_CONNECTED": 1}
        assert [one["how"] for one in facts["runtimes"]] == ["table", "table"]
        assert [one["loads"] for one in facts["runtimes"]] == [True, True]
        assert {one["how"] for one in facts["delegates"]} == {"documented"}
        assert [one["delegate"] for one in facts["delegates"]].count("xnnpack") == 2
    text = shown(bare, capsys, as_json=False)
    assert "has its ops by the table, and was not tried (not installed here)" in text
    assert [f"xnnpack ({runtime.name}), documented: at most" in text for runtime in tflite_runtime.RUNTIMES] == [
        True
    ] * 2


def test_inspect_with_tflite_runtime_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A device that has the older runtime and nothing else of ours to read files with."""
    tinymodel.require_runtime("tflite-runtime")
    path = tmp_path / "m.tflite"
    path.write_bytes(tinymodel.dense_model())
    for package in ("ai_edge_litert", "flatbuffers", "tensorflow"):
        monkeypatch.setitem(sys.modules, package, None)
    facts = json.loads(shown(path, capsys))
    assert {one["runtime"].split()[0]: one["how"] for one in facts["runtimes"]} == {
        "ai-edge-litert": "table",
        "tflite-runtime": "loaded",
    }


def rewritten(path: Path, model: bytes, **change: object) -> Path:
    """The dense bundle with another model, under the hash of that one, and with changes to its manifest."""
    made = bundle.read(tinymodel.write_dense_bundle(path.with_name("whole")))
    bundle.write(path, dataclasses.replace(made.manifest, **change), {bundle.MODEL: model})
    return path


def checked(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """`edged check` of a configuration with the bundle `b`."""
    text = "device: box\nbroker: {url: mqtt://127.0.0.1}\nmodels:\n  - {name: m, bundle: b}\n"
    (tmp_path / "edged.yaml").write_text(text)
    return edged("check", "-c", tmp_path / "edged.yaml")


@pytest.mark.parametrize(
    ("model", "change", "says"),
    [
        (lambda: b"junk", {}, "model.tflite is no .tflite: its identifier is missing"),
        (tinymodel.difference_model, {}, "model.tflite has the inputs a, b, the manifest x"),
        (tinymodel.int8_model, {}, "input 'x' is int8 1x8, scale 0.05, zero point 3, the manifest says float32 1x3"),
        (tinymodel.int8_model, {}, "quantize is none, and model.tflite has 1 int8 op"),
        (tinymodel.dense_model, {"quantize": "int8"}, "quantize is int8, and most ops of model.tflite are float"),
        (lambda: tinymodel.dense_model().replace(b"x\0\0\0", b"\n\0\0\0"), {}, "has the inputs , the manifest x"),
        (tinymodel.dense_model, {"stateful": True}, "does not keep state from one inference to the next"),
        (tinymodel.dense_model, {"signature": "other"}, "has no signature 'other': it has serving_default"),
        (
            tinymodel.dense_model,
            {"requirements": bundle.Requirements(ops={"FULLY_CONNECTED": 9})},
            "other versions of operators: FULLY_CONNECTED 1 (the manifest: 9)",
        ),
        (
            tinymodel.dense_model,
            {"requirements": bundle.Requirements(ops={"NOPE": 1})},
            "model.tflite lacks NOPE, against the manifest's list",
        ),
    ],
    ids=["junk", "names", "dtype", "quantized", "float", "escape", "state", "signature", "version", "op"],
)
def test_a_manifest_that_describes_another_model(tmp_path: Path, model: Any, change: Any, says: str) -> None:
    """Hash and size are right, and what they vouch for is another model: bad data to both commands alike."""
    rewritten(tmp_path / "b", model(), **change)
    done = edged("inspect", tmp_path / "b")
    assert done.returncode == 65
    assert done.stdout.startswith("contradiction")
    assert says in done.stdout
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    found = checked(tmp_path)
    assert found.returncode == 65
    assert says in found.stderr
    assert "ok" not in found.stdout.splitlines()


def test_a_manifest_that_describes_its_model(tmp_path: Path) -> None:
    """No contradiction in whole bundles: float, quantized, with two inputs, scales as a person writes them."""
    for write in (tinymodel.write_dense_bundle, tinymodel.write_int8_bundle, tinymodel.write_difference_bundle):
        write(tmp_path / "b")
        assert edged("inspect", tmp_path / "b").returncode == 0
        assert checked(tmp_path).returncode == 0
        shutil.rmtree(tmp_path / "b")


def test_files_that_the_manifest_does_not_know(tmp_path: Path) -> None:
    """A page beside the bundle may say anything: no hash vouches for it, and both commands say so."""
    tinymodel.write_dense_bundle(tmp_path / "b")
    (tmp_path / "b/report.html").write_text("<h1>ships</h1>")
    done = edged("inspect", tmp_path / "b")
    assert done.returncode == 0
    assert any(line.startswith("not in the manifest") and "report.html" in line for line in done.stdout.splitlines())
    assert json.loads(edged("inspect", tmp_path / "b", "--json").stdout)["unlisted"] == ["report.html"]
    found = checked(tmp_path)
    assert found.returncode == 0
    assert "report.html stands beside bundle.json and not in it" in found.stderr


def test_golden_samples_that_nobody_can_read(tmp_path: Path) -> None:
    """A header without its end, under a hash that is right: bad data to both commands, as it would be to a daemon."""
    made = bundle.read(tinymodel.write_dense_bundle(tmp_path / "whole"))
    out = io.BytesIO()
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3"
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("input/x.npy", b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header)
    bundle.write(tmp_path / "b", made.manifest, {bundle.MODEL: made.model, bundle.GOLDEN: out.getvalue()})
    for done in (edged("inspect", tmp_path / "b"), checked(tmp_path)):
        assert done.returncode == 65
        assert "golden.npz cannot be read" in done.stderr


def test_a_name_of_a_million_letters(tmp_path: Path) -> None:
    """A person is shown its beginning, a program all of it."""
    path = tmp_path / "m.tflite"
    long = "n" * 10**6
    part, types = tflitefiles.part, tflitefiles.schema().TensorType
    tensors = [part("Tensor", name=name, type=types.FLOAT32, shape=[1], buffer=0) for name in (long, "y")]
    ops = [part("Operator", opcodeIndex=0, inputs=[0], outputs=[1])]
    code = tflitefiles.code(tflitefiles.schema().BuiltinOperator.CUSTOM, customCode=long)
    graph = tflitefiles.graph(tensors, ops, [0], [1])
    path.write_bytes(tflitefiles.packed(operatorCodes=[code], subgraphs=[graph], buffers=[tflitefiles.buffer()]))
    assert len(edged("inspect", path).stdout) < 20_000
    assert json.loads(edged("inspect", path, "--json").stdout)["inputs"][0]["name"] == long


def test_what_is_neither_file_nor_directory(tmp_path: Path) -> None:
    """It is named, and never opened: a pipe would wait for ever, a device never ends."""
    os.mkfifo(tmp_path / "pipe.tflite")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "b/bundle.json")
    tinymodel.write_dense_bundle(tmp_path / "c")
    (tmp_path / "c/model.tflite").unlink()
    os.mkfifo(tmp_path / "c/model.tflite")
    for path, says in (
        (tmp_path / "pipe.tflite", "is a named pipe, not a file"),
        (Path("/dev/zero"), "is a device, not a file"),
        (tmp_path / "loop", "is a link that leads to no file"),
        (tmp_path / "b", "bundle.json is a named pipe, not a file"),
        (tmp_path / "c", "model.tflite is a named pipe, not a file"),
        (tmp_path / "nothing", "no such bundle"),
    ):
        done = edged("inspect", path)
        assert (done.returncode, done.stderr.count("\n")) == (65, 1)
        assert says in done.stderr


def test_a_file_of_terabytes_is_not_read(tmp_path: Path) -> None:
    """By its size, or by its first bytes: a sparse file that would fill any memory is refused at once."""
    for name, head, says in (
        ("a", tinymodel.dense_model(), "is 1024.0 GiB, more than is read here: a .tflite has at most 2.0 GiB"),
        ("b", b"", "is no .tflite"),
        ("c", None, "is empty"),
    ):
        path = tmp_path / f"{name}.tflite"
        path.write_bytes(head or b"")
        os.truncate(path, 0 if head is None else 1 << 40)
        done = edged("inspect", path)
        assert (done.returncode, done.stderr.count("\n")) == (65, 1)
        assert says in done.stderr
        assert "says" not in done.stderr  # no runtime was asked


@pytest.mark.parametrize("data", [b"", b"hello", b"\0\0\0\0TFL3" + b"\xff" * 64])
def test_inspect_what_is_no_model(tmp_path: Path, data: bytes) -> None:
    """Garbage is bad data: one line and 65, whether a runtime refuses it or dies of it."""
    path = tmp_path / "m.tflite"
    path.write_bytes(data)
    done = edged("inspect", path)
    assert (done.returncode, done.stderr.count("\n")) == (65, 1)
    assert done.stderr.startswith(f"edged: {path}: is ")


def test_a_damaged_model_is_refused_in_everybodys_words(tmp_path: Path) -> None:
    """Our reader's words first, then what each runtime here says, or how it died."""
    path = tmp_path / "m.tflite"
    path.write_bytes(tinymodel.slow_model(4, 2)[:600])
    done = edged("inspect", path)
    assert (done.returncode, done.stderr.count("\n")) == (65, 1)
    assert "is cut short or damaged" in done.stderr
    for runtime in tflite_runtime.RUNTIMES:
        assert (f"; {runtime.name}" in done.stderr) is runtime.installed


@pytest.mark.usefixtures("any_runtime")
def test_a_runtime_killed_by_the_model_costs_its_child(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A SIGSEGV in the child, here raised on purpose, is told by name; the rest of the file is still shown."""
    (tmp_path / "deadly.py").write_text(f"import os\nos.kill(os.getpid(), {int(signal.SIGSEGV)})\n")
    (tmp_path / "m.tflite").write_bytes(tinymodel.dense_model())
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(tflite_tried, "_MODULE", "deadly")
    facts = json.loads(shown(tmp_path / "m.tflite", capsys))
    loaded = [one for one in facts["runtimes"] if one["how"] == "loaded"]
    assert {(one["loads"], one["reason"]) for one in loaded} == {(False, "its process was killed by SIGSEGV")}
    assert "does not load it: its process was killed by SIGSEGV" in shown(tmp_path / "m.tflite", capsys, as_json=False)


def test_a_runtime_that_does_not_work_is_no_fault_of_the_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A package that is there but cannot be imported: neither loads nor refuses."""
    (tmp_path / "broken/ai_edge_litert").mkdir(parents=True)
    (tmp_path / "broken/ai_edge_litert/__init__.py").write_text("raise ImportError('no such library')")
    (tmp_path / "m.tflite").write_bytes(tinymodel.dense_model())
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "broken"))
    monkeypatch.setattr(tflite_runtime, "RUNTIMES", tflite_runtime.RUNTIMES[:1])
    monkeypatch.syspath_prepend(tmp_path / "broken")
    facts = json.loads(shown(tmp_path / "m.tflite", capsys))
    litert = next(one for one in facts["runtimes"] if one["runtime"].startswith("ai-edge-litert"))
    assert litert["loads"] is None
    assert "no such library" in litert["reason"]

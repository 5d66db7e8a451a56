"""`edged inspect` for real: bundles, bare models, what is neither, and what means harm."""

from __future__ import annotations

import dataclasses
import json
import signal
from pathlib import Path

import pytest
from support import require, tinymodel
from support.commands import edged

from edged import bundle
from edged.commands import inspect
from edged.errors import BadDataError


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


@pytest.mark.usefixtures("any_runtime")
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


def test_inspect_a_bundle_whose_model_no_runtime_reads(tmp_path: Path) -> None:
    """The bundle is as its hashes say, and is shown; only the counts are missing, with the reason."""
    made = bundle.read(tinymodel.write_dense_bundle(tmp_path / "dense"))
    bundle.write(tmp_path / "half", made.manifest, {bundle.MODEL: made.model[:100]})
    done = edged("inspect", tmp_path / "half")
    assert done.returncode == 0
    assert "not counted: " in done.stdout
    assert json.loads(edged("inspect", tmp_path / "half", "--json").stdout)["operators"] is None


def test_inspect_sends_no_escapes_to_the_terminal(tmp_path: Path) -> None:
    """A bundle of others may be called anything; what moves a cursor or changes colours is left out."""
    tinymodel.write_dense_bundle(tmp_path / "dense", name="den\x1b[31m\x9bse\r")
    done = edged("inspect", tmp_path / "dense")
    assert "den[31mse version 1" in done.stdout
    assert not any(c in done.stdout for c in "\x1b\x9b\r")


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("window.npy", b"\x93NUMPY\x01\0v\0", "is a NumPy array"),
        ("eval.npz", b"PK\x03\x04\x14", "is a zip file"),
        ("m.h5", b"\x89HDF\r\n", "is an HDF5 file"),
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


@pytest.mark.usefixtures("any_runtime")
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


@pytest.mark.usefixtures("any_runtime")
@pytest.mark.parametrize("data", [b"", b"hello", b"\0\0\0\0TFL3" + b"\xff" * 64])
def test_inspect_what_is_no_model(tmp_path: Path, data: bytes) -> None:
    """Garbage is bad data: one line and 65, whether the runtime refuses it or dies of it."""
    path = tmp_path / "m.tflite"
    path.write_bytes(data)
    done = edged("inspect", path)
    assert (done.returncode, done.stderr.count("\n")) == (65, 1)
    assert done.stderr.startswith(f"edged: {path}: ")


def test_a_runtime_killed_by_the_model_is_bad_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A SIGSEGV in the child, here raised on purpose, is told by name and costs no more than the child."""
    (tmp_path / "deadly.py").write_text(f"import os\nos.kill(os.getpid(), {int(signal.SIGSEGV)})\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(inspect, "_DESCRIBE", "deadly")
    with pytest.raises(BadDataError, match="the process that reads it was killed by SIGSEGV"):
        inspect._described(tmp_path / "m.tflite")

"""From a candidate to an engine: which model, which process, and at what cost for those who have no accelerator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import delegates, tinymodel

from edged import bundle
from edged.engines import opening
from edged.engines.candidate import Candidate
from edged.engines.tflite import TfliteEngine
from edged.engines.tflite_runtime import Runtime

HEAVY = ("subprocess", "multiprocessing", "socket", "edged.engines.isolated", "edged.engines.tflite_file")


def test_labels() -> None:
    """For a person: what, on what, and the threads where there are several."""
    assert Candidate("ai-edge-litert").label == "cpu on ai-edge-litert"
    assert Candidate("tflite-runtime", threads=4).label == "cpu on tflite-runtime, 4 threads"


def test_options_are_canonical() -> None:
    """The same options give the same candidate, in whatever order they were written."""
    first, second = {"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}
    assert Candidate.of("r", "external", first) == Candidate.of("r", "external", second)


def test_unknown_names_and_options() -> None:
    """As the registry tells them."""
    with pytest.raises(KeyError, match="warp"):
        Candidate("ai-edge-litert", "warp").create()
    with pytest.raises(ValueError, match="unknown option"):
        Candidate.of("ai-edge-litert", "cpu", {"speed": 9}).create()


def test_the_cpu_serves_in_this_process(runtime: Runtime, tmp_path: Path) -> None:
    """With the threads of the candidate."""
    loaded = bundle.read(tinymodel.write_dense_bundle(tmp_path / "b"))
    engine = opening.open_as_served(loaded, Candidate(runtime.name, threads=2))
    assert isinstance(engine, TfliteEngine)
    assert engine.info.threads == 2


def test_the_cpu_takes_the_twin(runtime: Runtime, tmp_path: Path) -> None:
    """A model compiled for an accelerator does not even open on the CPU."""
    loaded = bundle.read(delegates.adder_bundle(tmp_path / "b", twin=True))
    engine = opening.open_here(loaded, Candidate(runtime.name))
    engine.inputs[0][...] = 2
    engine.invoke()
    assert engine.outputs[0].tobytes() == delegates.adder_expected(engine.inputs[0]).tobytes()
    delegate = Candidate(runtime.name).create()
    with pytest.raises(RuntimeError, match="edged-test"):
        TfliteEngine(loaded, runtime, delegate)


def test_a_cpu_alone_pays_nothing_for_accelerators(runtime: Runtime, tmp_path: Path) -> None:
    """No module of theirs, nor of child processes, is loaded by opening a model on the CPU."""
    path = tinymodel.write_dense_bundle(tmp_path / "b")
    source = (
        "import sys; from pathlib import Path; from edged import bundle; from edged.engines import opening\n"
        "from edged.engines.candidate import Candidate\n"
        f"opening.open_here(bundle.read(Path({str(path)!r})), Candidate({runtime.name!r}))\n"
        "print(*[name for name in sys.argv[1:] if name in sys.modules])"
    )
    plain = [sys.executable, "-c", f"import sys; import {runtime.package}.interpreter\nprint(*sys.modules)"]
    brought = subprocess.run(plain, capture_output=True, text=True, check=True).stdout.split()
    ours = [name for name in HEAVY if name not in brought]
    done = subprocess.run([sys.executable, "-c", source, *ours], capture_output=True, text=True, check=True)
    assert "edged.engines.isolated" in ours
    assert done.stdout.split() == []

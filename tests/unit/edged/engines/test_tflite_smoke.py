"""Whether a runtime really works, found out in a child: stand-ins play the ones that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from edged import childprocess
from edged.engines import tflite_smoke
from edged.engines.tflite_runtime import Runtime

NUMPY_2 = "SystemError('<built-in method> returned a result with an exception set')"


def stand_in(folder: Path, body: str, numpy: str = "2.1.0") -> dict[str, str]:
    """The environment of a child that finds such a tflite-runtime, and a numpy of that version."""
    package = folder / "tflite_runtime"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "interpreter.py").write_text(f"import numpy\n{body}\n")
    (folder / "numpy").mkdir()
    (folder / "numpy/__init__.py").write_text(f"__version__ = {numpy!r}\n")
    return {**childprocess.environment(), "PYTHONPATH": f"{folder}:{Path(__file__).parents[4]}"}


def test_an_installed_runtime_works(runtime: Runtime) -> None:
    """It adds right, and its installer's version is told."""
    found = tflite_smoke.health(runtime)
    assert (found.installed, found.works, found.reason, found.fix) == (True, True, "", "")
    assert found.version[0].isdigit()


def test_the_model_computes_what_it_says(runtime: Runtime) -> None:
    """The 296 bytes are y = x + x: a runtime that answers otherwise is refused."""
    assert tflite_smoke.add(runtime.name) == ""
    interpreter = runtime.module().Interpreter(model_content=tflite_smoke.MODEL)
    interpreter.allocate_tensors()
    assert [list(one["shape"]) for one in interpreter.get_input_details()] == [[2]]


def test_a_runtime_that_is_not_here_tells_how_to_install_it() -> None:
    """No child is started for it."""
    found = tflite_smoke.health(Runtime("tflite-runtime", "no_such_package"))
    assert (found.installed, found.works) == (False, False)
    assert found.reason == "is not installed"
    assert found.fix


@pytest.mark.parametrize(
    ("body", "numpy", "reason", "fix"),
    [
        (f"def Interpreter(**k): raise {NUMPY_2}", "2.1.0", "returned a result", "pip install 'numpy<2'"),
        (f"def Interpreter(**k): raise {NUMPY_2}", "1.26.4", "returned a result", "--force-reinstall"),
        ("raise ImportError('no libfoo.so')", "1.26.4", "cannot be imported: no libfoo.so", "--force-reinstall"),
        ("import os; os.abort()", "1.26.4", "its process was killed by SIGABRT", "--force-reinstall"),
    ],
)
def test_a_runtime_that_does_not_work_tells_why(body: str, numpy: str, reason: str, fix: str, tmp_path: Path) -> None:
    """numpy 2 under tflite-runtime: the import is fine and the first Interpreter fails; a crash costs the child."""
    found = tflite_smoke.health(
        Runtime("tflite-runtime", "json"), stand_in(tmp_path, body, numpy)
    )  # any package that is here: the child looks for the real one
    assert not found.works
    assert reason in found.reason
    assert fix in found.fix

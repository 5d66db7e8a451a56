"""Any library as a delegate: the real runtimes load a real one, and every way it can be wrong is one line."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
from support import crafted, delegates

from delegates.base import Opening
from delegates.external import External
from edged.engines.tflite_runtime import Runtime

X = np.linspace(-1, 1, delegates.SIZE, dtype=np.float32).reshape(1, -1)


def external(library: object, **options: object) -> External:
    return External({"library": str(library), "options": options})


def test_it_computes_what_numpy_computes(runtime: Runtime, tmp_path: Path) -> None:
    """The delegate takes nodes of the model in both runtimes; its own log says that it was invoked."""
    log = tmp_path / "log"
    module = runtime.module()
    opened = external(delegates.library(), log=str(log)).open(module)
    interpreter = module.Interpreter(model_content=delegates.adder_model(), **opened)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], X)
    interpreter.invoke()
    answer = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    np.testing.assert_array_equal(answer, delegates.adder_expected(X))
    assert "invoke" in log.read_text()


@pytest.mark.parametrize(
    ("library", "kind", "reason"),
    [
        (lambda: "/no/such.so", OSError, "/no/such.so is not there"),
        (delegates.not_a_library, OSError, "cannot be loaded as a library"),
        (delegates.not_a_delegate, ValueError, "is no TFLite delegate: it has no tflite_plugin_create_delegate"),
    ],
)
def test_a_wrong_library_is_one_line_and_no_noise(
    library: object, kind: type[Exception], reason: str, runtime: Runtime, capfd: pytest.CaptureFixture[str]
) -> None:
    """The runtime would complain of a half-made Delegate on standard error; it is not handed such a library."""
    with pytest.raises(kind, match=reason) as caught:
        external(library()).open(runtime.module())  # type: ignore[operator]  # one of the three above
    gc.collect()
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


def test_a_refusal_is_told_in_the_librarys_words(runtime: Runtime, tmp_path: Path) -> None:
    """What the library says is told, and that it says nothing as well."""
    with pytest.raises(ValueError, match=r"^testdelegate: no such device$"):
        external(delegates.library(), fail="create").open(runtime.module())
    silent = crafted.library(tmp_path / "libsilent.so", crafted.ENTRY)
    with pytest.raises(ValueError, match=r"^its library refused, and gave no reason$"):
        external(silent).open(runtime.module())


def test_values_become_text() -> None:
    """As C++ libraries parse it: true and false in small letters."""
    told = external("lib.so", a=True, b=False, c=2, d=0.5, e="x").told(None)
    assert told == {"a": "true", "b": "false", "c": "2", "d": "0.5", "e": "x"}


def test_the_cache_is_told_only_where_there_is_one(tmp_path: Path) -> None:
    """Without a directory the option is left out, so the library does not write somewhere else."""
    kept = external("lib.so", cache_file="{cache}/model.bin", level=3)
    assert kept.caches
    assert kept.told(tmp_path) == {"cache_file": f"{tmp_path}/model.bin", "level": "3"}
    assert kept.told(None) == {"level": "3"}
    assert not external("lib.so", level=3).caches


def test_the_cache_reaches_the_library(runtime: Runtime, tmp_path: Path) -> None:
    """The test delegate keeps its compiled form where it is told to."""
    module = runtime.module()
    opened = external(delegates.library(), cache="{cache}").open(module, Opening(cache=tmp_path))
    module.Interpreter(model_content=delegates.adder_model(), **opened).allocate_tensors()
    assert (tmp_path / "compiled.bin").exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "library must name a file"),
        ({"library": 3}, "library must name a file"),
        ({"library": "build/lib.so"}, "must be an absolute path, or a bare file name"),
        ({"library": "lib.so", "options": ["a"]}, "options must be a mapping"),
        ({"library": "lib.so", "options": {"a": None}}, "option 'a' must be text, a number, true or false"),
        ({"library": "lib.so", "option": {}}, "unknown option 'option'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], reason: str) -> None:
    """Nothing of a configuration is dropped in silence."""
    with pytest.raises(ValueError, match=reason):
        External(options)


def test_a_probe_tells_the_library_and_its_version(tmp_path: Path) -> None:
    """What was found, and where; a refusal of the device shows only when it is opened."""
    versioned = tmp_path / "libany.so.2.1"
    versioned.write_bytes(delegates.library().read_bytes())
    found = external(versioned, fail="create").probe()
    assert found.available
    assert (found.library, found.version) == (str(versioned), "2.1")


@pytest.mark.parametrize("library", [delegates.not_a_delegate, delegates.not_a_library, lambda: Path("/no/such.so")])
def test_a_probe_says_what_is_wrong_and_what_to_do(library: object) -> None:
    """Never an exception."""
    path = library()  # type: ignore[operator]  # one of the three above
    found = external(path).probe()
    assert not found.available
    assert path.name in found.reason
    assert path.name in found.fix

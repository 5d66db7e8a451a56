"""`edged doctor`, the real command: what can serve here, why the rest cannot, and what would mend it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from support import crafted, delegates, require
from support.commands import edged

from delegates import registry
from edged.commands import _box
from edged.engines import tflite_runtime


def doctor(*args: object, code: int = 0, **env: str) -> dict[str, Any]:
    done = edged("doctor", "--json", *args, **env)
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def configured(folder: Path, *models: dict[str, Any], **more: Any) -> Path:
    """A configuration with these models; its bundles are not looked at."""
    models_ = [{"bundle": "b", "runtime": "auto", **model} for model in models]
    config = {"device": "d", "broker": {"url": "mqtt://localhost"}, "models": models_, "state_dir": "state", **more}
    path = folder / "edged.yaml"
    path.write_text(json.dumps(config))  # which YAML is
    return path


def test_every_runtime_and_delegate_is_told() -> None:
    """Works or why not, available or why not, for each that there is."""
    require.any_runtime()
    found = doctor()
    assert found["ok"]
    assert [one["name"] for one in found["runtimes"]] == [runtime.name for runtime in tflite_runtime.RUNTIMES]
    for runtime in tflite_runtime.RUNTIMES:
        one = next(one for one in found["runtimes"] if one["name"] == runtime.name)
        assert one["works"] is runtime.installed
    told = {one["delegate"]: one for one in found["delegates"]}
    assert set(told) == set(registry.names()) - registry.WITH_OPTIONS_ONLY
    assert told["cpu"]["available"]
    assert all(one["available"] or (one["reason"] and one["fix"]) for one in told.values())
    assert told["vx"]["note"].startswith("documented, not measured")


def test_the_table_is_one_line_for_each() -> None:
    """For a person: the reason, and the step after `fix:`."""
    done = edged("doctor")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    for name in set(registry.names()) - registry.WITH_OPTIONS_ONLY:
        assert len([line for line in lines if line.split()[:1] == [name]]) == 1
    vx = next(line for line in lines if line.split()[:1] == ["vx"])
    assert "libvx_delegate.so is not found on this system; fix: install tensorflow-lite-vx-delegate" in vx
    assert "documented, not measured" in done.stdout
    assert done.stderr == ""  # no line that moves where nobody watches


def test_a_vendors_library_is_found_on_the_library_path(tmp_path: Path) -> None:
    """Its path, and its device that is not there."""
    (tmp_path / "libvx_delegate.so").write_bytes(delegates.library().read_bytes())
    found = doctor(LD_LIBRARY_PATH=str(tmp_path))
    vx = next(one for one in found["delegates"] if one["name"] == "vx")
    assert vx["library"] == str(tmp_path / "libvx_delegate.so")
    assert vx["reason"] == "there is no /dev/galcore"


def test_what_a_configuration_wants_is_looked_for(tmp_path: Path) -> None:
    """Each model with its own candidates and options; one that crashes as it is probed costs nothing but itself."""
    crashing = crafted.library(tmp_path / "libcrash.so", crafted.ENTRY + crafted.CRASHES)
    good = {"external": {"library": str(delegates.library())}}
    wanted = [{"external": {"library": str(crashing)}}, good, "cpu", {"edgetpu": {"device": "usb:1"}}]
    models = {"name": "a", "delegates": wanted}, {"name": "b"}
    found = doctor("-c", configured(tmp_path, *models))
    first, second = found["models"]
    assert [(one["name"], one["available"]) for one in first["delegates"]] == [
        ("external:libcrash.so", False),
        ("external:libedged_testdelegate.so", True),
        ("cpu", True),
        ("edgetpu", False),
    ]
    assert first["delegates"][0]["reason"] == "its process was killed by SIGSEGV while it was probed"
    assert (first["ok"], second["ok"]) == (True, True)
    assert "cpu" in [one["name"] for one in second["delegates"]]


def test_a_model_without_what_it_asks_for_is_69(tmp_path: Path) -> None:
    """By library; a mistake in an option is one of the configuration, and told by its line."""
    gone = {"name": "gone", "delegates": [{"external": {"library": "/no/such.so"}}]}
    typo = {"name": "typo", "delegates": [{"edgetpu": {"divice": "usb"}}]}
    fine = {"name": "fine", "delegates": ["cpu"]}
    found = doctor("-c", configured(tmp_path, gone, fine), code=69)
    assert [model["ok"] for model in found["models"]] == [False, True]
    assert found["models"][0]["delegates"][0]["reason"] == "/no/such.so is not there"
    wrong = edged("doctor", "-c", configured(tmp_path, typo))
    assert (wrong.returncode, "unknown option 'divice'" in wrong.stderr) == (78, True)
    done = edged("doctor", "-c", configured(tmp_path, gone))
    assert done.returncode == 69
    assert "model gone: nothing of what it asks for is here" in done.stdout


def test_a_delegate_needs_a_runtime_that_works(tmp_path: Path) -> None:
    """A model that insists on a runtime which fails at its first Interpreter: told with what mends the runtime."""
    package = tmp_path / "path/tflite_runtime"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "interpreter.py").write_text("def Interpreter(**_): raise SystemError('numpy')\n")
    model = {"name": "a", "delegates": ["cpu"], "runtime": "tflite-runtime"}
    found = doctor("-c", configured(tmp_path, model), code=69, PYTHONPATH=str(package.parent))
    (cpu,) = found["models"][0]["delegates"]
    assert cpu["reason"] == "it needs ai-edge-litert or tflite-runtime, and none works"
    assert "pip install" in cpu["fix"]
    tflite = next(one for one in found["runtimes"] if one["name"] == "tflite-runtime")
    assert (tflite["installed"], tflite["works"], tflite["reason"]) == (True, False, "numpy")


def test_a_delegate_needs_a_runtime_that_is_allowed(tmp_path: Path) -> None:
    """What it lacks besides is not told first: to mend that would change nothing."""
    model = {"name": "a", "delegates": ["gpu"], "runtime": "tflite-runtime"}
    (gpu,) = doctor("-c", configured(tmp_path, model), code=69)["models"][0]["delegates"]
    assert gpu["reason"] == "it needs ai-edge-litert, which `runtime:` does not allow"
    assert "runtime: auto" in gpu["fix"]


def test_a_wrong_configuration_is_78(tmp_path: Path) -> None:
    """As everywhere, one line for each problem."""
    path = tmp_path / "edged.yaml"
    path.write_text("device: d\n")
    done = edged("doctor", "-c", path)
    assert done.returncode == 78
    assert done.stdout == ""


def test_the_box_is_described(tmp_path: Path) -> None:
    """Kernel and cores by the system's own word; a state directory that cannot be written is told with the fix."""
    (tmp_path / "taken").touch()
    found = doctor("-c", configured(tmp_path, {"name": "a"}, state_dir="taken/edged"))["box"]
    assert os.uname().release in found["kernel"]
    assert found["cores"] == os.cpu_count()
    needs = {need["what"]: need for need in found["needs"]}
    assert not needs["state_dir"]["ok"]
    assert "state_dir" in needs["state_dir"]["fix"]
    assert needs["eventfd"]["ok"]
    assert needs["memfd"]["ok"]


@pytest.mark.parametrize(
    ("text", "name", "flags"),
    [
        ("model name\t: AMD EPYC\nflags\t\t: fpu avx2 avx fma\n", "AMD EPYC", ["avx", "avx2", "fma"]),
        ("processor\t: 0\nFeatures\t: fp asimd asimddp crc32\nModel\t\t: Pi 5\n", "Pi 5", ["asimd", "asimddp"]),
        ("", "", []),
    ],
)
def test_a_processor_is_read_as_the_kernel_writes_it(text: str, name: str, flags: list[str]) -> None:
    """x86 and ARM write other keys."""
    assert _box.processor(text) == (name, flags)


def test_a_user_without_the_right_learns_where_it_comes_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither nice nor FIFO: the systemd unit grants both."""
    monkeypatch.setattr(_box.affinity, "raise_priority", lambda mode: f"{mode} not permitted")
    needs = {need["what"]: need for need in _box.facts(tmp_path)["needs"]}
    assert not needs["priority"]["ok"]
    assert "edged sample systemd/edged.service" in needs["priority"]["fix"]
    assert any("fix: the unit of" in row[1] for row in _box.rows(_box.facts(tmp_path)))

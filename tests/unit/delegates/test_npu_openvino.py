"""OpenVINO's probe on machines made of files, and what it tells the runtime."""

from __future__ import annotations

import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from delegates import litertwheel, npu_openvino
from delegates.base import Opening
from delegates.npu_openvino import NpuOpenvino

VERSIONS = {"ai-edge-litert": "2.3.0"}


class Machine:
    """A root directory, a wheel, and the libraries that cannot be opened."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root, self.wheel, self.broken, self.versions = root / "root", root / "wheel", "", dict(VERSIONS)
        for file in (npu_openvino.DISPATCH, npu_openvino.COMPILER):
            (self.wheel / file).parent.mkdir(parents=True)
            (self.wheel / file).touch()
        patch.setattr(litertwheel, "folder", lambda: self.wheel)
        patch.setattr(litertwheel, "installed", lambda name="ai-edge-litert": self.versions.get(name, ""))

    def load(self, names: Sequence[str]) -> None:
        if self.broken and self.broken in names[0]:
            raise OSError(f"{names[0]} needs libopenvino.so.2631, which is not found on this system")

    def node(self, name: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def openvino(self, device: str = "NPU") -> NpuOpenvino:
        return NpuOpenvino({"device": device}, self.root, self.load)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_an_npu_is_available_when_all_of_its_parts_are_there(machine: Machine) -> None:
    """Plugins that load, and a node that opens."""
    machine.node("dev/accel/accel0")
    found = machine.openvino().probe()
    assert (found.available, found.device, found.version) == (True, "/dev/accel/accel0", "2.3.0")
    assert found.library.endswith("libLiteRtDispatch_IntelOpenvino.so")


def test_without_hardware_it_says_so_by_name(machine: Machine) -> None:
    """No node is no NPU: it is not left to OpenVINO, which would say something about a compiler."""
    found = machine.openvino().probe()
    assert (found.available, found.reason) == (False, "no Intel NPU: there is no /dev/accel/accel*")
    assert "linux-npu-driver" in found.fix
    assert machine.openvino("GPU").probe().reason == "no Intel GPU: there is no /dev/dri/renderD*"
    machine.node("dev/dri/renderD128")
    machine.broken = npu_openvino.OPENCL
    assert "intel-opencl-icd" in machine.openvino("GPU").probe().fix
    assert machine.openvino("CPU").probe().device == "cpu"


@pytest.mark.parametrize("half", ["dispatch", "compiler"])
def test_missing_openvino_is_mended_by_the_sdk_of_the_same_version(machine: Machine, half: str) -> None:
    """The plugins load OpenVINO only from beside them: the fix is one pip line; one for another version is named."""
    machine.broken = half
    found = machine.openvino("CPU").probe()
    assert not found.available
    assert "libopenvino.so.2631" in found.reason
    assert found.fix == "pip install ai-edge-litert-sdk-intel==2.3.0"
    assert "2.2.0" not in found.reason
    machine.versions[npu_openvino.SDK] = "2.2.0"
    assert "ai-edge-litert-sdk-intel 2.2.0 is installed, and 2.3.0 is needed" in machine.openvino("CPU").probe().reason


def test_a_wheel_without_plugins_is_told(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wheels for aarch64 bring none."""
    (machine.wheel / npu_openvino.COMPILER).unlink()
    found = machine.openvino("CPU").probe()
    assert found.reason == "ai-edge-litert 2.3.0 for this machine brings no libLiteRtCompilerPlugin_IntelOpenvino.so"
    monkeypatch.setattr(litertwheel, "folder", lambda: None)
    assert machine.openvino().probe().reason == "no ai-edge-litert"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"device": "npu"}, "device must be one of NPU, GPU, CPU, not 'npu'"),
        ({"performance": "fast"}, "performance must be one of latency, throughput, cumulative_throughput"),
        ({"weight_sharing": 1}, "weight_sharing must be true or false"),
        ({"properties": {"CACHE_DIR": "/tmp"}}, "CACHE_DIR"),
        ({"properties": {"X": [1]}}, "option 'X' must be text"),
        ({"cache": "x"}, "unknown option 'cache'"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options: dict[str, Any], words: str) -> None:
    """Nothing of a configuration is passed over; the cache that cannot be read back is refused with the reason."""
    with pytest.raises(ValueError, match="npu_openvino: ") as caught:
        NpuOpenvino(options)
    assert words in str(caught.value)


def test_what_is_no_npu_is_not_named_as_one() -> None:
    """Replies carry the name: an answer of OpenVINO's CPU must not look like the NPU's."""
    names = [NpuOpenvino(options).name for options in (None, {"device": "NPU"}, {"device": "CPU"})]
    assert names == ["npu_openvino", "npu_openvino", "npu_openvino:CPU"]


def test_the_runtime_is_told_what_was_asked_for(tmp_path: Path) -> None:
    """Device, mode, properties; the plugins of this vendor and no other."""
    module = pytest.importorskip("ai_edge_litert.compiled_model")
    options = {"device": "CPU", "performance": "throughput", "weight_sharing": False, "properties": {"X": True}}
    told = NpuOpenvino(options).open(module, Opening(cache=tmp_path, alone=False, threads=2))
    flat = told["options"]._as_flat_kwargs()
    assert flat["hardware_accel"] == module.HardwareAccelerator.NPU | module.HardwareAccelerator.CPU
    assert (flat["intel_openvino_graph_backend"], flat["intel_openvino_performance_mode"]) == (0, 1)
    assert (flat["intel_openvino_configs_map"], flat["intel_openvino_enable_weight_sharing"]) == ({"X": "true"}, 0)
    assert flat["xnnpack_weight_cache_path"].startswith(str(tmp_path))
    assert told["environment"].options.compiler_plugin_path.endswith("intel_openvino/compiler")
    alone = NpuOpenvino().open(module)["options"]._as_flat_kwargs()
    assert (alone["hardware_accel"], alone["intel_openvino_graph_backend"]) == (module.HardwareAccelerator.NPU, 2)


def test_an_old_package_is_refused_with_the_command() -> None:
    """ai-edge-litert 2.1 has CompiledModel and no IntelOpenVinoOptions."""
    with pytest.raises(ValueError, match="pip install --upgrade"):
        NpuOpenvino().open(types.ModuleType("compiled_model"))

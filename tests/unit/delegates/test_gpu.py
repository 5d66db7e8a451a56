"""The GPU's probe on machines made of files, and what it tells the runtime."""

from __future__ import annotations

import json
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from delegates import devices, drivers, gpu, litertwheel
from delegates.base import Opening
from delegates.gpu import Gpu


class Machine:
    """A root directory, a wheel, and the libraries that can be opened."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root, self.loads = root / "root", True
        self.wheel = root / "wheel"
        self.wheel.mkdir()
        (self.wheel / gpu.LIBRARY).touch()
        patch.setattr(litertwheel, "folder", lambda: self.wheel)
        patch.setattr(litertwheel, "installed", lambda _name="": "2.3.0")
        for name in (*drivers.VULKAN_ONLY, drivers.VULKAN_MORE):
            patch.delenv(name, raising=False)

    def load(self, names: Sequence[str]) -> None:
        if not self.loads:
            raise OSError(f"{names[0]} is not found on this system")

    def driver(self, library: str, folder: str = "usr/share/vulkan/icd.d") -> Path:
        file = self.root / folder / f"{library}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": {"library_path": f"/usr/lib/{library}"}}))
        return file

    def node(self, name: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return path

    @property
    def gpu(self) -> Gpu:
        return Gpu(root=self.root, load=self.load)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_a_gpu_with_its_driver_is_available(machine: Machine) -> None:
    """The whole chain is there: told with the library, the version and the node."""
    machine.driver("libvulkan_intel.so")
    machine.node("dev/dri/renderD128")
    found = machine.gpu.probe()
    assert (found.available, found.device, found.version) == (True, "/dev/dri/renderD128", "2.3.0")
    assert found.library == str(machine.wheel / gpu.LIBRARY)


def test_every_missing_link_has_its_reason_and_its_fix(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """No loader, no driver, no node, no library in the wheel, no package: each is told by name."""
    machine.loads = False
    found = machine.gpu.probe()
    assert (found.reason, found.fix) == (
        "libvulkan.so.1 is not found on this system",
        "sudo apt-get install libvulkan1",
    )
    machine.loads = True
    found = machine.gpu.probe()
    assert found.reason == "Vulkan has no driver"
    assert "mesa-vulkan-drivers" in found.fix
    machine.driver("libvulkan_intel.so")
    assert "libvulkan_intel.so" in machine.gpu.probe().reason
    assert "/dev/dri/renderD*" in machine.gpu.probe().reason
    (machine.wheel / gpu.LIBRARY).unlink()
    assert machine.gpu.probe().reason == f"ai-edge-litert 2.3.0 brings no {gpu.LIBRARY}"
    monkeypatch.setattr(litertwheel, "folder", lambda: None)
    assert machine.gpu.probe().reason == "no ai-edge-litert"
    assert not machine.gpu.probe().available


def test_a_node_of_others_is_told_with_the_group_to_join(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user outside the group of /dev/dri/renderD128 learns the very command."""
    machine.driver("libvulkan_radeon.so")
    machine.node("dev/dri/renderD128")
    monkeypatch.setattr(devices.os, "access", lambda *_: False)
    monkeypatch.setattr(
        devices, "refused", lambda path, root: (f"{devices.shown(path, root)} is not for you", "join it")
    )
    found = machine.gpu.probe()
    assert (found.available, found.reason, found.fix) == (False, "/dev/dri/renderD128 is not for you", "join it")


@pytest.mark.parametrize("library", ["libvulkan_lvp.so", "libvk_swiftshader.so"])
def test_a_software_rasterizer_is_named_as_one(machine: Machine, library: str) -> None:
    """It can be measured, and must not look like a GPU in the table."""
    machine.driver(library)
    found = machine.gpu.probe()
    assert found.available
    assert found.device == f"software rasterizer {library}: no GPU"


def test_drivers_are_found_as_the_loader_finds_them(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """VK_DRIVER_FILES alone counts where it is set; a damaged description is passed over; added ones are added."""
    machine.driver("libvulkan_intel.so", "etc/vulkan/icd.d").write_text("{")
    assert machine.gpu.probe().reason == "Vulkan has no driver"
    machine.driver("libvulkan_radeon.so")
    soft = machine.driver("libvk_swiftshader.so", "elsewhere")
    machine.node("dev/dri/renderD128")
    assert machine.gpu.probe().device == "/dev/dri/renderD128"
    monkeypatch.setenv("VK_ICD_FILENAMES", str(soft))
    assert machine.gpu.probe().device.startswith("software rasterizer libvk_swiftshader.so")
    monkeypatch.setenv("VK_ADD_DRIVER_FILES", str(machine.driver("libvulkan_nouveau.so", "elsewhere")))
    assert machine.gpu.probe().device == "/dev/dri/renderD128"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"precision": "float16"}, "precision must be auto or float32, not 'float16'"),
        ({"infinite_float_capping": "yes"}, "infinite_float_capping must be true or false"),
        ({"allow_src_quantized_fc_conv_ops": True}, "needs constant_tensor_sharing"),
        ({"benchmark_mode": True}, "unknown option 'benchmark_mode' (known: precision, "),
    ],
)
def test_a_wrong_option_is_refused_by_name(options: dict[str, Any], words: str) -> None:
    """Nothing of a configuration is passed over."""
    with pytest.raises(ValueError, match="gpu: ") as caught:
        Gpu(options)
    assert words in str(caught.value)


def test_the_runtime_is_told_what_was_asked_for(tmp_path: Path) -> None:
    """Alone, the GPU and nothing else; beside the CPU, with its threads and the cache as a file."""
    module = pytest.importorskip("ai_edge_litert.compiled_model")
    both = {"constant_tensor_sharing": True, "allow_src_quantized_fc_conv_ops": True}
    told = Gpu({"precision": "float32", **both}).open(module)["options"]._as_flat_kwargs()
    assert told["hardware_accel"] == module.HardwareAccelerator.GPU
    assert told["gpu_enforce_f32"]
    assert told["enable_constant_tensor_sharing"]
    assert told["enable_allow_src_quantized_fc_conv_ops"]
    assert not told["xnnpack_weight_cache_path"]
    how = Opening(cache=tmp_path, alone=False, threads=3)
    told = Gpu().open(module, how)["options"]._as_flat_kwargs()
    assert told["hardware_accel"] == module.HardwareAccelerator.GPU | module.HardwareAccelerator.CPU
    assert (told["cpu_num_threads"], told["gpu_enforce_f32"]) == (3, False)
    assert told["xnnpack_weight_cache_path"] == str(tmp_path / gpu.WEIGHTS)


def test_an_old_package_is_refused_with_the_command() -> None:
    """ai-edge-litert 2.1 has CompiledModel and no GpuOptions."""
    with pytest.raises(ValueError, match="pip install --upgrade"):
        Gpu().open(types.ModuleType("compiled_model"))

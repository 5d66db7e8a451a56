"""What the probes look at is what `places` says: whoever asks whether the machine has changed looks there alone."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from support import delegates

from delegates import devices, drivers, gpu, litertwheel, npu_openvino, places, registry
from delegates.edgetpu import Edgetpu
from delegates.gpu import Gpu
from delegates.npu_openvino import NpuOpenvino
from delegates.vendors import ROWS, Vendor


class Looks:
    """Notes the patterns and ids that a probe looks for."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.nodes: set[str] = set()
        self.usb: set[str] = set()
        patch.setattr(devices, "nodes", self._nodes)
        patch.setattr(devices, "usb", self._usb)

    def _nodes(self, patterns: Iterable[str], _root: Path = devices.ROOT) -> list[Path]:
        self.nodes |= set(patterns)
        return []

    def _usb(self, ids: Collection[str], _root: Path = devices.ROOT) -> list[Path]:
        self.usb |= set(ids)
        return []


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


def probed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Make the delegates of this name, with libraries that are there as far as they can tell."""
    library = {"library": str(delegates.library())}
    if name in ROWS:
        yield Vendor(ROWS[name], library)
    if name == "edgetpu":
        yield Edgetpu(library)
    monkeypatch.setattr(litertwheel, "folder", lambda: tmp_path)
    for file in (gpu.LIBRARY, npu_openvino.DISPATCH, npu_openvino.COMPILER):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    if name == "gpu":
        yield Gpu(load=lambda _: None)
    if name == "npu_openvino":
        yield from (NpuOpenvino({"device": device}, load=lambda _: None) for device in npu_openvino.DEVICES)


@pytest.mark.parametrize("name", sorted(places.PLACES))
def test_each_probe_looks_where_places_says(
    name: str, looks: Looks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every node and every USB id of its row, and for no other."""
    made = list(probed(name, tmp_path, monkeypatch))
    assert made
    for delegate in made:
        delegate.probe()
    assert (looks.nodes, looks.usb) == (set(places.of(name).nodes), set(places.of(name).usb))


def test_every_delegate_that_can_be_looked_for_has_a_row() -> None:
    """One that is added is not forgotten here."""
    assert set(places.PLACES) == set(registry.BUILT_IN) - registry.WITH_OPTIONS_ONLY - {"cpu"}


@pytest.mark.parametrize("module", ["gpu", "npu_openvino", "vendors", "edgetpu"])
def test_no_delegate_names_a_node_of_its_own(module: str) -> None:
    """The patterns have one home."""
    text = (Path(places.__file__).parent / f"{module}.py").read_text()
    assert re.findall(r'"dev/[a-z]', text) == []


def test_the_variables_of_the_drivers_are_heeded() -> None:
    """Those that say where Vulkan's drivers are, and the one that `npu_openvino` tells people of."""
    for name, variables in (
        ("gpu", (*drivers.VULKAN_ONLY, drivers.VULKAN_MORE)),
        ("npu_openvino", ("ONEDNN_MAX_CPU_ISA",)),
    ):
        patterns = places.of(name).variables
        assert all(any(fnmatchcase(variable, pattern) for pattern in patterns) for variable in variables)


def test_reading_it_imports_nothing_heavy() -> None:
    """It is read at every start."""
    code = "import sys, delegates.places, delegates.drivers, delegates.devices; print(*sys.modules)"
    root = Path(places.__file__).parents[1]
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, timeout=30,
                          cwd=root)  # fmt: skip
    assert not {"ctypes", "importlib.metadata", "subprocess", "numpy"} & set(done.stdout.split())


def test_opencl_descriptions_name_their_library(tmp_path: Path) -> None:
    """A line of text with the library's name, as the Khronos loader reads it."""
    (tmp_path / drivers.OPENCL_FOLDER).mkdir(parents=True)
    (tmp_path / drivers.OPENCL_FOLDER / "intel.icd").write_text("libigdrcl.so\n")
    (file,) = drivers.opencl(tmp_path, {})
    assert drivers.library(file) == "libigdrcl.so"

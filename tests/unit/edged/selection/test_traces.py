"""A driver that changed, or is another one, shows; so does each variable that the delegate heeds."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from delegates import devices, places
from delegates.places import Places
from edged.selection.traces import libraries, library_folders, stamp, traces

VULKAN = Places(drivers=("vulkan",))


def describe(root: Path, library: str, name: str = "driver.json") -> Path:
    file = root / "usr/share/vulkan/icd.d" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"ICD": {"library_path": library}}))
    os.utime(file, ns=(1, 1))
    return file


@pytest.mark.parametrize(
    "library", ["libvulkan_intel.so", "../../../lib/libvulkan_intel.so", "{root}/usr/lib/libvulkan_intel.so"]
)
def test_a_new_version_of_a_driver_shows(library: str, tmp_path: Path) -> None:
    """Named bare, beside its description or by its whole path: the library that it names is looked at."""
    describe(tmp_path, library.format(root=tmp_path))
    driver = tmp_path / "usr/lib/libvulkan_intel.so"
    driver.parent.mkdir(parents=True)
    driver.write_bytes(b"1.0")
    os.utime(driver, ns=(1, 1))
    before = traces([VULKAN], {}, tmp_path)
    assert traces([VULKAN], {}, tmp_path) == before
    driver.write_bytes(b"1.0.1")
    assert traces([VULKAN], {}, tmp_path) != before


def test_another_driver_shows(tmp_path: Path) -> None:
    """One that is added, by a package or by a variable; and one that is damaged is no error."""
    found = {traces([VULKAN], {}, tmp_path)}
    describe(tmp_path, "libvulkan_lvp.so")
    found.add(traces([VULKAN], {}, tmp_path))
    other = describe(tmp_path / "other", "libvulkan_radeon.so")
    found.add(traces([VULKAN], {"VK_ADD_DRIVER_FILES": str(other)}, tmp_path))
    found.add(traces([VULKAN], {"VK_DRIVER_FILES": str(other)}, tmp_path))
    other.write_text("[")
    found.add(traces([VULKAN], {"VK_DRIVER_FILES": str(other)}, tmp_path))
    assert len(found) == 5


def test_a_node_and_the_right_to_open_it_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that was not there when a software driver was measured is there now."""
    row = places.of("gpu")
    before = traces([row], {}, tmp_path)
    (tmp_path / "dev/dri").mkdir(parents=True)
    (tmp_path / "dev/dri/renderD128").touch()
    there = traces([row], {}, tmp_path)
    monkeypatch.setattr(devices, "may_open", lambda _: False)
    assert len({before, there, traces([row], {}, tmp_path)}) == 3


@pytest.mark.parametrize(
    ("name", "variable", "seen"),
    [
        ("gpu", "VK_LOADER_DRIVERS_SELECT", True),
        ("gpu", "MESA_VK_DEVICE_SELECT", True),
        ("gpu", "ONEDNN_MAX_CPU_ISA", False),
        ("npu_openvino", "ONEDNN_MAX_CPU_ISA", True),
        ("vx", "USE_GPU_INFERENCE", True),
        ("edgetpu", "HOME", False),
    ],
)
def test_variables_show_to_whom_they_concern(name: str, variable: str, seen: bool, tmp_path: Path) -> None:
    """By patterns of names: a loader has more of them than anyone lists."""
    row = places.of(name)
    assert (traces([row], {variable: "1"}, tmp_path) != traces([row], {}, tmp_path)) == seen
    assert (traces([row], {variable: "1"}, tmp_path) != traces([row], {variable: "2"}, tmp_path)) == seen


def test_libraries_are_looked_for_where_the_loader_does_first(tmp_path: Path) -> None:
    """The variable's directories, then the machine's own before the common one."""
    own = tmp_path / f"usr/lib/{os.uname().machine}-linux-gnu"
    own.mkdir(parents=True)
    found = library_folders({"LD_LIBRARY_PATH": f"/a{os.pathsep}/b"}, tmp_path)
    assert found[:2] == ["/a", "/b"]
    assert found.index(str(own)) < found.index(str(tmp_path / "usr/lib"))


def test_nothing_has_no_stamp(tmp_path: Path) -> None:
    """Neither has no library one, and one that is gone says so."""
    assert stamp("") == ""
    assert stamp(str(tmp_path / "a")) == f"{tmp_path / 'a'} (gone)"


def test_every_file_that_a_bare_name_may_lead_to_is_told(tmp_path: Path) -> None:
    """In a folder of the variable, in a usual one, and in the loader's list; a link by what it leads to."""
    chip, usual, listed = tmp_path / "chip", tmp_path / "usr/lib", tmp_path / "vendor"
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.cache").write_bytes(b"glibc-ld.so.cache1.1\0\1libq.so.1\0%s/libq.so.1\0" % bytes(listed))
    told = []
    for folder in (listed, usual, chip):
        folder.mkdir(parents=True)
        (folder / "libq.so.1.0").write_bytes(b"1")
        (folder / "libq.so.1").symlink_to("libq.so.1.0")
        (folder / "other-libq.so.1").touch()
        told.append(libraries(["libq.so.1"], {"LD_LIBRARY_PATH": str(chip)}, tmp_path))
    assert [len(found) for found in told] == [1, 2, 3]
    assert told[2] == sorted(stamp(str(folder / "libq.so.1.0")) for folder in (listed, usual, chip))
    (listed / "libq.so.1.1").write_bytes(b"11")
    (listed / "libq.so.1").unlink()
    (listed / "libq.so.1").symlink_to("libq.so.1.1")
    assert stamp(str(listed / "libq.so.1.1")) in libraries(["libq.so.1"], {}, tmp_path)


def test_nothing_is_looked_at_for_no_name(tmp_path: Path) -> None:
    """As of the CPU; and no list of the loader is no error."""
    assert libraries([], {}, tmp_path) == []
    assert libraries(["libq.so.1"], {}, tmp_path) == []

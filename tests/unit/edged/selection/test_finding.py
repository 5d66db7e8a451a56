"""What tells that other delegates may be here now, and what does not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support import require

from delegates import devices
from delegates.places import PLACES
from edged.selection import finding


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine of our own below a temporary directory: libraries, and an Edge TPU on USB."""
    require.any_runtime()
    for folder in ("usr/lib", "dev/dri", "dev/bus/usb/001", "sys/bus/usb/devices/1-1", "sys/bus/usb/devices/1-1:1.0"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "dev/bus/usb/001/005").touch()
    for name, value in (("idVendor", "1a6e"), ("idProduct", "089a"), ("busnum", "1"), ("devnum", "5")):
        (tmp_path / "sys/bus/usb/devices/1-1" / name).write_text(f"{value}\n")
    return tmp_path


def install(machine: Path) -> None:
    (machine / "usr/lib/libedgetpu.so.1").touch()
    os.utime(machine / "usr/lib", ns=(1, 1))


def load_driver(machine: Path) -> None:
    (machine / "dev/dri/renderD128").touch()


def unplug(machine: Path) -> None:
    (machine / "sys/bus/usb/devices/1-1/idVendor").write_text("1d6b")


def describe_driver(machine: Path) -> None:
    (machine / "etc/vulkan/icd.d").mkdir(parents=True)
    (machine / "etc/vulkan/icd.d/intel.json").write_text('{"ICD": {"library_path": "libvulkan_intel.so"}}')


@pytest.mark.parametrize("change", [install, load_driver, unplug, describe_driver])
def test_what_brings_a_delegate_changes_the_looks(change: Callable[[Path], None], machine: Path) -> None:
    """A library in a usual place, a node, a USB device that is gone, a description of a driver."""
    before = finding.looks(machine)
    assert finding.looks(machine) == before
    change(machine)
    assert finding.looks(machine) != before


@pytest.mark.parametrize("node", ["dev/dri/renderD128", "dev/apex_0", "dev/accel/accel0", "dev/bus/usb/001/005"])
def test_so_does_the_right_to_open_a_node(node: str, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A udev rule, or a group: what could not be opened can."""
    (machine / node).parent.mkdir(exist_ok=True)
    (machine / node).touch()
    before = finding.looks(machine)
    monkeypatch.setattr(devices, "may_open", lambda path: path != machine / node)
    assert finding.looks(machine) != before


@pytest.mark.parametrize("name", sorted(PLACES))
def test_every_node_of_every_delegate_is_looked_at(name: str, machine: Path) -> None:
    """The delegates' own facts are what is looked at: a node for each of their patterns is seen."""
    for pattern in PLACES[name].nodes:
        before = finding.looks(machine)
        node = machine / pattern.replace("[0-9]", "7").replace("*", "7")
        node.parent.mkdir(parents=True, exist_ok=True)
        node.touch()
        assert finding.looks(machine) != before


@pytest.mark.parametrize("name", ["LD_LIBRARY_PATH", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES", "ONEDNN_MAX_CPU_ISA"])
def test_so_do_the_variables_that_delegates_heed(name: str, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment decides what the loader finds, and what a delegate does."""
    before = finding.looks(machine)
    monkeypatch.setenv(name, str(machine))
    assert finding.looks(machine) != before


def test_a_device_that_names_itself_anew_does_not(machine: Path) -> None:
    """The first inference loads its firmware: other ids, another node, and the same delegate."""
    before = finding.looks(machine)
    for name, value in (("idVendor", "18d1"), ("idProduct", "9302"), ("devnum", "6")):
        (machine / "sys/bus/usb/devices/1-1" / name).write_text(value)
    (machine / "dev/bus/usb/001/005").rename(machine / "dev/bus/usb/001/006")
    assert finding.looks(machine) == before


def test_a_file_in_the_working_directory_does_not(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that writes its logs where it was started does not look for accelerators at each start."""
    monkeypatch.chdir(machine)
    monkeypatch.syspath_prepend(str(machine))
    before = finding.looks(machine)
    (machine / "edged.log").write_text("started")
    assert finding.looks(machine) == before

"""What tells that other delegates may be here now, and what does not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support import require

from edged.selection import finding


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of our own: libraries, nodes and USB devices below a temporary directory."""
    require.any_runtime()
    for folder in ("lib", "dri", "usb/1-1", "usb/1-1:1.0"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "usb/1-1/idVendor").write_text("1a6e\n")
    (tmp_path / "usb/1-1/idProduct").write_text("089a\n")
    monkeypatch.setattr(finding, "_LIBRARIES", (str(tmp_path / "lib"),))
    monkeypatch.setattr(finding, "_FOLDERS", (str(tmp_path / "dri"),))
    monkeypatch.setattr(finding, "_USB", tmp_path / "usb")
    return tmp_path


def install(machine: Path) -> None:
    (machine / "lib" / "libedgetpu.so.1").touch()
    os.utime(machine / "lib", ns=(1, 1))


def load_driver(machine: Path) -> None:
    (machine / "dri" / "renderD128").touch()


def plug_in(machine: Path) -> None:
    (machine / "usb/1-2").mkdir()


def load_firmware(machine: Path) -> None:
    (machine / "usb/1-1/idVendor").write_text("18d1\n")


@pytest.mark.parametrize("change", [install, load_driver, plug_in, load_firmware])
def test_what_brings_a_delegate_changes_the_looks(change: Callable[[Path], None], machine: Path) -> None:
    """A library in a usual place, a node, a USB device, one that names itself anew."""
    before = finding.looks()
    assert finding.looks() == before
    change(machine)
    assert finding.looks() != before


@pytest.mark.parametrize("name", ["LD_LIBRARY_PATH", "VK_ICD_FILENAMES"])
def test_so_does_where_libraries_are_looked_for(name: str, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment decides what the loader finds."""
    before = finding.looks()
    monkeypatch.setenv(name, str(machine))
    assert finding.looks() != before


def test_a_file_in_the_working_directory_does_not(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that writes its logs where it was started does not look for accelerators at each start."""
    monkeypatch.chdir(machine)
    monkeypatch.syspath_prepend(str(machine))
    before = finding.looks()
    (machine / "edged.log").write_text("started")
    assert finding.looks() == before

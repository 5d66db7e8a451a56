"""The Edge TPU: its grammar of devices, and what a made-up sysfs tells the probe."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support import crafted

from delegates.base import Probe
from delegates.edgetpu import Edgetpu


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    source = crafted.ENTRY + crafted.VERSION
    return str(crafted.library(tmp_path_factory.mktemp("lib") / "libedgetpu.so.1.0", source))


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """The root of a machine without devices."""
    for folder in ("sys/bus/usb/devices/usb1", "sys/bus/pci/devices", "dev/bus/usb/001"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def usb(box: Path, port: str, ids: str, number: int, *, mode: int = 0o600) -> None:
    folder = box / f"sys/bus/usb/devices/{port}"
    folder.mkdir()
    vendor, product = ids.split(":")
    for name, value in {"idVendor": vendor, "idProduct": product, "busnum": "1", "devnum": str(number)}.items():
        (folder / name).write_text(f"{value}\n")
    node = box / f"dev/bus/usb/001/{number:03}"
    node.touch()
    node.chmod(mode)


def pci(box: Path, *, driver: bool) -> None:
    folder = box / "sys/bus/pci/devices/0000:01:00.0"
    folder.mkdir()
    (folder / "vendor").write_text("0x1ac1\n")
    (folder / "device").write_text("0x089a\n")
    if driver:
        (box / "dev/apex_0").touch()


def probe(box: Path, library: str, device: str | None = None) -> Probe:
    options = {"library": library} | ({} if device is None else {"device": device})
    return Edgetpu(options, box).probe()


@pytest.mark.parametrize("device", ["", "usb", "pci", "usb:0", "pci:12", ":3"])
def test_the_grammar_of_devices_is_libedgetpus(device: str) -> None:
    """Every form that libedgetpu documents goes to it as it is."""
    assert Edgetpu({"device": device}).told(None) == {"device": device}


@pytest.mark.parametrize("device", ["usb:", "USB", "usb:-1", "usb:x", "0", ":", "tpu:0", " usb", "usb:0\n", "pci:01"])
def test_another_device_is_refused(device: str) -> None:
    """libedgetpu would refuse it without a word."""
    with pytest.raises(ValueError, match=r"device .* must be"):
        Edgetpu({"device": device})


def test_tuning_is_checked() -> None:
    """libedgetpu ignores a wrong value, and a right one where the device has no number."""
    told = Edgetpu({"device": "usb:0", "Performance": "Max", "Usb.AlwaysDfu": False}).told(None)
    assert told == {"device": "usb:0", "Performance": "Max", "Usb.AlwaysDfu": "False"}
    with pytest.raises(ValueError, match="Performance must be Low, Medium, High or Max, not 'max'"):
        Edgetpu({"device": "usb:0", "Performance": "max"})
    with pytest.raises(ValueError, match=r"Usb\.MaxBulkInQueueLength must be a number from 0 to 255, not '256'"):
        Edgetpu({"device": "usb:0", "Usb.MaxBulkInQueueLength": 256})
    with pytest.raises(ValueError, match="only where the device has a number"):
        Edgetpu({"device": "usb", "Performance": "Max"})


def test_without_a_device_the_library_is_told_all_the_same(box: Path, library: str) -> None:
    """What is there, its version in its own words, and what is missing."""
    found = probe(box, library)
    assert not found.available
    assert found.reason == "no Edge TPU is connected"
    assert (found.library, found.version) == (library, "BuildLabel(COMPILER=12,DATE=redacted)")


@pytest.mark.parametrize("ids", ["1a6e:089a", "18d1:9302"])
def test_a_usb_device_is_found_before_and_after_its_firmware(ids: str, box: Path, library: str) -> None:
    """It changes its name at the first inference; other devices of the bus are none."""
    usb(box, "1-1", "1d6b:0002", 2)
    usb(box, "1-2", ids, 5)
    found = probe(box, library, "usb")
    assert (found.available, found.device) == (True, "/dev/bus/usb/001/005")
    assert not probe(box, library, "pci").available


def test_devices_are_counted_against_the_number(box: Path, library: str) -> None:
    """Numbers start at 0, of the kind that was asked for."""
    usb(box, "1-1", "18d1:9302", 3)
    pci(box, driver=True)
    assert probe(box, library, "usb:0").available
    assert probe(box, library, "pci:0").device == "/dev/apex_0"
    assert probe(box, library, ":1").available
    found = probe(box, library, "usb:1")
    assert found.reason == "device 'usb:1' asks for USB Edge TPU number 1, and there are 1, counted from 0"
    assert not probe(box, library, ":2").available


def test_a_card_without_its_driver_is_told_from_no_card(box: Path, library: str) -> None:
    """The card is on the bus, and nothing in /dev."""
    pci(box, driver=False)
    found = probe(box, library)
    assert "driver is not" in found.reason
    assert "driver" in found.fix


def test_a_node_that_a_container_lacks_is_told(box: Path, library: str) -> None:
    """sysfs shows the device of the host; its node was not handed in."""
    usb(box, "1-1", "18d1:9302", 3)
    (box / "dev/bus/usb/001/003").unlink()
    found = probe(box, library)
    assert found.reason == "/dev/bus/usb/001/003 is not there, and the device is"
    assert "container" in found.fix or "plugdev" in found.fix


@pytest.fixture
def no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """root may open everything, and so may these tests: judge by the mode of the file."""
    monkeypatch.setattr(os, "access", lambda path, _: bool(Path(path).stat().st_mode & 0o200))


@pytest.mark.usefixtures("no_root")
def test_a_node_that_is_shut_is_told_with_the_group(box: Path, library: str) -> None:
    """The commonest mistake with this device."""
    usb(box, "1-1", "18d1:9302", 3, mode=0)
    found = probe(box, library)
    assert not found.available
    assert found.reason == "/dev/bus/usb/001/003 is there, but this user may not open it"
    assert "plugdev" in found.fix


@pytest.mark.usefixtures("no_root")
def test_any_device_takes_the_one_that_is_open(box: Path, library: str) -> None:
    """With a number, which device it is is libedgetpu's choice, so every one must be open."""
    usb(box, "1-1", "18d1:9302", 3, mode=0)
    usb(box, "1-2", "18d1:9302", 4)
    assert probe(box, library, "usb").device == "/dev/bus/usb/001/004"
    assert not probe(box, library, "usb:1").available

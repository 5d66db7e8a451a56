"""The Coral Edge TPU through libedgetpu. Its models are compiled beforehand, and the CPU cannot run them.

Options, as libedgetpu has them (https://github.com/google-coral/libedgetpu, tflite/edgetpu_delegate_for_custom_op_\
tflite_plugin.cc): `device`, "" for any, `usb`, `pci`, or with the number of one, `usb:0`, `pci:1`, `:2`; Performance,
Usb.AlwaysDfu and Usb.MaxBulkInQueueLength, which it heeds only where the device is given with a number. `library`
names another file.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from delegates import devices, places
from delegates.base import Probe
from delegates.external import UNMEASURED, LibraryDelegate, path_or_name, refuse, texts
from delegates.sharedlibrary import SharedLibrary

NAME = "edgetpu"
LIBRARIES = {"darwin": "libedgetpu.1.dylib", "win32": "edgetpu.dll"}.get(sys.platform, "libedgetpu.so.1")
DEVICE = re.compile(r"(usb|pci)?(?::(0|[1-9][0-9]{0,3}))?")
PCI_ID = "0x1ac1 0x089a"
MOST_QUEUED = 255

_INSTALL = "install libedgetpu1-std: https://coral.ai/software/#debian-packages"
_USB_RULE = (
    "sudo usermod -aG plugdev $USER and log in again (libedgetpu1-std brings the udev rule); "
    "in a service SupplementaryGroups=plugdev"
)
_DRIVER = "install the driver that makes /dev/apex_0: https://coral.ai/docs/m2/get-started/"


def _queue(value: str) -> bool:
    return value.isdecimal() and int(value) <= MOST_QUEUED


_TUNING: Mapping[str, tuple[Callable[[str], bool], str]] = {
    "Performance": (frozenset({"Low", "Medium", "High", "Max"}).__contains__, "Low, Medium, High or Max"),
    "Usb.AlwaysDfu": (frozenset({"True", "False"}).__contains__, "True or False"),
    "Usb.MaxBulkInQueueLength": (_queue, f"a number from 0 to {MOST_QUEUED}"),
}


class Edgetpu(LibraryDelegate):
    """An Edge TPU on USB or PCIe. root: where `sys` and `dev` are, another one for tests."""

    note = f"{UNMEASURED}; its models are compiled beforehand"

    def __init__(self, options: Mapping[str, Any] | None = None, root: Path = devices.ROOT) -> None:
        given = dict(options or {})
        library = path_or_name(NAME, given.pop("library", LIBRARIES))
        values = texts(NAME, given)
        refuse(NAME, values, ("device", *_TUNING, "library"))
        if "Usb.AlwaysDfu" in values:
            values["Usb.AlwaysDfu"] = values["Usb.AlwaysDfu"].capitalize()
        self._kind, self._number = _device(values)
        _check(values, self._number)
        self._root = root
        super().__init__(NAME, [library], values, _INSTALL)

    def look(self, library: SharedLibrary, found: Probe) -> Probe:
        """Look for the device that was asked for, and ask the library for its version."""
        found = replace(found, version=library.text("edgetpu_version") or found.version)
        nodes = self._nodes()
        if len(nodes) <= (self._number or 0):
            reason, fix = self._missing(len(nodes))
            return replace(found, available=False, reason=reason, fix=fix)
        # Which of several has a number is the library's choice, so all of them must be open to this user.
        shut = [] if self._number is None else [node for node in nodes if not devices.may_open(node)]
        probe = devices.opened(found, shut or nodes[self._number or 0 :], self._root)
        usb = "bus/usb" in probe.device and not probe.available
        return replace(probe, fix=_USB_RULE) if usb else probe

    def _nodes(self) -> list[Path]:
        pci = devices.nodes(places.of(NAME).nodes, self._root) if self._kind in ("", "pci") else []
        return pci + (devices.usb(places.of(NAME).usb, self._root) if self._kind in ("", "usb") else [])

    def _missing(self, count: int) -> tuple[str, str]:
        kind = {"usb": "USB ", "pci": "PCIe "}.get(self._kind, "")
        if count:
            what = f"{self._kind}:{self._number}"
            return (
                f"device {what!r} asks for {kind}Edge TPU number {self._number}, and there are {count}, counted from 0",
                (f"device: {self._kind or ':0'}"),
            )
        if self._kind != "usb" and _pci_without_driver(self._root):
            return "a PCIe Edge TPU is in this machine, and its driver is not: there is no /dev/apex_0", _DRIVER
        return f"no {kind}Edge TPU is connected", "connect it; lsusb shows 1a6e:089a or 18d1:9302, lspci -nn 1ac1:089a"


def _device(values: Mapping[str, str]) -> tuple[str, int | None]:
    """Return the kind, "" for any, and the number, None for any. Raises ValueError."""
    match = DEVICE.fullmatch(values.get("device", ""))
    if match is None:
        msg = f'edgetpu: device {values["device"]!r} must be "", usb, pci, or with a number usb:0, pci:0, :0'
        raise ValueError(msg)
    return match[1] or "", None if match[2] is None else int(match[2])


def _check(values: Mapping[str, str], number: int | None) -> None:
    for key in _TUNING.keys() & values.keys():
        valid, words = _TUNING[key]
        if not valid(values[key]):
            msg = f"edgetpu: {key} must be {words}, not {values[key]!r}"
            raise ValueError(msg)
        if number is None:
            msg = f"edgetpu: libedgetpu heeds {key} only where the device has a number, e.g. device: usb:0"
            raise ValueError(msg)


def _pci_without_driver(root: Path) -> bool:
    folders = root.glob("sys/bus/pci/devices/*")
    return any(f"{devices.fact(folder / 'vendor')} {devices.fact(folder / 'device')}" == PCI_ID for folder in folders)

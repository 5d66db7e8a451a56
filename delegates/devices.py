"""Device nodes: which are there, and whether this user may open them, with the step that would permit it."""

from __future__ import annotations

import grp
import os
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from delegates.base import Probe

ROOT = Path("/")
# Below it a device gets another name each time it is plugged in, or its firmware loaded.
USB = "dev/bus/usb"


def nodes(patterns: Iterable[str], root: Path = ROOT) -> list[Path]:
    """Return what is there, sorted. patterns: below the root, e.g. `dev/ethosu*`; root: another one for tests."""
    return sorted(path for pattern in patterns for path in root.glob(pattern))


def usb(ids: Collection[str], root: Path = ROOT) -> list[Path]:
    """Return the nodes of the USB devices with one of these ids (vendor:product), by what sysfs tells of each."""
    found = []
    for folder in sorted(root.glob("sys/bus/usb/devices/*")) if ids else ():
        facts = {name: fact(folder / name) for name in ("idVendor", "idProduct", "busnum", "devnum")}
        if f"{facts['idVendor']}:{facts['idProduct']}" in ids:
            found.append(root / f"{USB}/{facts['busnum']:0>3}/{facts['devnum']:0>3}")
    return found


def fact(file: Path) -> str:
    """Return what sysfs tells in a file; "" where it tells nothing."""
    try:
        return file.read_text(errors="replace").strip()
    except OSError:  # a hub's port has no ids, and a device may just have been unplugged
        return ""


def shown(path: Path, root: Path = ROOT) -> str:
    """Return the path as it would be below `/`."""
    return f"/{path.relative_to(root)}"


def opened(probe: Probe, paths: Iterable[Path], root: Path = ROOT) -> Probe:
    """Return `probe` with the first of the nodes that this user may open as its device, else with why it may not."""
    paths = list(paths)
    for path in paths:
        if may_open(path):
            return replace(probe, device=shown(path, root))
    reason, fix = refused(paths[0], root)
    return replace(probe, available=False, reason=reason, fix=fix, device=shown(paths[0], root))


def may_open(path: Path) -> bool:
    """Whether this user may read and write it."""
    return os.access(path, os.R_OK | os.W_OK)


def refused(path: Path, root: Path = ROOT) -> tuple[str, str]:
    """Return why a node cannot be opened, and how it could be."""
    if not path.exists():
        # The system tells of the device all the same: its node was not handed into this container.
        return f"{shown(path, root)} is not there, and the device is", f"give this container {shown(path.parent, root)}"
    reason = f"{shown(path, root)} is there, but this user may not open it"
    status = path.stat()
    group = _group(status.st_gid)
    # Only where the group may do what the user may not does it help to join it.
    if status.st_gid != 0 and status.st_mode & 0o060 == 0o060:  # noqa: PLR2004  # rw for the group
        return reason, f"sudo usermod -aG {group} $USER and log in again; in a service SupplementaryGroups={group}"
    return reason, f"a udev rule that gives {shown(path, root)} to a group, and this user in that group"


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)

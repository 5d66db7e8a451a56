"""Which delegates are on this machine: asked in child processes, and remembered while the machine looks the same."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from edged import __version__
from edged.engines import tflite_runtime
from edged.selection.key import digest

# Where libraries come and go with their packages: a directory's time changes with the names in it.
_LIBRARIES = ("/etc/ld.so.cache", "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/opt")
# Device nodes of accelerators, whoever makes them; those of terminals and disks come and go for other reasons.
_NODES = ("apex", "ethosu", "neutron", "galcore", "mali", "kgsl", "fastrpc", "adsprpc", "apusys", "nvidia")
_FOLDERS = ("/dev/dri", "/dev/accel", "/dev/dma_heap")
_USB = Path("/sys/bus/usb/devices")
_ENVIRONMENT = ("LD_LIBRARY_PATH", "VK_ICD_FILENAMES", "VK_DRIVER_FILES", "PYTHONPATH")


def looks() -> str:
    """Return a digest of what decides which delegates are here; no process is started, no library is loaded.

    It changes when a library is installed in a usual place, a device is plugged in or gets its node, another user
    starts the daemon, or a package of Python is installed.
    """
    packages = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    facts = {
        "edged": __version__,
        # Their versions are told by the directory of packages; to import one for it costs memory for good.
        "runtimes": ",".join(runtime.name for runtime in tflite_runtime.RUNTIMES if runtime.installed),
        "user": f"{os.getuid()} {sorted(os.getgroups())}",
        "nodes": ",".join(_nodes()),
        "usb": ",".join(_usb()),
        "folders": ",".join(_times([*_LIBRARIES, *_library_folders(), *packages])),
        **{name: os.environ.get(name, "") for name in _ENVIRONMENT},
    }
    return digest(facts)


def _nodes() -> list[str]:
    nodes = [name for name in _names("/dev") if name.startswith(_NODES)]
    return sorted(nodes) + [f"{folder}/{name}" for folder in _FOLDERS for name in sorted(_names(folder))]


def _usb() -> list[str]:
    """Return vendor and product of every USB device."""
    devices = (_USB / name for name in _names(str(_USB)) if ":" not in name)  # those with one are interfaces
    return sorted(f"{_word(device / 'idVendor')}:{_word(device / 'idProduct')}" for device in devices)


def _library_folders() -> list[str]:
    """Return the directories of libraries for this kind of machine, as Debian names them."""
    kind = os.uname().machine
    folders = [f"/usr/lib/{name}" for name in _names("/usr/lib") if name.startswith(kind[:3]) and "-linux-" in name]
    return folders + [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path]


def _times(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        try:
            yield f"{path} {os.stat(path).st_mtime_ns}"  # noqa: PTH116  # one system call each
        except OSError:
            continue


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208  # names are all that is wanted
    except OSError:
        return []


def _word(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""

"""Whether the delegates that were found on this machine may be others now: told by how it looks, no process started."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from delegates import devices
from delegates.places import LOADER, PLACES, Places
from edged import __version__
from edged.engines import tflite_runtime
from edged.selection.key import digest
from edged.selection.traces import library_folders, traces

# Where libraries come and go with their packages: a directory's time changes with the names in it.
_LIBRARIES = ("etc/ld.so.cache", "opt")
_ANY = Places(variables=(*LOADER, "PYTHONPATH"))


def looks(root: Path = devices.ROOT) -> str:
    """Return a digest of what decides which delegates are here; no process is started, no library is loaded.

    It changes when a library is installed in a usual place, a device is plugged in, gets its node, or may be opened by
    this user as it could not before; when a driver is installed; when another user starts the daemon, or with other
    variables that the delegates heed; and when a package of Python is installed. root: another one for tests.
    """
    packages = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    libraries = [str(root / path) for path in _LIBRARIES]
    facts = {
        "edged": __version__,
        # Their versions are told by the directory of packages; to import one for it costs memory for good.
        "runtimes": ",".join(runtime.name for runtime in tflite_runtime.RUNTIMES if runtime.installed),
        "user": f"{os.getuid()} {sorted(os.getgroups())}",
        "traces": traces([*PLACES.values(), _ANY], root=root),
        "folders": ",".join(_times([*libraries, *library_folders(root=root), *packages])),
    }
    return digest(facts)


def _times(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        try:
            yield f"{path} {os.stat(path).st_mtime_ns}"  # noqa: PTH116  # one system call each
        except OSError:
            continue

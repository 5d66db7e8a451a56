"""What a measurement is good for: everything that changes its figures, as a mapping of strings.

Cheap on purpose: it is worked out at every start. No file of a model or library is read, only looked at.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from edged.affinity import ThreadPolicy
from edged.bundle import GOLDEN, MODEL_CPU, Bundle
from edged.engines import tflite_runtime
from edged.engines.candidate import Candidate
from edged.errors import UnavailableError

Key = Mapping[str, str]

# Of the way of measuring: figures of another version are not compared with these.
METHOD = "1"

# Some boards tell what they are in the device tree, others in the firmware's tables.
_BOARD = (
    "/sys/firmware/devicetree/base/model",
    "/sys/class/dmi/id/sys_vendor",
    "/sys/class/dmi/id/product_name",
    "/sys/class/dmi/id/board_name",
)
# What stays the same while a CPU changes its clock (x86, Arm, RISC-V).
_CPU = frozenset({
    "vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features",
    "isa", "uarch",
})  # fmt: skip
_FIRST_CPU = 1 << 14


def key(bundle: Bundle, candidate: Candidate, policy: ThreadPolicy, library: str) -> dict[str, str]:
    """Return what a measurement of this candidate depends on.

    library: the path of the vendor's library as its probe found it, "" for none.
    """
    return {
        **identity(bundle, candidate, policy),
        "golden": _sha256(bundle, GOLDEN),
        "runtime_version": _version(candidate.runtime),
        "library": _file(library),
        **machine(),
        "method": METHOD,
    }


def identity(bundle: Bundle, candidate: Candidate, policy: ThreadPolicy) -> dict[str, str]:
    """Return which measurement it is: a later one with the same identity takes the place of the earlier."""
    return {
        "model": bundle.model_sha256,
        "cpu_model": _sha256(bundle, MODEL_CPU),
        "runtime": candidate.runtime,
        "delegate": candidate.delegate,
        "options": candidate.options,
        "threads": str(candidate.threads),
        "cpus": ",".join(map(str, policy.cpus)),
        "realtime": policy.realtime,
    }


def digest(found: Key) -> str:
    """Return a short name of a key, for files and look-ups."""
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:32]


@cache
def machine() -> Mapping[str, str]:
    """Return what of this machine changes figures: board, CPU and kernel."""
    system = os.uname()
    return {"board": _board(), "cpu": _cpu(), "machine": system.machine, "kernel": system.release}


def _board() -> str:
    told = (_read(Path(path), 256) for path in _BOARD)
    return " ".join(filter(None, (text.strip("\0 \n") for text in told)))


def _cpu() -> str:
    """Return the first CPU's model and a hash of all that it can."""
    first = _read(Path("/proc/cpuinfo"), _FIRST_CPU).split("\n\n")[0]
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}
    kept = {name: value for name, value in facts.items() if name in _CPU}
    return f"{kept.get('model name', '')} {digest(kept)}".strip()


def _read(path: Path, most: int) -> str:
    try:
        with path.open("rb") as file:
            return file.read(most).decode(errors="replace")
    except OSError:
        return ""


def _file(path: str) -> str:
    """Return path, size and time of change of a file, links resolved; "" where there is none."""
    if not path:
        return ""
    try:
        found = os.stat(path)  # noqa: PTH116  # one system call
    except OSError:
        return f"{path} (gone)"
    return f"{os.path.realpath(path)} {found.st_size} {found.st_mtime_ns}"


def _version(runtime: str) -> str:
    try:
        return tflite_runtime.by_name(runtime).version
    except (ImportError, UnavailableError) as exc:  # the child that measures tells it
        return f"cannot be imported: {exc}"


def _sha256(bundle: Bundle, name: str) -> str:
    entry = bundle.manifest.files.get(name)
    return "" if entry is None else entry.sha256

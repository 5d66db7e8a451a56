"""What a measurement is good for: everything that changes its figures, as a mapping of strings.

Cheap on purpose: it is worked out at every start. No file of a model or library is read, only looked at.

Of an accelerator it holds: the vendor's library, all files that the system could find by its bare name, and all
libraries that came with it when it was loaded; the version and the device that the probe told; whether its device's
node is there and open to this user; the descriptions of Vulkan and OpenCL drivers with the libraries that they name;
and the variables of the environment that the loader, the drivers and the delegate heed (`delegates.places`). Not in it:
firmware, what a driver itself loads, and settings that a vendor keeps in files. After a change of those `edged
delegates -c FILE --remeasure` measures again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from delegates import places
from delegates.places import LOADER, Places
from edged.affinity import ThreadPolicy
from edged.bundle import GOLDEN, MODEL_CPU, Bundle
from edged.engines import tflite_runtime
from edged.engines.candidate import Candidate
from edged.errors import UnavailableError
from edged.selection.traces import libraries, stamp, traces
from edged.selection.wish import CPU

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


# Which measurement it is: a later one that is the same in these takes the place of the earlier.
IDENTITY = ("model", "cpu_model", "runtime", "delegate", "options", "threads", "cpus", "realtime")


@dataclass(frozen=True)
class Installed:
    """What a probe told of a delegate that is here, see `delegates.base.Probe`; nothing of the CPU.

    names: bare file names by which its library is looked for, so that the system decides which file that is.
    """

    library: str = ""
    version: str = ""
    device: str = ""
    needs: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


NOTHING = Installed()


def key(bundle: Bundle, candidate: Candidate, policy: ThreadPolicy, installed: Installed) -> dict[str, str]:
    """Return what a measurement of this candidate depends on."""
    return {
        **identity(bundle, candidate, policy),
        "golden": _sha256(bundle, GOLDEN),
        "runtime_version": _version(candidate.runtime),
        **_accelerator(candidate.delegate, installed),
        **machine(),
        "method": METHOD,
    }


def identity(bundle: Bundle, candidate: Candidate, policy: ThreadPolicy) -> dict[str, str]:
    """Return the values of IDENTITY."""
    asked = (candidate.runtime, candidate.delegate, candidate.options, str(candidate.threads))
    thread = (",".join(map(str, policy.cpus)), policy.realtime)
    return dict(zip(IDENTITY, (bundle.model_sha256, _sha256(bundle, MODEL_CPU), *asked, *thread), strict=True))


def _accelerator(delegate: str, installed: Installed) -> dict[str, str]:
    needs = {path: stamp(path) for path in installed.needs}
    heeded = [] if delegate == CPU else [places.of(delegate), Places(variables=LOADER)]
    return {
        "library": "; ".join(dict.fromkeys([stamp(installed.library), *libraries(installed.names)])),
        "needs": digest(needs) if needs else "",
        "device": " ".join(filter(None, (installed.version, installed.device))),
        "traces": traces(heeded),
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


def _version(runtime: str) -> str:
    try:
        return tflite_runtime.by_name(runtime).version
    except (ImportError, UnavailableError) as exc:  # the child that measures tells it
        return f"cannot be imported: {exc}"


def _sha256(bundle: Bundle, name: str) -> str:
    entry = bundle.manifest.files.get(name)
    return "" if entry is None else entry.sha256

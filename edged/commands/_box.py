"""What the machine itself gives: kernel, processor, scheduling, memory, and where the daemon keeps its state."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from edged import affinity, limits
from edged.shown import size

UNIT = "the unit of `edged sample systemd/edged.service` permits it"
# Those by which XNNPACK and ruy choose their kernels, as /proc/cpuinfo spells them.
_SIMD = (
    "sse4_1", "avx", "avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8",
    "neon", "asimd", "asimdhp", "asimddp", "i8mm", "sve", "sve2", "bf16",
)  # fmt: skip
_CPUINFO, _DEVICE_TREE = Path("/proc/cpuinfo"), Path("/proc/device-tree/model")


def facts(state_dir: Path) -> dict[str, Any]:
    """Return the facts: text, numbers, and for each thing that is needed whether it is `ok`, with the `fix`."""
    name, flags = processor(_read(_CPUINFO))
    board = _read(_DEVICE_TREE).rstrip("\0\n")
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return {
        "kernel": f"{os.uname().sysname} {os.uname().release}",
        "machine": os.uname().machine,
        "board": board,
        "cpu": name,
        "simd": flags,
        "cores": os.cpu_count() or 1,
        "cores_usable": len(os.sched_getaffinity(0)),
        "memory_available": limits.available(),
        "memlock": None if soft == resource.RLIM_INFINITY else soft,
        "needs": list(_needs(state_dir)),
    }


def processor(cpuinfo: str) -> tuple[str, list[str]]:
    """Return the processor's name and its vector instructions that matter, from the text of /proc/cpuinfo."""
    lines = (line.partition(":") for line in cpuinfo.splitlines())
    said: dict[str, str] = {}
    for key, _, value in lines:
        said.setdefault(key.strip(), value.strip())
    name = next((said[key] for key in ("model name", "Model", "Hardware", "Processor") if said.get(key)), "")
    flags = f"{said.get('flags', '')} {said.get('Features', '')}".split()
    return name, [flag for flag in _SIMD if flag in flags]


def _needs(state_dir: Path) -> Iterator[dict[str, Any]]:
    nice, fifo = _attempt("nice"), _attempt("fifo")
    achieved = nice == f"nice {affinity.NICE}" or fifo == f"fifo {affinity.FIFO_PRIORITY}"
    yield _need("priority", achieved, f"{nice}, {fifo}", UNIT)
    yield _state(state_dir)
    yield _need(
        "eventfd", _works(_eventfd), "wakes the isolated engine", "a kernel with CONFIG_EVENTFD, Python >= 3.10"
    )
    yield _need("memfd", _works(_memfd), "holds its tensors", "a kernel with CONFIG_MEMFD_CREATE")


def _need(what: str, ok: bool, told: str, fix: str) -> dict[str, Any]:
    return {"what": what, "ok": ok, "told": told, "fix": "" if ok else fix}


def _attempt(mode: affinity.Realtime) -> str:
    """Try a priority on a thread of its own, which takes it along as it ends."""
    told: list[str] = []
    thread = threading.Thread(target=lambda: told.append(affinity.raise_priority(mode)))
    thread.start()
    thread.join()
    return told[0]


def _state(folder: Path) -> dict[str, Any]:
    # Where it is not there yet the daemon makes it.
    there = next(path for path in (folder, *folder.parents) if path.exists())
    ok = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    told = f"{folder} is writable" if ok else f"{there} is not writable: what was measured is measured at each start"
    return _need("state_dir", ok, told, f"sudo install -d -o $USER {folder}, or another `state_dir`")


def _works(attempt: Callable[[], int]) -> bool:
    try:
        os.close(attempt())
    except (AttributeError, OSError):
        return False
    return True


def _eventfd() -> int:
    return os.eventfd(0, os.EFD_CLOEXEC)


def _memfd() -> int:
    return os.memfd_create("edged-doctor", os.MFD_CLOEXEC)


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def rows(box: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield the table's rows."""
    yield ["kernel", f"{box['kernel']}, {box['machine']}" + (f", {box['board']}" if box["board"] else "")]
    yield ["processor", f"{box['cpu'] or 'unnamed'}, {box['cores_usable']} of {box['cores']} cores for this process"]
    yield ["vector units", ", ".join(box["simd"]) or "none that the runtimes use"]
    lock = "unlimited" if box["memlock"] is None else size(box["memlock"])
    yield ["memory", f"{size(box['memory_available'])} available, lockable {lock}"]
    yield from ([need["what"], _told(need)] for need in box["needs"])


def _told(need: Mapping[str, Any]) -> str:
    return need["told"] if need["ok"] else f"{need['told']}; fix: {need['fix']}"

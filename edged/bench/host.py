"""The machine that measures, and what runs on it: without these a figure is worth nothing."""

from __future__ import annotations

import os
import platform
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import edged

_PACKAGES = ("numpy", "paho-mqtt", "ai-edge-litert", "tflite-runtime")
_FREQUENCY = Path("/sys/devices/system/cpu/cpu0/cpufreq")
_PASSWORD = re.compile(r"(//[^:/@\s]*):[^@\s]*@")
# Facts in which two runs must not differ, or the ratio is one of machines.
COMPARED = ("hostname", "cpu", "cores", "cores_usable", "governor", "kernel", "machine")


def facts() -> dict[str, Any]:
    """Return the processor, its clock where that can be read, the kernel, memory, load, and the versions."""
    return {
        "hostname": platform.node(),
        "cpu": _processor() or platform.machine(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "cores_usable": len(os.sched_getaffinity(0)),
        "mhz": _megahertz(),
        "governor": _text(_FREQUENCY / "scaling_governor") or None,
        "kernel": f"{platform.system()} {platform.release()}",
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "edged": edged.__version__,
        **_versions(),
    }


def command(words: Sequence[str]) -> str:
    """Return the command line as it can be typed again; the password inside a URL is left out."""
    return shlex.join(_PASSWORD.sub(r"\1:***@", word) for word in words)


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415  # slow; asked once

    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    names = ("model name", "Model", "Hardware")
    pairs = [line.partition(":")[::2] for line in _text(Path("/proc/cpuinfo")).splitlines()]
    said = {key.strip(): value.strip() for key, value in reversed(pairs)}
    return next((said[name] for name in names if said.get(name)), "")


def _megahertz() -> float | None:
    """Return the clock of the first core: as cpufreq says, else as /proc/cpuinfo does."""
    told = _text(_FREQUENCY / "scaling_cur_freq")
    if told.isdigit():
        return int(told) / 1000
    found = re.search(r"^cpu MHz\s*:\s*([\d.]+)", _text(Path("/proc/cpuinfo")), re.MULTILINE)
    return float(found[1]) if found else None


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""

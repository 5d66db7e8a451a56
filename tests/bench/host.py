"""What every benchmark prints with its figures: the host, and what is installed."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("numpy", "paho-mqtt", "ai-edge-litert", "tflite-runtime")


def facts() -> dict[str, object]:
    """CPU, cores, load, Python and package versions."""
    installed = {}
    for name in PACKAGES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return {
        "cpu": model or platform.machine(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "kernel": platform.release(),
        "python": platform.python_version(),
        **installed,
    }


def lines(found: dict[str, object]) -> str:
    """One line of facts for the head of a table."""
    return ", ".join(f"{key} {value}" for key, value in found.items())

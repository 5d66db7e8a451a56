"""The drivers that a machine describes for Vulkan and OpenCL: small files, each with the name of a library. No library
is loaded."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

# Where the Vulkan loader looks for its drivers' descriptions, unless the first of these variables says which:
# https://github.com/KhronosGroup/Vulkan-Loader/blob/main/docs/LoaderDriverInterface.md
VULKAN_ONLY, VULKAN_MORE = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"), "VK_ADD_DRIVER_FILES"
VULKAN_FOLDERS = ("etc/vulkan/icd.d", "usr/local/share/vulkan/icd.d", "usr/share/vulkan/icd.d")
# https://registry.khronos.org/OpenCL/extensions/khr/cl_khr_icd.txt
OPENCL_FOLDER = "etc/OpenCL/vendors"
_MOST = 1 << 16


def vulkan(root: Path, environment: Mapping[str, str]) -> list[Path]:
    """Return the descriptions of Vulkan drivers, in the loader's order; root: where `etc` and `usr` are."""
    given = next((environment[name] for name in VULKAN_ONLY if environment.get(name)), None)
    named = [*(given or "").split(os.pathsep), *environment.get(VULKAN_MORE, "").split(os.pathsep)]
    files = [Path(name) for name in named if name]
    if given is None:
        files += [file for folder in VULKAN_FOLDERS for file in sorted((root / folder).glob("*.json"))]
    return files


def opencl(root: Path, environment: Mapping[str, str]) -> list[Path]:  # noqa: ARG001  # one shape for all kinds
    """Return the descriptions of OpenCL drivers in the usual directory."""
    return sorted((root / OPENCL_FOLDER).glob("*.icd"))


def library(file: Path) -> str:
    """Return the library that a description names, as it names it; "" where it names none."""
    try:
        with file.open() as stream:
            text = stream.read(_MOST)
        return text.strip() if file.suffix == ".icd" else str(json.loads(text)["ICD"]["library_path"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # the loaders pass such a file over as well
        return ""


Kind = Callable[[Path, Mapping[str, str]], list[Path]]
KINDS: Mapping[str, Kind] = {"vulkan": vulkan, "opencl": opencl}

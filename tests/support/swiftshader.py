"""SwiftShader, a Vulkan driver that runs on the CPU: Debian's chromium brings it, with a Vulkan loader beside it.

The libraries are linked into a folder of their own: chromium's others must not stand in for the system's.
"""

from __future__ import annotations

import json
from pathlib import Path

from support import require

_PLACES = ("/usr/lib/chromium", "/usr/lib/chromium-browser", "/opt/google/chrome")
_LOADER, _DRIVER = "libvulkan.so.1", "libvk_swiftshader.so"


def environment(folder: Path) -> dict[str, str]:
    """Return what a process needs in its environment, from its start, to find this GPU and no other."""
    place = next((Path(p) for p in _PLACES if all((Path(p) / n).is_file() for n in (_LOADER, _DRIVER))), None)
    if place is None:
        require.missing("chromium, which brings the software GPU SwiftShader,")
    for name in (_LOADER, _DRIVER):
        (folder / name).symlink_to(place / name)
    description = folder / "swiftshader.json"
    icd = {"library_path": str(folder / _DRIVER), "api_version": "1.0.5"}
    description.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": icd}))
    return {"LD_LIBRARY_PATH": str(folder), "VK_ICD_FILENAMES": str(description)}

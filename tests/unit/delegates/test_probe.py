"""The child that probes: one JSON object and nothing else, whatever a library does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from support import crafted, delegates

from delegates.probe import probe

ROOT = Path(__file__).parents[3]


def child(name: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command, given = [sys.executable, "-m", "delegates.probe", name], json.dumps(options)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30, cwd=ROOT, input=given)


def test_it_prints_the_probe() -> None:
    """The fields of a Probe, for a library that is a delegate."""
    done = child("external", library=str(delegates.library()))
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["available"]
    assert found["library"] == str(delegates.library())


def test_a_noisy_library_spoils_nothing(tmp_path: Path) -> None:
    """What it prints is not in the answer, and a crash as it is unloaded is none of the probe's."""
    library = crafted.library(tmp_path / "libnoisy.so", crafted.ENTRY + crafted.NOISY)
    done = child("external", library=str(library))
    assert done.returncode == 0
    assert json.loads(done.stdout)["available"]


def test_what_is_wrong_with_the_options_is_the_reason() -> None:
    """No traceback for a typo."""
    assert "did you mean 'edgetpu'" in probe("edgetup", "{}").reason
    assert "unknown option 'divice'" in probe("edgetpu", '{"divice": "usb"}').reason
    done = child("edgetup")
    assert (done.returncode, done.stderr) == (0, "")
    assert not json.loads(done.stdout)["available"]


def test_it_needs_nothing_of_edged() -> None:
    """The rule of the layers, and half of the time that a child takes to start."""
    code = "import sys, delegates.probe as p; p.probe('vx', '{}'); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30, cwd=ROOT
    )
    modules = done.stdout.split()
    assert not [name for name in modules if name.split(".")[0] in ("edged", "converters", "numpy")]

"""The scripts of `make bench`: each starts, and says in one line what it lacks; no figure is judged here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[1] / "bench").glob("bench_*.py"))


def ran(script: Path, *words: str, path: str = os.environ.get("PATH", os.defpath)) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": path}
    command = [sys.executable, str(script), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_benchmark_starts(script: Path) -> None:
    """All it imports is there, and it takes `--json` as `make bench ARGS=--json` gives it."""
    done = ran(script, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--json" in done.stdout


@pytest.mark.parametrize("name", ["burners", "hotpath", "saturation", "stall"])
def test_a_benchmark_says_what_it_lacks(name: str, tmp_path: Path) -> None:
    """One line with the packages, and the code by which `make bench` goes on to the next."""
    script = next(script for script in SCRIPTS if script.stem == f"bench_{name}")
    done = ran(script, path=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (69, "", 1)
    assert done.stderr.startswith("bench: needs gcc")
    assert "apt-get install gcc libc6-dev libmosquitto-dev" in done.stderr

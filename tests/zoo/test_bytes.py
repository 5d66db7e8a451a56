"""The same input and flags give the same bytes; a conversion that is killed leaves nothing that looks like a bundle."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import zoo


def hashes(folder: Path) -> dict[str, str]:
    """Return the hash of every file in a bundle."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize(("name", "mode"), [("digits", "int8"), ("water", "mixed"), ("pitch", "none")])
def test_two_conversions_give_the_same_bytes(name: str, mode: str) -> None:
    """Every file of two bundles, the report among them, is the same, byte for byte."""
    first, second = zoo.convert(name, mode), zoo.convert.__wrapped__(name, mode)
    assert first.folder != second.folder
    assert hashes(first.model.parent) == hashes(second.model.parent)


@pytest.mark.parametrize("stage", ["starting TensorFlow", "converting to int8", "running", "writing"])
def test_a_killed_conversion_leaves_no_bundle(stage: str, tmp_path: Path) -> None:
    """SIGKILL when the stage begins: no bundle and no part of one in the output's directory, or the whole of it."""
    command = [sys.executable, "-m", "edged", "convert", "saved_model", "-o", str(tmp_path / "out" / "bundle")]
    command += ["--name", "m", "--version", "1", "--quantize", "int8", "--calibration", "calibration.npz", "--verbose"]
    process = subprocess.Popen(
        command, cwd=zoo.made("motions").folder, env=os.environ | {"PYTHONPATH": str(zoo.ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    seen = next((line for line in process.stdout if stage in line), "")
    os.killpg(process.pid, signal.SIGKILL)
    process.stdout.close()
    process.wait()
    assert seen, stage
    left = [path.name for path in (tmp_path / "out").iterdir()] if (tmp_path / "out").exists() else []
    assert [name for name in left if not name.startswith(".")] in ([], ["bundle"])
    if "bundle" in left:
        checked = [sys.executable, "-m", "edged", "inspect", str(tmp_path / "out" / "bundle")]
        assert (
            subprocess.run(
                checked, capture_output=True, check=False, env=os.environ | {"PYTHONPATH": str(zoo.ROOT)}
            ).returncode
            == 0
        )

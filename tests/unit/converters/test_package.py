"""What the manifest says of how a bundle was made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support import tinymodel

from converters import package, truth
from converters.found import Found
from converters.options import Options
from edged.bundle import Calibration


def options(tmp_path: Path, **changes: Any) -> Options:
    return Options(tmp_path / "model", tmp_path / "out", **({"name": "m", "version": 1} | changes))


def test_flags_hold_no_path(tmp_path: Path) -> None:
    """Where the files lay is not part of what was made."""
    given = options(tmp_path, calibration=str(tmp_path / "train.npz"), shapes={"x": (1, 3)}, min_agreement=0.9)
    facts = truth.read(tinymodel.dense_model())
    found = Found("serving_default", ("serve",), {}, facts, None, Calibration(), "test.npz", ())
    flags = package.flags(given, found)
    assert not any(str(tmp_path) in value for value in flags.values())
    assert (flags["calibration"], flags["shape"], flags["min-agreement"]) == ("train.npz", "x=1,3", "0.9")

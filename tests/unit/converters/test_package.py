"""What the manifest says of how a bundle was made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support import tinymodel

from converters import package, truth
from converters.attempt import Made
from converters.found import Converted, Found
from converters.options import Options
from converters.report import Report, Source
from converters.texts import Texts
from edged.bundle import Calibration, Golden, Postprocess


def options(tmp_path: Path, **changes: Any) -> Options:
    return Options(tmp_path / "model", tmp_path / "out", **({"name": "m", "version": 1} | changes))


def test_flags_hold_no_path(tmp_path: Path) -> None:
    """Where the files lay is not part of what was made."""
    given = options(tmp_path, calibration=str(tmp_path / "train.npz"), shapes={"x": (1, 3)}, min_agreement=0.9)
    facts = truth.read(tinymodel.dense_model())
    source = Source("har/3", "SavedModel", 9, "serving_default", ("serving_default",), ("serve",))
    found = Found(source, {}, None, Calibration(), "test.npz")
    made = Made(
        given,
        Converted("none", facts, flags=("dense weights have one scale in all",)),
        tmp_path / "model.tflite",
        Texts((), None, Postprocess()),
        facts.inputs,
        facts.outputs,
        Golden({}, {}, {}, {}),
        (),
        (),
    )
    flags = package.flags(made, found, Report("m", 1, "auto", "none", source, ()))
    assert not any(str(tmp_path) in value for value in flags.values())
    assert (flags["calibration"], flags["shape"], flags["min-agreement"]) == ("train.npz", "x=1,3", "0.9")
    assert (flags["model"], flags["asked"], flags["compatible"]) == (
        "har/3",
        "auto",
        "dense weights have one scale in all",
    )

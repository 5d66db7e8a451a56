"""What was asked for, on its way to another process; and the table of modes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from converters import choose
from converters.options import MODES, PREFERRED, Options
from edged.engines import tflite_nodes
from edged.errors import InternalError

DEFAULT = Options(Path("/m"), Path("/o"), "n", 1)
FULL = Options(
    model=Path("/models/a"), output=Path("/bundles/b"), name="har", version=7, quantize="mixed", calibration="c.npz",
    evaluation="e.npz", labels="l.txt", signature="s", tags="a,b", io="quantized", batch=2,
    shapes={"a:0": (1, 96, 64), "b": (7,)}, preprocess="p.yaml", postprocess="q.yaml", min_agreement=0.9, max_error=0.5,
    max_accuracy_loss=0.02, max_mae_growth=0.1, threshold=0.25, targets=("edgetpu", "tflite-runtime==2.13.0"),
    dynamic_batch=True, allow_flex=True, allow_custom=("A", "B"), search_budget=9, time_limit_s=1.5, memory_limit=4096,
    report="r.html", golden=3, force=True, verbose=True,
)  # fmt: skip


def test_every_field_survives_json() -> None:
    """Nothing that a person asked for is lost or changed between the processes; a field that is added is looked at."""
    same = [f.name for f in dataclasses.fields(Options) if getattr(FULL, f.name) == getattr(DEFAULT, f.name)]
    assert same == []
    for given in (FULL, DEFAULT):
        assert Options.from_plain(json.loads(json.dumps(given.to_plain()))) == given
        assert Options.from_plain(given.to_plain()) == given


def test_what_is_no_options_is_a_fault_of_ours() -> None:
    """A field that is missing or of another type is named."""
    with pytest.raises(InternalError, match="golden"):
        Options.from_plain({**DEFAULT.to_plain(), "golden": "many"})
    with pytest.raises(InternalError, match="name"):
        Options.from_plain({k: v for k, v in DEFAULT.to_plain().items() if k != "name"})


def test_modes_agree_with_what_a_file_is_read_as() -> None:
    """Ranks are an order, one byte a value is what `dynamic` needs, and modes that need data name the ops they make."""
    assert sorted(mode.rank for mode in MODES.values()) == list(range(len(MODES)))
    assert PREFERRED == ("int8", "mixed", "dynamic", "float16", "none", "int16x8")
    assert MODES["dynamic"].needs_constants == tflite_nodes.NARROW
    assert {name for name, mode in MODES.items() if mode.needs_kind} == {n for n, m in MODES.items() if m.calibrated}
    assert {name for name, mode in MODES.items() if not mode.calibrated} == set(choose.FALLBACKS)

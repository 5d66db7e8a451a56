"""Which attempt of a report is shown in full."""

from __future__ import annotations

import math
from dataclasses import replace

from support import samplereports
from support.samplereports import LITERT, TFLITE, parity, targets

from converters.gates import Gate, OutputParity
from converters.report import Attempt, TargetRun


def _tried(quantize: str, agreement: float, size: int = 1000, **changes: object) -> Attempt:
    made = Attempt(quantize, "refused", ("x",), size, None, targets(parity("y", agreement)))
    return replace(made, **changes)  # type: ignore[arg-type]  # fields by name


def _shown(*attempts: Attempt, asked: str = "auto", chosen: str = "") -> str:
    return replace(samplereports.passing(), quantize=asked, chosen=chosen, attempts=attempts).shown.quantize


def test_the_chosen_mode_is_shown_else_the_one_that_was_asked_for() -> None:
    """What ships comes before what is nearest, and a mode that died is shown where it was asked for."""
    attempts = _tried("int8", 0.2), _tried("none", 0.99), _tried("float16", 0.98)
    assert _shown(*attempts, chosen="float16") == "float16"
    assert _shown(*attempts, asked="int8") == "int8"
    died = Attempt("int8", "died", ("killed",))
    assert _shown(died, _tried("none", 1.0), asked="int8") == "int8"


def test_of_auto_the_one_that_misses_by_least_is_shown() -> None:
    """The worst figure of the worst target decides; a figure that is no number is worse than any."""
    assert _shown(_tried("dynamic", 0.93), _tried("int8", 0.94), _tried("float16", 0.2)) == "int8"
    nan = OutputParity("y", {}, (Gate("y", "agreement", math.nan, 0.95),))
    assert _shown(_tried("int8", 0, targets=targets(nan)), _tried("float16", 0.1)) == "float16"
    first, second, own, _ = targets(parity("y", 0.94))
    low = replace(second, outputs=(parity("y", 0.5),))
    assert _shown(_tried("int8", 0, targets=(first, low, own)), _tried("float16", 0.9)) == "float16"


def test_limits_that_are_kept_do_not_outdo_a_runtime_that_refuses() -> None:
    """Of files that keep their limits where they run, the one that runs on more runtimes comes first, then the size."""
    good, gone = parity("y", 1.0), TargetRun(TFLITE, "default", "refused", "does not load")
    half = _tried("float16", 0, targets=(TargetRun(LITERT, "default", "passed", "", (good,)), gone))
    assert _shown(half, _tried("dynamic", 0.96)) == "dynamic"
    assert _shown(_tried("none", 1.0, 4000), _tried("float16", 0.96, 2000)) == "float16"


def test_without_a_file_the_first_attempt_is_shown() -> None:
    """Also where nothing could be made there is something to show."""
    none = Attempt("none", "refused", ("no",)), Attempt("int8", "died", ("killed",))
    assert _shown(*none) == "none"
    silent = _tried("float16", 0, targets=(TargetRun(LITERT, "default", "refused", "does not load"),))
    assert _shown(*none, silent) == "float16"
    assert _shown(*none, silent, _tried("int8", 0.1)) == "int8"

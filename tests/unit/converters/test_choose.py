"""What `--quantize auto` tries and chooses, and what is advised."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from support import tinymodel

from converters import choose, truth
from converters.options import Options
from converters.report import Attempt, TargetRun


def options(**changes: Any) -> Options:
    return Options(Path("m"), Path("out"), "m", 1, **{"quantize": "auto", **changes})


def attempt(quantize: str, size: int, runtimes: int = 2, state: Any = "passed") -> Attempt:
    runs = [TargetRun(f"r{i}", "default", "passed" if i < runtimes else "refused") for i in range(2)]
    return Attempt(quantize, state, model_bytes=size, targets=(*runs, TargetRun("r0", "reference", "passed")))


def chosen(*tried: Attempt) -> str:
    found = choose.choose(tried)
    return found.quantize if found else ""


def test_what_auto_tries_depends_on_what_it_has() -> None:
    """Modes that need data are left out without any, float inputs where the client sends integers."""
    assert choose.modes(options()) == ("none", "float16", "dynamic")
    assert choose.modes(options(calibration="c.npz")) == ("none", "float16", "dynamic", "int8", "int16x8")
    assert choose.modes(options(calibration="c.npz", io="quantized")) == ("int8", "int16x8")
    assert choose.modes(options(quantize="mixed")) == ("mixed",)


def test_the_smallest_that_passes_is_chosen() -> None:
    """Size decides among what passes, whatever was refused or died."""
    assert chosen(attempt("none", 400), attempt("float16", 200), attempt("int8", 100, state="refused")) == "float16"
    assert chosen(attempt("none", 400, state="refused"), attempt("int8", 0, state="died")) == ""


def test_of_one_size_the_mode_that_accelerators_take() -> None:
    """A few bytes decide, and where they do not, int8 goes before float; int16x8 runs on reference kernels."""
    assert chosen(attempt("none", 400), attempt("dynamic", 100), attempt("int8", 101)) == "dynamic"
    assert chosen(attempt("none", 400), attempt("dynamic", 100), attempt("int8", 100)) == "int8"
    assert chosen(attempt("dynamic", 100), attempt("int16x8", 100)) == "dynamic"


def test_a_mode_that_more_runtimes_take_goes_before_a_smaller_one() -> None:
    """A fleet of which nothing is known may have either runtime."""
    assert chosen(attempt("none", 400), attempt("int8", 100, runtimes=1)) == "none"


def test_mixed_is_searched_where_int8_was_refused() -> None:
    """Not where it passed or killed the converter, nor for a model that is not sound as it is."""
    sound = attempt("none", 400)
    assert choose.wants_mixed(options(), [sound, attempt("int8", 100, state="refused")])
    assert choose.wants_mixed(options(), [sound, Attempt("int8", "refused", ("EXP has no int8 kernel",))])
    assert not choose.wants_mixed(options(), [sound, attempt("int8", 100)])
    assert not choose.wants_mixed(options(), [sound, attempt("int8", 100, state="died")])
    assert not choose.wants_mixed(options(io="quantized"), [sound, attempt("int8", 100, state="refused")])
    unsound = attempt("none", 400, state="refused")
    assert not choose.wants_mixed(options(), [unsound, attempt("int8", 100, state="refused")])


def test_advice_names_what_passes() -> None:
    """After a death the modes that work; after a missed gate, the data and `auto`."""
    died = choose.advice(options(quantize="int8"), [attempt("int8", 0, state="died"), attempt("float16", 1234)])
    assert died == ("--quantize float16 keeps every limit (1,234 bytes)",)
    missed = choose.advice(options(quantize="int8", calibration="c"), [attempt("int8", 100, state="refused")])
    assert missed == (
        "is --calibration what the model will see, scaled as for training?",
        "--quantize auto tries every mode and measures each",
    )
    assert "report" in choose.advice(options(), [attempt("none", 100, state="refused")])[0]
    assert choose.advice(options(quantize="none"), [attempt("none", 100, state="refused")]) == ()
    dice = dataclasses.replace(truth.read(tinymodel.dense_model()), ops={"RANDOM_UNIFORM": 1})
    refused = dataclasses.replace(attempt("none", 100, state="refused"), facts=dice)
    assert "draws random numbers (RANDOM_UNIFORM)" in choose.advice(options(quantize="none"), [refused])[0]


def test_a_mode_without_effect_is_not_chosen() -> None:
    """Its file is the float one again: what it says it did is not there."""
    facts = truth.read(tinymodel.dense_model())
    useless = dataclasses.replace(attempt("dynamic", 100), facts=dataclasses.replace(facts, effect=False))
    assert chosen(attempt("none", 100), useless) == "none"
    assert chosen(useless) == "dynamic"


def test_a_file_that_keeps_state_is_said_to() -> None:
    """A fused LSTM remembers where the SavedModel's layer begins anew: figures alone do not tell why they are off."""
    facts = dataclasses.replace(truth.read(tinymodel.dense_model()), stateful=True)
    refused = dataclasses.replace(attempt("none", 100, state="refused"), facts=facts)
    assert "keeps state" in choose.advice(options(quantize="none"), [refused])[0]

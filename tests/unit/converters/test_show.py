"""What is told on a terminal, of reports made by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support import samplereports

from converters import show
from converters.pipeline import Result
from converters.report import NOT_RUN, Attempt, LayerCost, MixedSearch, Report, TargetRun
from edged.engines.tflite_coverage import Coverage, Refusal

SEARCHED = MixedSearch("worst margin to a gate", tried=1, budget=60, uniform=0.123456, final=0.123456)
COST = LayerCost("head/MatMul", "FULLY_CONNECTED", score=-2.0, gained=2.25, extra_bytes=4096, kept_float=True)


def result(report: Report) -> Result:
    facts = report.shown.facts
    inputs, outputs = (facts.inputs, facts.outputs) if facts else ((), ())
    manifest = SimpleNamespace(
        name=report.name, version=report.version, quantize=report.chosen, inputs=inputs, outputs=outputs,
        postprocess=SimpleNamespace(top_k=0, output=""), requirements=SimpleNamespace(loaded_on=("r 1",)),
    )  # fmt: skip
    return Result(Path("bundles/x"), cast("Any", manifest), report)


def sized(before: int, after: int) -> str:
    report = samplereports.passing()
    source = replace(report.source, size=before)
    attempts = tuple(replace(a, model_bytes=after) for a in report.attempts)
    text = show.as_text(result(replace(report, source=source, attempts=attempts)))
    return next(line for line in text.splitlines() if line.startswith("size: "))


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (8000, 2000, "model 2,000 bytes (4.0 times smaller)"),
        (1000, 2500, "model 2,500 bytes (2.5 times larger)"),
        (1000, 1001, "model 1,001 bytes"),
    ],
)
def test_a_model_that_grew_is_called_larger(before: int, after: int, says: str) -> None:
    """A factor below 1 would read as a shrunk model."""
    assert sized(before, after).endswith(says)


def test_a_search_that_int8_passes_is_one_line() -> None:
    """No table head without rows under it."""
    attempt = Attempt("mixed", "passed", model_bytes=9, mixed=SEARCHED)
    assert list(show.mixed(attempt)) == ["mixed precision, 1 of 60 conversions: int8 passes, no layer is kept float"]
    assert list(show.mixed(Attempt("int8", "passed"))) == []


def test_a_search_tells_what_it_gained_and_what_each_layer_costs() -> None:
    """The score once, int8's and the mixture's; a layer without which nothing runs; the long tail is cut."""
    costs = (COST, *(replace(COST, layer=f"l{n}", score=NOT_RUN, kept_float=False) for n in range(30)))
    search = replace(SEARCHED, tried=42, uniform=-2.53, final=0.25, costs=costs)
    first, table, last = show.mixed(Attempt("mixed", "passed", mixed=search))
    assert first == "mixed precision, 42 of 60 conversions; worst margin to a gate: int8 -2.53, mixed 0.25"
    lines = table.splitlines()
    assert re.split(r"  +", lines[1]) == ["head/MatMul", "FULLY_CONNECTED", "+2.25", "4,096", "float"]
    assert re.split(r"  +", lines[2]) == ["l0", "FULLY_CONNECTED", "runs at all", "4,096", "int8"]
    assert (len(lines), last) == (21, "and 11 more, which cost less; the report has them all")


def test_a_search_that_found_nothing_says_so() -> None:
    """Refused with no layer measured: the scores stand, no table, and it is not said that int8 passes."""
    search = replace(SEARCHED, tried=2, uniform=NOT_RUN, final=-1.5)
    told = list(show.mixed(Attempt("mixed", "refused", ("no",), mixed=search)))
    assert told == ["mixed precision, 2 of 60 conversions; worst margin to a gate: int8 does not run, mixed -1.5"]
    (same,) = show.mixed(Attempt("mixed", "refused", ("no",), mixed=replace(search, uniform=-1.5)))
    assert "passes" not in same


@pytest.mark.parametrize("name", sorted(samplereports.ALL))
def test_no_line_ends_in_blanks_and_no_part_is_empty(name: str) -> None:
    """Every report that there can be is readable: tables have rows, parts are parted by one empty line."""
    report = samplereports.ALL[name]()
    text = show.as_text(result(report)) + "\n" if report.ships else show.refusal(report)
    lines = text.splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    assert "\n\n\n" not in text
    assert report.ships or text == "" or text.endswith("\n\n")


def test_targets_are_told_with_their_verdicts() -> None:
    """What did not run here is told too, with the reason."""
    report = samplereports.passing()
    absent = TargetRun("r 2", "", "not run", "lacks A version 2 (by table)")
    refused = TargetRun("r 3", "default", "refused", "first\nsecond", p50_us=7.25)
    attempt = replace(report.shown, targets=(TargetRun("r 1", "default", "passed", p50_us=1212.0), absent, refused))
    text = show.as_text(result(replace(report, attempts=(attempt,))))
    rows = [re.split(r"  +", line) for line in text.splitlines()]
    assert ["r 1", "default", "1,212", "passed"] in rows
    assert ["r 2", "-", "-", "not run: lacks A version 2 (by table)"] in rows
    assert ["r 3", "default", "7", "refused: first"] in rows


def test_the_figures_table_is_as_narrow_as_it_can_be() -> None:
    """The SavedModel's figure stands beside the converted one's; the relative error only where it is a gate."""
    report = samplereports.passing()
    (run, *others) = report.shown.targets
    (parity,) = run.outputs
    figures = {**parity.figures, "accuracy": 0.91, "accuracy_float": 0.92, "saturated": 0.25}
    gates = (*parity.gates, replace(parity.gates[0], metric="relative"))

    def header(changed: Any) -> tuple[list[str], list[str]]:
        attempt = replace(report.shown, targets=(replace(run, outputs=(changed,)), *others))
        lines = show.as_text(result(replace(report, attempts=(attempt,)))).splitlines()
        at = next(n for n, line in enumerate(lines) if line.startswith("compared with"))
        return re.split(r"  +", lines[at + 1]), re.split(r"  +", lines[at + 2])

    head, row = header(replace(parity, figures=figures))
    assert sorted(head[3:]) == ["accuracy (SavedModel)", "agreement", "cosine", "max_abs", "saturated", "snr_db"]
    assert row[head.index("accuracy (SavedModel)")] == "0.91 (0.92)"
    assert "relative" in header(replace(parity, gates=gates))[0]


def test_a_documented_share_is_an_upper_bound() -> None:
    """`at most` tells it from one that was measured."""
    rows = (
        Coverage("xnnpack", "measured", "r 1", 14, 15, 2, (Refusal("RESHAPE", 1),), (0,) * 9 + (-1,) + (1,) * 5),
        Coverage("xnnpack", "measured", "r 2", 2, 15, 1, (), (0, 0) + (-2,) * 13),
        Coverage("edgetpu", "documented", "a paper", 12, 15, 1, (Refusal("EXP", 3), Refusal("EXP", 1, "why"))),
        Coverage("gpu", "documented", "a paper", 0, 15, 0, reason="takes no op"),
    )
    report = samplereports.passing()
    text = show.as_text(result(replace(report, attempts=(replace(report.shown, coverage=rows),))))
    lines = [re.split(r"  +", line) for line in text.splitlines()]
    assert ["xnnpack (r 1)", "measured", "14 of 15 ops", "2", "RESHAPE"] in lines
    assert ["xnnpack (r 2)", "measured", "at least 2 of 15 ops", "1"] in lines
    assert ["edgetpu", "documented", "at most 12 of 15 ops", "1", "EXP"] in lines
    assert ["gpu", "documented", "0 of 15 ops", "0", "takes no op"] in lines


def test_modes_that_were_tried_are_a_table() -> None:
    """Size, the P50 of every runtime that was timed, the worst figure, the verdict with its reason."""
    outputs = (samplereports.parity("y", 0.9),)
    one = TargetRun("r 1", "default", "passed", "", outputs, 20.0)
    other = TargetRun("r 2", "default", "refused", "y: too far", outputs, 1234.0)
    own = TargetRun("r 1", "reference", "passed", "", (samplereports.parity("y", 0.1),), 99.0)
    absent = TargetRun("r 3", "", "not run", "loads it (by table)")
    report = replace(
        samplereports.passing(),
        chosen="int8",
        attempts=(
            Attempt("none", "passed", model_bytes=9000, targets=(one, absent)),
            Attempt("int8", "passed", model_bytes=3000, targets=(one, other, own, absent)),
            Attempt("int16x8", "died", ("the converter died\nof something",)),
        ),
    )
    assert [re.split(r"  +", line) for line in show.attempts(report).splitlines()] == [
        ["mode", "bytes", "P50 µs, r 1", "P50 µs, r 2", "worst agreement", "verdict"],
        ["none", "9,000", "20", "-", "0.9 (y)", "passed"],
        ["int8", "3,000", "20", "1,234", "0.9 (y)", "chosen"],
        ["int16x8", "-", "-", "-", "-", "died: the converter died"],
    ]


def test_what_no_runtime_ran_is_told_first() -> None:
    """A target that a table alone judged stands under the name of the bundle."""
    report = samplereports.passing()
    lines = show.as_text(result(report)).splitlines()
    assert lines[1] == "not run here, judged by table alone: ai-edge-litert 2.1.0"
    ran = replace(report.shown, targets=report.shown.targets[:3])
    assert "not run here" not in show.as_text(result(replace(report, attempts=(ran,))))


def test_layers_say_of_how_many_samples_they_are() -> None:
    """They are of fewer samples than the figures of the outputs."""
    report = samplereports.refused()
    assert show.layers(report).startswith("worst layers (on the first 8 of 16 samples, errors of the layers before")
    named = [line for line in show.layers(report).splitlines() if "= output" in line]
    assert [re.split(r"  +", line)[-1] for line in named] == ["model/softmax_14 = output onset"]
    assert show.layers(replace(report, samples=5)).startswith("worst layers (on 5 samples, errors of")

"""The report as JSON: every field is there, times can be left out, and any JSON reader takes it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
from support import samplereports

from converters import reportjson
from converters.gates import Gate, OutputParity
from converters.report import Report, TargetRun


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from _keys(item)
    elif isinstance(value, list):
        for item in value:
            yield from _keys(item)


@pytest.mark.parametrize("name", samplereports.ALL)
def test_is_strict_json(name: str) -> None:
    """Also NaN, infinity and hostile names give a document that a strict writer takes and a reader gives back."""
    document = reportjson.document(samplereports.ALL[name](), timings=True)
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_holds_every_field() -> None:
    """A field added to the report cannot be forgotten: the keys are those of the dataclasses."""
    report = samplereports.automatic()
    document = reportjson.document(report, timings=True)
    assert [*document] == ["format", "ships", "shown", *(field.name for field in dataclasses.fields(Report))]
    mixed = document["attempts"][-1]
    assert [*mixed["targets"][0]] == [field.name for field in dataclasses.fields(TargetRun)]
    assert (mixed["quantize"], mixed["model_bytes"], mixed["mixed"]["final"]) == ("mixed", 139_000, 0.1402)
    assert mixed["facts"]["nodes"][7]["op"] == "CONV_2D"
    assert mixed["facts"]["dtypes"]["int32"] == [9, 268]


def test_verdict_is_told() -> None:
    """A reader need not know the rules: whether it ships and whether each gate passes is written down."""
    assert reportjson.document(samplereports.automatic(), timings=False)["ships"] is True
    refused = reportjson.document(samplereports.refused(), timings=False)
    gates = {
        (gate["output"], gate["metric"]): gate["passed"]
        for item in refused["attempts"][0]["targets"][0]["outputs"]
        for gate in item["gates"]
    }
    assert refused["ships"] is False
    assert gates["note", "f1"] is True
    assert gates["onset", "f1"] is False


def test_times_can_be_left_out() -> None:
    """Without times two runs of different speed give the same document, and no key of a time is left."""
    slow = samplereports.passing()
    attempt = dataclasses.replace(slow.attempts[0], targets=tuple(
        dataclasses.replace(run, p50_us=run.p50_us * 3) for run in slow.attempts[0].targets
    ))  # fmt: skip
    slow = dataclasses.replace(slow, attempts=(attempt,))
    first = reportjson.document(samplereports.passing(), timings=False)
    assert first == reportjson.document(slow, timings=False)
    assert not [key for key in _keys(first) if key.endswith("_us")]
    timed = reportjson.document(slow, timings=True)
    assert timed["attempts"][0]["targets"][0]["p50_us"] == 636.0


def test_order_of_names_does_not_depend_on_how_they_came() -> None:
    """The same versions in another order give the same bytes."""
    report = samplereports.passing()
    turned = dataclasses.replace(report, versions=dict(reversed([*report.versions.items()])))
    assert json.dumps(reportjson.document(report, timings=True)) == json.dumps(
        reportjson.document(turned, timings=True)
    )


def test_numbers_are_plain_and_other_things_are_refused() -> None:
    """NumPy's numbers become JSON's; what is no number is text; an object nobody can read is an error."""
    gate = Gate("y", "cosine", cast("float", np.float32(0.5)), 0.95)
    figures = {"a": cast("float", np.int64(3)), "nan": math.nan, "up": math.inf, "down": -math.inf}
    run = TargetRun("r", "", "passed", "", (OutputParity("y", figures, (gate,)),))
    report = samplereports.bare()
    attempt = dataclasses.replace(report.attempts[0], targets=(run,))
    item = reportjson.document(dataclasses.replace(report, attempts=(attempt,)), timings=True)["attempts"][0][
        "targets"
    ][0]
    assert item["outputs"][0]["figures"] == {"a": 3, "down": "-Infinity", "nan": "NaN", "up": "Infinity"}
    assert item["outputs"][0]["gates"][0] == {
        "output": "y", "metric": "cosine", "value": 0.5, "threshold": 0.95, "at_least": True, "note": "",
        "passed": False,
    }  # fmt: skip
    with pytest.raises(TypeError, match="not object"):
        reportjson.document(dataclasses.replace(report, versions={"a": cast("str", object())}), timings=True)

"""The table of op versions: what it tells, and how it is folded, merged and written.

Expected versions were read off the runtimes themselves; tests/integration/test_compat.py asks them again.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.engines import op_versions, tflite_runtime
from edged.engines import op_versions_measure as measuring
from edged.engines.op_versions import Missing
from edged.engines.op_versions_measure import Measured

TFLITE = "tflite-runtime 2.14.0"


def test_every_runtime_that_edged_knows_is_in_the_table() -> None:
    """The runtimes of the table are those of the engine, and each has releases, oldest first by number."""
    assert set(op_versions.RUNTIMES) == {runtime.name for runtime in tflite_runtime.RUNTIMES}
    assert set(op_versions.table()) == set(op_versions.RUNTIMES)
    for name in op_versions.RUNTIMES:
        numbers = [tuple(map(int, r.rpartition(" ")[2].split("."))) for r in op_versions.releases(name)]
        assert numbers == sorted(set(numbers))
        assert numbers
    assert op_versions.releases() == tuple(r for name in op_versions.RUNTIMES for r in op_versions.releases(name))


@pytest.mark.parametrize(
    ("op", "version", "release", "has"),
    [
        ("FULLY_CONNECTED", 12, TFLITE, 10),
        ("FULLY_CONNECTED", 12, "ai-edge-litert 1.0.0", None),
        ("FULLY_CONNECTED", 10, "tflite-runtime 2.12.0", 9),
        ("FULLY_CONNECTED", 10, "tflite-runtime 2.13.0", None),
        ("GELU", 1, "tflite-runtime 2.7.0", 0),
        ("GELU", 1, "tflite-runtime 2.8.0", None),
        ("SQRT", 2, "ai-edge-litert 1.4.0", 1),
        ("SQRT", 2, "ai-edge-litert 2.0.2", None),
        ("NO_SUCH_OP", 1, TFLITE, 0),
    ],
)
def test_an_op_version_is_missing_or_there(op: str, version: int, release: str, has: int | None) -> None:
    """Known steps of the runtimes: the release that first has a version, and the one before it, with what it has."""
    found = op_versions.missing({op: version, "ADD": 1}, (), release)
    assert [(m.op, m.needed, m.highest) for m in found] == ([] if has is None else [(op, version, has)])


def test_a_version_below_the_lowest_is_missing_too() -> None:
    """No runtime ever had BROADCAST_TO in version 1, which tools that raise no versions write."""
    (lack,) = op_versions.missing({"BROADCAST_TO": 1}, (), TFLITE)
    assert (lack.lowest, lack.highest) == (2, 3)
    assert str(lack) == "BROADCAST_TO version 1 (has 2 to 3)"
    assert op_versions.missing({"BROADCAST_TO": 2}, (), TFLITE) == ()


def test_custom_ops_are_known_by_name() -> None:
    """Both runtimes bring the detection op; another name is missing, and told once, after the builtin ops."""
    for release in op_versions.releases():
        assert op_versions.missing({}, ["TFLite_Detection_PostProcess"], release) == ()
    found = op_versions.missing({"GELU": 9}, ["Mine", "Mine", "FlexErf"], TFLITE)
    assert [str(m) for m in found] == ["GELU version 9 (has 1 to 2)", "custom op FlexErf", "custom op Mine"]


def test_a_release_that_was_not_measured_is_judged_by_the_one_before_it() -> None:
    """Newer than all: the newest; between two: the older; shortened: the oldest that fits."""
    judges = {
        TFLITE: TFLITE,
        "tflite-runtime 2.15.1": TFLITE,
        "tflite-runtime 2.9.3": "tflite-runtime 2.9.1",
        "tflite-runtime 2.13": "tflite-runtime 2.13.0",
        "ai-edge-litert 2.1": "ai-edge-litert 2.1.0",
    }
    assert {asked: op_versions.judge_of(asked) for asked in judges} == judges


@pytest.mark.parametrize("release", ["tflite-runtime 2.1", "tflite-runtime 2.5.0", "tflite-runtime", "tensorrt 8.0"])
def test_no_release_is_judged_by_a_newer_one(release: str) -> None:
    """Older than every measured release, without a version, or another runtime: an error that lists what is known."""
    with pytest.raises(LookupError, match=r"2\.7\.0, 2\.8\.0|ai-edge-litert, tflite-runtime"):
        op_versions.missing({"ADD": 1}, (), release)


def test_the_oldest_release_is_the_first_from_which_on_nothing_is_missing() -> None:
    """The step of the op that came last decides; None where even the newest lacks something."""
    assert op_versions.oldest({"FULLY_CONNECTED": 9, "CAST": 5}, (), "tflite-runtime") == "tflite-runtime 2.13.0"
    assert op_versions.oldest({"FULLY_CONNECTED": 12}, (), "tflite-runtime") is None
    assert (
        op_versions.oldest({"FULLY_CONNECTED": 12}, (), "ai-edge-litert") == op_versions.releases("ai-edge-litert")[0]
    )
    assert op_versions.oldest({}, ["aeq.hadamard_rotation"], "ai-edge-litert") == "ai-edge-litert 1.3.0"


def test_an_op_that_a_release_took_away_counts_from_its_return(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hole in the middle: the release before it has the op, yet the oldest to rely on comes after."""
    spans: list[dict[str, object]] = [{"X": 2}, {}, {"X": 2}, {"X": [2, 3]}]
    measured = [Measured("tflite-runtime", f"1.{i}", {"builtin": ops, "custom": {}}) for i, ops in enumerate(spans)]
    monkeypatch.setattr(op_versions, "_table", lambda: measuring.folded(measured))
    assert [bool(op_versions.missing({"X": 2}, (), f"tflite-runtime 1.{i}")) for i in range(4)] == [0, 1, 0, 0]
    assert op_versions.oldest({"X": 2}, (), "tflite-runtime") == "tflite-runtime 1.2"
    assert op_versions.missing({"X": 1}, (), "tflite-runtime 1.3") == (Missing("X", 1, 3, 2),)


SPANS = st.one_of(st.integers(1, 9), st.tuples(st.integers(2, 4), st.integers(4, 9)).map(list))
OPS = st.fixed_dictionaries(
    {
        "builtin": st.dictionaries(st.sampled_from("ABCD"), SPANS),
        "custom": st.dictionaries(st.sampled_from("xy"), st.just(1)),
    }
)


@given(st.lists(OPS, min_size=1, max_size=5))
def test_folding_loses_nothing(found: list[dict[str, dict[str, object]]]) -> None:
    """Whatever releases have, the folded table spelled out is what was measured, in order of release."""
    measured = [Measured(name, f"2.{i + 8}.0", ops) for name in ("a", "b") for i, ops in enumerate(found)]
    assert measuring.spelled_out(measuring.folded(measured[::-1])) == measured


def test_a_release_measured_again_takes_the_place_of_what_was_there() -> None:
    """Differences are told op by op before, and none is left after."""
    table = op_versions.table()
    name, release = "tflite-runtime", "2.14.0"
    (ops,) = [one.ops for one in measuring.spelled_out(table) if (one.name, one.release) == (name, release)]
    builtin = {**ops["builtin"], "FULLY_CONNECTED": 12}
    del builtin["GELU"]
    again = Measured(name, release, {**ops, "builtin": builtin})
    assert measuring.differences(table, again) == [
        "FULLY_CONNECTED: 10 in the table, 12 measured",
        "GELU: 2 in the table, 0 measured",
    ]
    merged = measuring.merged(table, again)
    assert measuring.differences(merged, again) == []
    assert merged["ai-edge-litert"] == table["ai-edge-litert"]
    assert measuring.differences(table, Measured(name, "2.99.0", ops)) == ["not in the table"]


def test_the_file_is_as_the_script_writes_it(tmp_path: Path) -> None:
    """Sorted, an op a line: measuring again changes no line that says the same."""
    table = op_versions.table()
    measuring.write(tmp_path / "t.json", measuring.folded(measuring.spelled_out(table)))
    assert (tmp_path / "t.json").read_bytes() == op_versions.FILE.read_bytes()
    assert json.loads((tmp_path / "t.json").read_text()) == table

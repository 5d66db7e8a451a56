"""Two runs beside each other: ratios of what was asked the same, and what differs of everything else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import benchruns

from edged import cli
from edged.bench import compare, document, output, page_compare, table
from edged.bench.plan import ClosedLoad, OpenLoad, SparseLoad
from edged.errors import BadDataError, UsageError

Doc = dict[str, Any]


def written(folder: Path, name: str, found: Doc) -> Path:
    output.write(folder / name, found)
    return folder / name


def test_two_runs_are_compared() -> None:
    """The same run gives ratios of 1; a slower one gives its factor; other hosts are named first."""
    first, second = benchruns.sweep(), benchruns.sweep(scale=2)
    assert [pair.ratios() for pair in compare.pairs(first, first)] == [[1.0] * 6] * 3
    for pair in compare.pairs(first, second):
        assert pair.ratios()[:5] == pytest.approx([2.0] * 5, rel=0.02)
    assert compare.remarks(first, second) == []
    second["host"] |= {"cpu": "another", "edged": "9.9"}
    second["runs"].pop()
    remarks = compare.remarks(first, second)
    assert remarks[0].startswith("the hosts differ, so the ratios are not of edged alone: cpu")
    assert remarks[1].startswith("versions differ: edged")
    assert remarks[2] == "only in A: har, 64 B, QoS 0, 200/s"
    told = table.comparison(first, second)
    assert "B/A" in told
    assert told.startswith(
        "A: press-07 at 127.0.0.1:1883, MQTT 5\nB: press-07 at 127.0.0.1:1883, MQTT 5\nthe hosts differ"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "other"}, "model differs: har in A, other in B"),
        ({"payload_bytes": 65}, "payload differs: 64 bytes in A, 65 bytes in B"),
        ({"codec": "json"}, "codec differs: raw in A, json in B"),
        ({"qos": 1}, "QoS differs: 0 in A, 1 in B"),
        (
            {"load": {"kind": "open", "rate": 201.0, "arrivals": "constant", "seed": 0}},
            "rate differs: 200/s in A, 201/s",
        ),
        (
            {"load": {"kind": "open", "rate": 200.0, "arrivals": "poisson", "seed": 0}},
            "arrivals differs: constant in A",
        ),
        ({"load": {"kind": "closed", "concurrency": 4}}, "load differs: open in A, closed in B"),
    ],
)
def test_unlike_runs_are_not_judged(change: Doc, said: str) -> None:
    """One run of each is shown side by side, with a line for each thing that differs and without a ratio."""
    first, second = benchruns.single(), benchruns.single()
    second["runs"][0] |= change
    (pair,) = compare.pairs(first, second)
    assert pair.ratios() == [None] * 6
    assert not compare.judged(first, second)
    assert len([line for line in compare.remarks(first, second) if line.startswith(said)]) == 1
    told = table.comparison(first, second)
    assert "B/A" not in told
    assert said in told
    shown = page_compare.page(first, second)
    assert "were not asked the same" in shown
    assert "A: press-07 at 127.0.0.1:1883, MQTT 5" in shown
    assert "x</td>" not in shown
    assert said in shown


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (ClosedLoad, "in flight differs: 1 in A, 2 in B"),
        (lambda number: SparseLoad(float(number)), "interval differs: 1 s in A, 2 s in B"),
    ],
)
def test_other_loads_differ_too(make: Callable[[int], Any], said: str) -> None:
    runs = [benchruns.single() | {"runs": [benchruns.run(make(number), 20.0)]} for number in (1, 2)]
    assert compare.remarks(*runs)[0] == said
    assert not compare.judged(*runs)


def test_conditions_are_told_and_do_not_forbid_a_ratio() -> None:
    """Another device or delegate is what one compares; another deadline or length is to be known."""
    first, second = benchruns.single(), benchruns.single()
    second["runs"][0] |= {"deadline_ms": 5, "seconds": 5.0, "warmup_s": 0.0, "warmup_requests": 20}
    second["target"] |= {"device": "press-08"}
    second["target"]["models"]["har"] |= {"delegate": "gpu"}
    assert compare.judged(first, second)
    assert compare.remarks(first, second) == [
        "the targets differ: device press-07 / press-08",
        "the model har differs: delegate cpu / gpu",
        "deadline differs: 1000 ms in A, 5 ms in B",
        "length differs: 20 s in A, 5 s in B",
        "warm-up differs: 1 s in A, 20 requests in B",
    ]


def test_of_sweeps_only_what_both_have_is_judged() -> None:
    """Of another QoS nothing is; a rate that was run twice is compared in order."""
    first, second = benchruns.sweep(), benchruns.sweep()
    for run in second["runs"]:
        run["qos"] = 1
    assert compare.pairs(first, second) == []
    assert compare.remarks(first, second)[0] == "QoS differs: 0 in A, 1 in B"
    assert not compare.judged(first, second)
    slow = benchruns.run(OpenLoad(50), 4.0, scale=3)
    twice = [first | {"runs": [*first["runs"], run]} for run in (first["runs"][0], slow)]
    assert [pair.ratios()[0] for pair in compare.pairs(*twice)] == pytest.approx([1, 1, 1, 3], rel=0.02)


def test_knees_are_compared_where_they_mean_the_same() -> None:
    """Of one bound and one question there is a ratio, though no rate was tried in both."""
    first, second = benchruns.knee(), benchruns.knee()
    for run in second["runs"]:
        if run["load"]["kind"] == "open":
            run["load"]["rate"] += 1
    second["knee"] |= {"rate": 120.0}
    assert compare.knees(first, second) == 1.2
    assert compare.remarks(first, second) == ["knee of a P99 within 20 ms: 100/s in A, 120/s in B (1.200x)"]
    second["knee"] |= {"p99_bound_ms": 10.0}
    assert compare.remarks(first, second) == ["the knees are of different bounds: a P99 within 20 ms in A, 10 ms in B"]
    second["knee"] |= {"p99_bound_ms": 20.0, "rate": None}
    assert compare.remarks(first, second) == ["no knee in B"]
    assert compare.knees(first, second) is None


def test_a_comparison_is_data_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` prints what `-o` writes beside the page: remarks, figures, ratios; a folder will do as a run."""
    a, b = written(tmp_path, "a", benchruns.sweep()), written(tmp_path, "b", benchruns.sweep(scale=2))
    assert cli.main(["bench", "--compare", str(a), str(b / "bench.json"), "--json", "-o", str(tmp_path / "c")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((tmp_path / "c" / "compare.json").read_text())
    assert (tmp_path / "c" / "compare.html").stat().st_size > 5000
    assert [case["case"] for case in found["cases"]] == [run["label"] for run in benchruns.sweep()["runs"]]
    first = found["cases"][0]
    assert first["ratios"].keys() == {*compare.RATIOS}
    assert first["ratios"]["p99"] == pytest.approx(first["b"]["p99_ms"] / first["a"]["p99_ms"], rel=1e-3)
    assert (found["a"]["device"], first["differs"], found["remarks"]) == ("press-07", [], [])


def test_a_run_without_answers_gives_no_ratio_and_is_called_so() -> None:
    """It was asked the same: that is not what is wrong with it."""
    first, second = benchruns.single(), benchruns.single()
    second["runs"][0]["latency"] |= dict.fromkeys(("p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms")) | {"n": 0}
    second["runs"][0]["ok_per_s"] = first["runs"][0]["ok_per_s"] = 0.0
    assert not compare.judged(first, second)
    assert compare.unjudged(first, second) == "no ratio, for one of the two runs has no answers"


def test_a_search_without_a_knee_is_called_so() -> None:
    """The same question and bound, no rate in common: what is missing is the knee."""
    first, second = benchruns.single(), benchruns.single()
    for found, rate in ((first, 100.0), (second, 50.0)):
        found["runs"][0]["load"] |= {"rate": rate}
        found["knee"] = {"rate": None if rate == 50.0 else rate, "p99_bound_ms": 20.0}
    assert not compare.judged(first, second)
    assert "one was not found" in compare.unjudged(first, second)


def test_unlike_runs_end_with_a_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CI must not take the figures for a judgement; they are printed all the same."""
    a, b = written(tmp_path, "a", benchruns.single()), written(tmp_path, "b", benchruns.soak())
    assert cli.main(["bench", "--compare", str(a), str(b), "--json"]) == 65
    told = capsys.readouterr()
    assert told.err == "edged: --compare: no ratio, for the two runs were not asked the same (the remarks say more)\n"
    (case,) = json.loads(told.out)["cases"]
    assert case["ratios"] is None
    assert case["differs"] == ["rate differs: 200/s in A, 20/s in B"]


@pytest.mark.parametrize(
    "content",
    [
        "", "[]", "{}", '{"format": 9, "runs": [], "host": {}}', '{"format": 1, "runs": [{}], "host": {"cpu": 1}}',
        json.dumps(benchruns.single() | {"runs": [{"label": "of no figures"}]}),
    ],
)  # fmt: skip
def test_what_is_no_run_is_refused(content: str, tmp_path: Path) -> None:
    """One line that names the file, also where a folder was named."""
    (tmp_path / "bench.json").write_text(content)
    with pytest.raises(BadDataError, match=r"bench\.json: is not what"):
        document.load(tmp_path / "bench.json")
    with pytest.raises(BadDataError, match=r"bench\.json: is not what"):
        document.load(tmp_path)
    with pytest.raises(BadDataError, match=r"y\.json: cannot be read"):
        document.load(tmp_path / "y.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadDataError, match=r"empty: is a folder without a bench\.json"):
        document.load(tmp_path / "empty")


def test_a_comparison_is_no_run(tmp_path: Path) -> None:
    """What `--compare -o` wrote cannot be compared again by mistake."""
    output.write_comparison(tmp_path / "c.json", benchruns.single(), benchruns.single())
    with pytest.raises(BadDataError, match="is not what"):
        document.load(tmp_path / "c.json")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("demo.txt", "demo.txt is a file, not a folder (name a folder, or a file that ends in .json)"),
        ("demo.txt/deep/x", "demo.txt is a file, not a folder"),
        ("demo.txt/x.json", "demo.txt is a file, not a folder"),
        ("folder.json", "folder.json is a folder"),
        ("run/bench.json", "bench.json is one of the two runs"),
        ("run/bench.html", "bench.html is a file, not a folder"),
    ],
)
def test_where_nothing_can_be_written(name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Known before anything is measured or printed: one line, exit code 2, and nothing is overwritten."""
    (tmp_path / "demo.txt").touch()
    (tmp_path / "folder.json").mkdir()
    run = written(tmp_path, "run", benchruns.single())
    before = (run / "bench.json").read_bytes()
    assert cli.main(["bench", "--compare", str(run), str(run), "-o", str(tmp_path / name)]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert said in told.err
    assert (run / "bench.json").read_bytes() == before
    if not name.startswith("run"):
        with pytest.raises(UsageError):
            output.check(tmp_path / name)

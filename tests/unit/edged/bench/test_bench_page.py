"""The page of a run: whole, of text only, its plots in order and with what they say of themselves."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from support import benchruns
from support.htmlpage import Page

from edged.bench import chart, markup, page, page_compare, page_plots
from edged.bench.figure import milliseconds
from edged.bench.plan import ClosedLoad, OpenLoad


def points(drawn: str, line: int) -> list[tuple[float, float]]:
    """Where the corners of a line are."""
    path = next(a["d"] or "" for a, _ in Page(f"<body>{drawn}</body>").all("path", f"s{line}") if len(a["d"] or "") > 9)
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.]+) ([\d.]+)", path)]


def legend(drawn: str) -> list[str]:
    return [text for _, text in Page(f"<body>{drawn}</body>").all("li")]


@pytest.mark.parametrize("name", benchruns.ALL)
def test_every_page_is_whole(name: str) -> None:
    """Every tag is closed in order, and the same document gives the same page."""
    found = benchruns.ALL[name]()
    text = page.page(found)
    assert text == page.page(json.loads(json.dumps(found)))
    read = Page(text)
    assert read.all("h1")
    assert read.all("svg")
    for run in found["runs"]:
        assert milliseconds(run["latency"]["p50_ms"]) in read.text


def test_hostile_names_stay_text() -> None:
    """A model or a host of such a name makes no element."""
    found = benchruns.sweep(model="<script>alert(1)</script>")
    found["host"]["cpu"] = "<img src=x onerror=alert(1)>"
    for text in (page.page(found), page_compare.page(found, found)):
        assert "<script" not in text
        assert "<img" not in text
        assert "<script>alert(1)" in Page(text).text


def test_axes_have_round_marks_inside_which_everything_lies() -> None:
    """Linear ones begin at zero where that is near; logarithmic ones have marks at each decade."""
    for low, high in ((0, 4), (0.3, 7), (95, 101), (5, 5), (0, 0), (1e6, 3e9)):
        axis = chart.linear(low, high)
        assert axis.low <= low <= high <= axis.high
        assert 2 <= len(axis.marks) <= 9
        assert axis.place(axis.low) == 0
        assert axis.place(axis.high) == pytest.approx(1)
    assert [word for _, word in chart.linear(0, 4).marks] == ["0", "1", "2", "3", "4"]
    for low, high in ((0.1, 0.2), (3, 4000), (1, 1), (0.07, 9e5)):
        axis = chart.logarithmic(low, high)
        assert axis.low <= low * 1.01
        assert axis.high >= high * 0.99
        assert 2 <= len(axis.marks) <= 12
    nines = chart.nines(1000)
    assert [word for _, word in nines.marks] == ["0", "50", "90", "99", "99.9"]
    assert nines.place(99) - nines.place(90) == pytest.approx(nines.place(99.9) - nines.place(99))


def test_a_curve_goes_from_the_lowest_rate_to_the_highest() -> None:
    """In whatever order the rates were tried, and one that was tried again has one point: the worst of its P99."""
    runs = [benchruns.run(OpenLoad(rate), 2.0, scale=scale) for rate, scale in ((200, 1), (50, 1), (100, 9), (100, 1))]
    for name in ("P99, the worst of each", "P50, the middle of each"):
        assert name in legend(page_plots.against_rate(runs, None))
    across = [x for x, _ in points(page_plots.against_rate(runs, None), 0)]
    assert across == sorted(across)
    assert len(across) == 3
    worst = points(page_plots.against_rate([runs[1], runs[2], runs[0]], None), 0)
    assert points(page_plots.against_rate(runs, None), 0) == worst


def test_open_and_closed_loops_have_curves_of_their_own() -> None:
    """A closed loop has no rate; what it has is how many were in flight."""
    opened = [benchruns.run(OpenLoad(rate), 2.0) for rate in (50, 100)]
    closed = [benchruns.run(ClosedLoad(number), 2.0) for number in (8, 1, 4)]
    assert page_plots.against_rate([*opened, *closed], 5.0) == page_plots.against_rate(opened, 5.0) != ""
    across = [x for x, _ in points(page_plots.against_flight([*opened, *closed], None), 0)]
    assert across == sorted(across)
    assert len(across) == 3
    assert page_plots.against_flight(opened, None) == page_plots.against_rate(closed, None) == ""


def test_a_page_has_its_runs_by_rate() -> None:
    """A closed loop comes after the rates."""
    found = benchruns.knee()
    rows = [text for attributes, text in Page(page.page(found)).all("th") if attributes.get("scope") == "row"]
    shown = rows[: len(found["runs"])]
    assert shown == ["55/s", "82/s", "100/s (1)", "100/s (2)", "100/s (3)", "105/s", "closed, 16 in flight"]


@pytest.mark.parametrize("count", [1, 3, 6, 7, 20])
def test_the_legend_names_what_is_drawn(count: int) -> None:
    """Also a line that is alone; of many the first, the last and some between, and the plot says that it is some."""
    lines = [chart.Line(f"line {i}", [(0, i + 1), (1, i + 2)]) for i in range(count)]
    drawn = chart.plot("plot", "x", "y", chart.linear(0, 1), chart.linear(0, 30), lines)
    named = legend(drawn)
    assert len(named) == min(count, chart.MOST_LINES)
    assert (named[0], named[-1]) == ("line 0", f"line {count - 1}")
    bodies = [a for a, _ in Page(f"<body>{drawn}</body>").all("path", "line") if len(a["d"] or "") > 9]
    assert len(bodies) == len(named)
    assert (f"({len(named)} of {count} are drawn" in drawn) == (count > chart.MOST_LINES)


@pytest.mark.parametrize(("seconds", "word"), [(5, "seconds"), (300, "seconds"), (900, "minutes"), (20_000, "hours")])
def test_the_axis_of_time_has_the_unit_of_the_run(seconds: float, word: str) -> None:
    """Both over the requests and over the process: nobody reads 0.05 minutes."""
    found = benchruns.run(OpenLoad(0.5 if seconds > 100 else 20), seconds)
    samples = [{"at_s": seconds * i / 4, "rss_bytes": 1 << 20, "threads": 3, "descriptors": 4} for i in range(5)]
    plots = [page_plots.over_time(found, ""), *page_plots.process(found | {"process": {"samples": samples}}, "A: ")]
    assert len(plots) == 3
    for drawn in plots:
        assert {"seconds", "minutes", "hours"} & {text for _, text in Page(f"<body>{drawn}</body>").all("text")} == {
            word
        }
    assert [text for _, text in Page(f"<body>{plots[1]}</body>").all("figcaption")] == [
        "A: resident memory of the device"
    ]


def test_an_empty_cell_keeps_its_column() -> None:
    """A row has as many cells as the head, each under its own name, whichever of them are empty."""
    head = ("stage", "P50", "P99", "mean")
    read = Page(f"<body>{markup.table('t', head, [['a', '1', '2', '3'], ['b', '', '', '4']])}</body>")
    cells = [(attributes["data-label"], text) for attributes, text in read.all("td")]
    assert cells == [("P50", "1"), ("P99", "2"), ("mean", "3"), ("P50", ""), ("P99", ""), ("mean", "4")]


def test_a_model_is_told_in_whole_words() -> None:
    """Only a hash is cut."""
    found: dict[str, Any] = benchruns.single()
    found["target"]["models"]["har"] |= {"scheduling": "nice -20, slice 0.1 ms", "sha256": "a" * 64}
    told = Page(page.page(found)).text
    assert "scheduling nice -20, slice 0.1 ms" in told
    assert f"sha256 {'a' * 16}" in told
    assert "a" * 17 not in told

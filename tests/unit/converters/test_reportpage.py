"""The report page as text: every fact is on it, no name becomes markup, the same report gives the same bytes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from support import samplefiles, samplereports
from support.htmlpage import Page
from support.samplereports import HOSTILE, LITERT, LONG, TFLITE, histogram, parity, targets
from support.savedmodels import ROOT

from converters import reportjson, reportpage
from converters.gates import Gate, OutputParity
from converters.report import Attempt, Histogram, Report
from converters.reportpage_words import NONE, TIMES
from converters.reportpage_worst import parts
from edged.engines.tflite_coverage import Coverage
from edged.engines.tflite_nodes import Kind

# The first cell of a row of ops, and the letter of the second.
_PLACES = re.compile(rf"(\d+)(?:{NONE}(\d+))?(?=[8HF·])")
_TAGS = {
    "html", "head", "meta", "link", "title", "style", "body", "header", "main", "section", "h1", "h2", "p", "span",
    "bdi", "ul", "li", "a", "strong", "div", "dl", "dt", "dd", "table", "caption", "thead", "tbody", "tr", "th", "td",
    "details", "summary", "figure", "figcaption", "svg", "rect", "line", "text",
}  # fmt: skip


def read(report: Report, *, timings: bool = True) -> Page:
    return Page(reportpage.page(report, timings=timings))


def shown(attempt: Attempt, **changes: Any) -> Page:
    """A page of one attempt, the passing one with changes."""
    return read(replace(samplereports.passing(), attempts=(replace(attempt, **changes),)))


PASSING = samplereports.passing().attempts[0]


@pytest.mark.parametrize(
    ("name", "verdict", "why"),
    [
        (
            "passing",
            "May ship as int8 (1 target not run)",
            "all 2 limits are kept, measured on 540 samples of test.npz with ai-edge-litert",
        ),
        (
            "automatic",
            "May ship as mixed (1 target not run)",
            # Of .05 that there are, .007.
            "Closest to its limit: onset, F1 0.957, must be ≥ 0.95: 14 % of the room is left.",
        ),
        ("fleet", "May not ship", "dynamic keeps every limit, yet:tflite-runtime 2.14.0: does not load: Didn't find"),
        ("refused", "May not ship", "It misses 3 of 6 limits:onset: F1 0.59, must be ≥ 0.95contour: F1 0.727, must"),
        ("refused", "May not ship", "output 'extra': the same answer for every sample"),
        ("died", "May not ship", "int8 could not be made.the converter was killed by SIGSEGV while converting to int8"),
        ("nothing", "May not ship", "No mode may ship. dynamic comes nearest: it answers too differently from the"),
        ("nothing", "May not ship", "It misses 1 of 2 limits:y: argmax agreement 0.93, must be ≥ 0.95"),
        ("bare", "May ship as float (none)", "no output was held against the SavedModel"),
    ],
)
def test_verdict_comes_first(name: str, verdict: str, why: str) -> None:
    """The first heading is the verdict, the reason stands beside it, and the browser's tab says it too."""
    report = samplereports.ALL[name]()
    page = read(report)
    assert page.all("h1")[0][1].split(maxsplit=1)[1] == verdict
    header = page.all("header")[0][1]
    assert why in header
    assert all(advice in header for advice in report.advice)
    assert page.all("title")[0][1] == f"{report.name} {report.version}: {verdict.lower()}"


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, name)
            yield from [("name", name)] if key in ("ops", "versions", "outside") else []
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, key)
    elif isinstance(value, str) and value:
        yield key, value


@pytest.mark.parametrize("name", ["passing", "automatic", "refused", "died"])
def test_no_word_of_the_report_is_missing(name: str) -> None:
    """Every text of the report is on the page; only metrics have longer names there."""
    report = samplereports.ALL[name]()
    document = reportjson.document(replace(report, attempts=(report.shown,)), timings=True)
    body = read(report).text
    # Tensors of ops that are told together; the state of a mode, which the verdict is; ops, told by their reasons.
    left = {"tensor", "metric", "state", "kind"} if name == "automatic" else {"metric", "state"}
    words = {(key, text) for key, text in _leaves(document) if key not in left | {"nodes"}}
    # Several missed limits in one text stand on lines of their own, a path that two layers share stands once.
    told = {(key, part) for key, text in words for part in parts(text) if key != "layer" or " … " not in part}
    missing = {(key, text) for key, text in told if text not in body and not text.startswith("model/")}
    assert len(words) > 8
    assert not missing


def test_nothing_of_a_model_becomes_markup() -> None:
    """Names with tags, quotes, a script's end, terminal escapes and turned text are shown as text, in every place."""
    page = read(samplereports.weird())
    assert {tag for tag, _, _ in page.elements} <= _TAGS
    assert not [name for _, attributes, _ in page.elements for name in attributes if name.startswith("on")]
    text = "</script><img src=x onerror=alert(1)>\"'gnp.exe[2J&amp;"
    assert page.text.count(text) > 30
    raw = reportpage.page(samplereports.weird(), timings=True)
    assert not {"\u202e", "\x1b"} & set(raw)
    assert HOSTILE not in raw


def test_nothing_is_fetched_and_nothing_runs() -> None:
    """No script, no address of another file; the policy forbids both should markup ever slip through."""
    page = read(samplereports.automatic())
    links = [value for _, attributes, _ in page.elements for key, value in attributes.items() if key in ("href", "src")]
    assert set(links) == {"data:,", "#warnings"}
    style = page.all("style")[0][1]
    assert "url(" not in style
    assert "@import" not in style
    policy = [attributes["content"] for attributes, _ in page.all("meta") if "http-equiv" in attributes]
    assert policy[0] is not None
    assert policy[0].startswith("default-src 'none'; style-src 'unsafe-inline';")
    assert "script-src" not in policy[0]


def test_times_can_be_left_out() -> None:
    """A bundle's own page does not depend on how fast the machine was."""
    slow = replace(PASSING, targets=targets(parity("y", 0.9875), p50_us=999_000.0))
    first, second = samplereports.passing(), replace(samplereports.passing(), attempts=(slow,))
    assert reportpage.page(first, timings=False) == reportpage.page(second, timings=False)
    assert "Median time" not in read(first, timings=False).text
    assert "212 µs" in read(first).text
    assert "999 ms" in read(second).text


def test_same_bytes_in_another_process() -> None:
    """No order of a set or a hash reaches the page."""
    code = (
        "import sys, hashlib; sys.path[:0] = ['tests']; from support import samplereports as s;"
        "from converters import reportpage; print(hashlib.sha256(reportpage.page(s.weird(), timings=True).encode()"
        " + reportpage.page(s.automatic(), timings=True).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True,
            text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(digests) == 1


def test_every_runtime_has_its_own_median_time() -> None:
    """The table of modes has a column for each runtime; the card names the fastest and tells of the others."""
    page = read(samplereports.automatic())
    heads = [text for _, text in page.all("th") if text.startswith("median time,")]
    assert heads == [f"median time, {LITERT}", f"median time, {TFLITE}"]
    row = next(text for _, text in page.all("tr") if text.startswith("int8"))
    assert "117.6 KiB16.9 ms45.6 ms" in row
    assert f"18.4 msan inference on {LITERT}; 49.7 ms on {TFLITE}; on this machine" in page.text
    assert "median time" not in read(samplereports.automatic(), timings=False).text


def test_why_a_mode_is_refused_needs_no_touch() -> None:
    """The worst limits that are missed are seen, each in its line, the worst first; all are one touch away."""
    row = next(text for _, text in read(samplereports.automatic()).all("tr") if text.startswith("int8"))
    told = ["onset: F1 0.59", "contour: F1 0.727", "onset: cosine similarity 0.88"]
    places = [row.index(f"{line}, must be ≥ 0.95") for line in told]
    assert places == sorted(places)
    assert "4 reasons in fulloutput 'contour': f1 is 0.727, at least 0.95 is askedoutput 'note': f1 is 0.937" in row


def test_nothing_is_folded_away_that_is_told_already() -> None:
    """A mode of one reason has nothing to touch."""
    page = read(samplereports.nothing())
    assert "in full" not in next(text for _, text in page.all("tr") if text.startswith("dynamic"))
    assert "in full" not in page.all("header")[0][1]


@pytest.mark.parametrize("name", samplereports.ALL)
def test_the_first_screen_needs_no_glossary(name: str) -> None:
    """Where advice speaks of gates the verdict says what a gate is; by itself it speaks of limits."""
    header = read(samplereports.ALL[name]()).all("header")[0][1]
    assert "gate" not in header or "A gate is a limit: " in header


def test_figures_are_explained_where_they_decide() -> None:
    """What an F1 or a cosine is stands beside the outputs, and only of figures that have a limit."""
    page = read(samplereports.automatic())
    meanings = next(text for _, text in page.all("details") if text.startswith("What the figures mean"))
    assert "F1: how well both agree" in meanings
    assert "cosine similarity: " in meanings
    assert "largest error" not in meanings


def test_a_runtime_that_refuses_a_model_that_ships_is_named_at_once() -> None:
    """One runtime is enough to ship; that it may not go to the other one's devices is in the first screen."""
    first, second, own, _ = PASSING.targets
    refused = replace(second, state="refused", reason="does not load: no such op", outputs=())
    page = shown(PASSING, targets=(first, refused, own))
    header = page.all("header")[0][1]
    assert f"measured on 540 samples of test.npz with {LITERT}." in header
    assert f"Not for {TFLITE}: does not load: no such op" in header
    assert f"1 of 2 runtimes{LITERT} · refused: {TFLITE}" in page.text


def test_random_inputs_are_named_for_what_they_are() -> None:
    """Figures on made-up inputs prove little; the verdict does not hide it."""
    report = replace(samplereports.passing(), evaluation="random", samples=40)
    assert "measured on 40 random samples with" in read(report).all("header")[0][1]


def test_a_file_that_no_runtime_runs_is_called_that() -> None:
    """Nothing was measured, so nothing is said of limits."""
    reason = "no installed runtime runs it: ai-edge-litert 2.3.0: does not load"
    run = replace(PASSING.targets[0], state="refused", reason="does not load", outputs=())
    attempt = replace(PASSING, state="refused", reasons=(reason,), targets=(run,))
    page = read(replace(samplereports.passing(), chosen="", attempts=(attempt,)))
    header = page.all("header")[0][1]
    assert f"int8 was made, yet no runtime here answers with it:{reason}" in header
    assert "0 of 1 runtime" in page.text


def test_a_run_of_layers_shows_the_path_they_share_once() -> None:
    """`a/b … a/c (2 layers)` is told as `a/b … c (2 layers)`, and whole where a pointer rests on it."""
    page = read(samplereports.automatic())
    row = next(text for _, text in page.all("tr") if text.startswith("nmp/conv_0"))
    assert row.startswith("nmp/conv_0/Conv2D … Relu (2 layers)◆ yes+7.54,096-7.2")
    assert "nmp/conv_0/Conv2D … nmp/conv_0/Relu (2 layers)" in {a.get("title") for a, _ in page.all("span")}
    first = next(text for _, text in page.all("tr") if text.startswith("nmp/log/add"))
    assert first == "nmp/log/add◆ yesruns at all1does not runADD"
    assert "It did not run everywhere with every layer int8, it was 0.1402 in the end." in page.text


def test_notes_are_listed_beside_the_warnings() -> None:
    """The first screen counts both and leads to them."""
    page = read(samplereports.automatic())
    assert "1 warning and 1 note" in page.all("header")[0][1]
    listed = next(text for attributes, text in page.all("div") if attributes.get("id") == "warnings")
    assert listed.startswith("Warnings and notesclips.npz: only 64 samples")
    assert listed.endswith("these ops stay float: CONV_2D, SQRT")


def test_a_runtime_that_dies_of_a_model_refuses_it() -> None:
    """Only the converter's death is one of the mode; which runtime died, and when, stands in the mode's row."""
    page = read(samplereports.nothing())
    row = next(text for _, text in page.all("tr") if text.startswith("float16"))
    assert row.startswith("float16✗ refused")
    assert f"{TFLITE}: was killed by SIGSEGV while running the model on tflite-runtime" in row
    assert "✗ died" not in page.text


def test_modes_are_a_table_and_the_chosen_one_is_marked() -> None:
    """All six modes with size, time and verdict stand in the order they were tried; one is marked, in words."""
    page = read(samplereports.automatic())
    rows = re.findall(r"(none|float16|dynamic|int8|int16x8|mixed ◆ chosen)(✓ passed|✗ refused|✗ died)", page.text)
    assert rows == [
        ("none", "✓ passed"), ("float16", "✓ passed"), ("dynamic", "✗ refused"), ("int8", "✗ refused"),
        ("int16x8", "✗ died"), ("mixed ◆ chosen", "✓ passed"),
    ]  # fmt: skip
    assert "Nor may" not in page.text
    # 139,000 of 232,456 bytes.
    assert "59.8 % of the float model's 227.0 KiB" in page.text


def test_no_mode_passes() -> None:
    """With auto the page says of every mode that it may not ship."""
    report = samplereports.automatic()
    attempts = tuple(a for a in report.attempts if a.state != "passed")
    header = read(replace(report, chosen="", attempts=attempts)).all("header")[0][1]
    assert "int8 comes nearest" in header
    assert "onset: F1 0.59, must be ≥ 0.95" in header
    assert "Nor may dynamic or int16x8" in header


def test_worst_output_comes_first_with_the_place_where_it_is_worst() -> None:
    """Of every figure the worst target counts, a failing gate before any that passes, NaN before all."""
    good, bad = parity("a", 0.999), parity("b", 0.951)
    low = replace(good, gates=(Gate("a", "agreement", 0.96, 0.95),))
    nan = OutputParity("c", {}, (Gate("c", "max_abs", float("nan"), 0.1, at_least=False),))
    first, second, third, _ = targets(good, bad)
    lost = replace(bad, gates=(Gate("b", "cosine", float("nan"), 0.95),))
    page = shown(PASSING, targets=(first, replace(second, outputs=(low, lost)), replace(third, outputs=(nan,))))
    table = page.all("table")[0][1]
    assert re.findall(r"(?<=[0-9ek])([abc])(?=[✓✗])", table.replace("figures", "e")) == ["b", "c", "a"]
    assert "✗ fails: cosine similarity nan, must be ≥ 0.95" in table
    assert re.search(f"agreement 0.96, must be ≥ 0.95[^{NONE}]*worst on {TFLITE}", table)
    assert f"✗ fails: largest error nan, must be ≤ 0.1worst on {LITERT}, own kernels alone" in table


def test_a_figure_that_misses_by_little_does_not_read_as_its_bound() -> None:
    """0.94999 of 0.95 fails, and the page shows why."""
    page = shown(PASSING, targets=targets(parity("y", 0.94999)))
    assert "✗ fails: argmax agreement 0.94999, must be ≥ 0.95" in page.text


def test_figures_of_the_savedmodel_stand_beside() -> None:
    """An error or an accuracy against labels means little without the SavedModel's own."""
    figures = {"mae": 0.941, "mae_float": 0.89, "cosine": 0.999}
    item = OutputParity("y", figures, (Gate("y", "mae", 0.941, 0.9345, at_least=False),))
    page = shown(PASSING, targets=targets(item))
    assert "✗ fails: mean absolute error 0.941, must be ≤ 0.9345 (SavedModel 0.89)" in page.text


def _columns(page: Page) -> list[tuple[float, float]]:
    rects = [attributes for attributes, _ in page.all("rect", "column")]
    return [(float(a["x"] or 0), float(a["height"] or 0)) for a in rects]


def test_histogram_is_drawn_to_scale() -> None:
    """Counts of the same order stand on a linear axis: twice the count, twice the height; bins stand at their edges."""
    page = shown(PASSING, histograms=(Histogram("y", (-1.0, 0.0, 1.0, 3.0), (10, 20, 5)),))
    (x0, h0), (x1, h1), (x2, h2) = _columns(page)
    assert h1 / h0 == pytest.approx(2, rel=1e-3)
    assert h2 / h0 == pytest.approx(0.5, rel=1e-3)
    # Edges at 0, 1/4, 1/2 of the axis.
    assert x2 - x0 == pytest.approx(2 * (x1 - x0), rel=1e-3)
    assert "log scale" not in page.text


def test_histogram_shows_single_large_errors() -> None:
    """One error beside thousands is still seen: the axis is logarithmic and says so."""
    page = shown(PASSING, histograms=(Histogram("y", (-1.0, 0.0, 1.0), (50_000, 1)),))
    (_, tall), (_, small) = _columns(page)
    assert small / tall > 0.05
    assert "values (log scale)" in page.text


@pytest.mark.parametrize(("threshold", "lines"), [(0.02, 2), (0.2, 0)])
def test_histogram_marks_the_largest_error_allowed(threshold: float, lines: int) -> None:
    """A gate on the error is drawn on both sides, unless it lies outside the picture."""
    item = OutputParity("y", {"max_abs": 0.01}, (Gate("y", "max_abs", 0.01, threshold, at_least=False),))
    page = shown(PASSING, targets=targets(item), histograms=(histogram("y", width=0.05),))
    assert len(page.all("line", "limit")) == lines
    assert f"must be ≤ {threshold}" in page.all("figcaption")[0][1]


def test_calibration_shows_what_was_seen_and_what_the_file_holds() -> None:
    """int8 with scale .05 and zero point -3 holds .05 (-128 + 3) = -6.25 to .05 (127 + 3) = 6.5."""
    text = read(samplereports.passing()).text
    assert "seen -5.7 to 6.2; int8 holds -6.25 to 6.5; 0.042 % of the evaluation's samples go outside" in text
    assert "640 samples of train.npz" in text


def test_graph_shows_every_op_and_partition() -> None:
    """Ops in a row are told together; the places, the brackets and the widths add up to the whole graph."""
    page = read(samplereports.passing())
    assert "15 ops in the order they run: 9 int8, 6 other." in page.text
    widths = [
        float((a["width"] or "").rstrip("%")) for a, _ in page.all("rect") if (a.get("class") or "").startswith("k-")
    ]
    assert sum(widths) == pytest.approx(100, abs=0.1)
    places = re.findall(rf"ops (\d+)(?:{NONE}(\d+))?: ", page.text)
    assert sum(int(last or first) - int(first) + 1 for first, last in places) == 15
    rows = [text for _, text in page.all("tr") if _PLACES.match(text)]
    assert any(re.match(f"7{NONE}8.*CONV_2D v3 {TIMES}2", row) for row in rows)
    spans = [int(a["rowspan"] or 0) for a, _ in page.all("td") if "rowspan" in a]
    assert sum(spans) == len(rows)
    # Measured first and solid; by its document dashed.
    kinds = [a["class"] for a, _ in page.all("rect", "taken")]
    assert kinds == ["taken measured"] * 2 + ["taken documented"] * 3


def test_a_long_graph_stays_short() -> None:
    """400 ops take one row for each stretch of one kind, and none is lost."""
    page = read(samplereports.long())
    rows = [text for _, text in page.all("tr") if _PLACES.match(text)]
    assert len(rows) == 120
    assert sum(int(last or first) - int(first) + 1 for first, last in (_span(row) for row in rows)) == 400


def _span(row: str) -> tuple[str, str]:
    found = _PLACES.match(row)
    assert found
    return found[1], found[2] or ""


def test_dtypes_are_told_without_colour() -> None:
    """Each kind has a letter and a height of its own."""
    kinds: tuple[Kind, ...] = ("int8", "int16", "float", "hybrid", "other")
    nodes = [samplefiles.node(i, "ADD", kind) for i, kind in enumerate(kinds)]
    page = shown(PASSING, facts=samplefiles.facts(nodes), coverage=())
    blocks = [a for a, _ in page.all("rect") if (a.get("class") or "").startswith("k-")]
    assert len({a["height"] for a in blocks}) == 5
    assert [text for _, text in page.all("text") if text in {"8", "16", "F", "H", "·"}] == ["8", "16", "F", "H", "·"]


def test_long_tables_are_folded() -> None:
    """30 outputs on three targets: eight rows are seen, the rest is one touch away, none is left out."""
    page = read(samplereports.long())
    assert page.text.count("22 more rows") == 3
    # Of 30 outputs each stands in the table of each of 3 targets.
    assert page.text.count(f"{LONG}:17") == 3


def test_coverage_says_how_it_is_known() -> None:
    """Measured and documented are told apart, each with its source; a document's figure is called an upper bound."""
    text = read(samplereports.passing()).text
    assert f"xnnpack ({LITERT})14 of 15 ops (93.3 %)2measured: {LITERT}RESHAPE {TIMES}1" in text
    assert "edgetpuat most 12 of 15 ops (80 %)1documented: Coral Edge TPU compiler" in text
    assert "takes no op; ADD: int8" in text
    assert "tells how many it takes at most, the delegate itself may take less" in text
    assert "edgetpu takes at most 12 of 15 ops in 1 partition, documented" in text
    assert "takes up to" not in text.replace("(takes up to 4)", "")


def test_what_a_delegate_leaves_is_told_once_for_every_reason() -> None:
    """Ops that are left for the same reason stand in one line."""
    page = read(samplereports.passing())
    row = next(text for _, text in page.all("tr") if text.startswith("edgetpu"))
    assert f"not in its table: EXPAND_DIMS {TIMES}2" in row
    assert row.count("output of rank 5 (takes up to 4): ") == 1
    assert row.endswith(f": RESHAPE {TIMES}2, EXPAND_DIMS {TIMES}1")


def test_a_delegate_that_takes_nothing_is_drawn_beside_the_others() -> None:
    """Measured or documented, nothing is left out of the picture; only what does not run at all has no line of ops."""
    page = read(samplereports.passing())
    lanes = [text for _, text in page.all("p", "lane")]
    assert lanes == [
        f"xnnpack ({LITERT}) takes 14 of 15 ops in 2 partitions, measured",
        "edgetpu takes at most 12 of 15 ops in 1 partition, documented",
        "gpu_tflite takes 0 of 15 ops (takes no op; ADD: int8), documented",
    ]
    assert [a["x2"] for a, _ in page.all("line", "cpu")][-1] == "100.00%"
    fleet = read(samplereports.fleet())
    lanes = [text for _, text in fleet.all("p", "lane")]
    assert lanes[0].startswith(f"xnnpack ({TFLITE}) does not load: Didn't find op")
    # Three of the four lanes, and the ops themselves.
    drawn = [a["aria-label"] for a, _ in fleet.all("svg") if a.get("width") == "100%"]
    assert drawn[1:] == lanes[1:]


def test_what_a_runtime_does_not_tell_is_not_called_the_cpus() -> None:
    """An op of which nothing is known has no line and no bracket, and what is taken is the least."""
    nodes = samplefiles.small_net()
    untold = tuple(0 if i < 3 else -2 if i < 9 else -1 for i in range(len(nodes)))
    rows = (
        Coverage("xnnpack", "measured", LITERT, 3, 15, 1, (), untold),
        Coverage("gpu", "documented", "a paper", 0, 15, 0, (), (), "not told: too large"),
    )
    page = shown(PASSING, coverage=rows)
    assert [text for _, text in page.all("p", "lane")] == [
        f"xnnpack ({LITERT}) takes at least 3 of 15 ops in 1 partition, measured",
        "gpu not told: too large, documented",
    ]
    # The CPU's 6 of 15 ops.
    assert [(a["x1"], a["x2"]) for a, _ in page.all("line", "cpu")] == [("60.00%", "100.00%")]
    assert len(page.all("rect", "taken")) == 1
    assert [text for _, text in page.all("td", "lane-cpu")] == ["not told", "CPU"]
    assert f"gpu{NONE}0documented: a papernot told: too large" in page.text


def test_closest_to_its_limit_is_the_gate_with_the_least_room() -> None:
    """Figures of different kinds are held beside each other by the share of the room that is left, not by distance."""
    gates = (
        # Least distance, .0003 of .001; less room, .01 of .05; least room, .01 of .1.
        Gate("y", "cosine", 0.9993, 0.999),
        Gate("y", "f1", 0.96, 0.95),
        Gate("y", "max_abs", 0.09, 0.1, at_least=False),
    )
    item = OutputParity("y", {gate.metric: gate.value for gate in gates}, gates)
    header = shown(PASSING, targets=targets(parity("x", 1.0), item)).all("header")[0][1]
    assert "Closest to its limit: y, largest error 0.09, must be ≤ 0.1: 10 % of the room is left." in header
    header = shown(PASSING, targets=targets(replace(item, gates=gates[:2]))).all("header")[0][1]
    assert "Closest to its limit: y, F1 0.96, must be ≥ 0.95: 20 % of the room is left." in header


def test_where_gates_are_worst_is_told_of_each() -> None:
    """Two figures of an output may be worst on two runtimes."""
    first, second, *_ = PASSING.targets
    page = shown(
        PASSING,
        targets=(
            replace(first, outputs=(parity("y", 0.96, 0.99),)),
            replace(second, outputs=(parity("y", 0.98, 0.97),)),
        ),
    )
    cell = page.all("table")[0][1]
    assert f"argmax agreement 0.96, must be ≥ 0.95, worst on {LITERT}" in cell
    assert f"cosine similarity 0.97, must be ≥ 0.95, worst on {TFLITE}" in cell


def _modes(report: Report) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of the table of modes."""
    page = read(report)
    at = next(i for i, (tag, _, text) in enumerate(page.elements) if tag == "table" and "tried" in "".join(text))
    cells: list[list[str]] = []
    for tag, _, text in page.elements[at + 1 :]:
        if tag == "table":
            break
        if tag == "tr":
            cells.append([])
        elif tag in ("th", "td"):
            cells[-1].append("".join(text))
    return cells[0], cells[1:]


def test_modes_are_compared_by_one_figure() -> None:
    """The column has one figure in all rows, with its name on top: of those that all have the one that decides."""
    head, rows = _modes(samplereports.automatic())
    assert head[5:] == ["worst F1", "what is known"]
    assert [row[5] for row in rows] == ["1, contour", "0.9995, contour", NONE, "0.59, onset", NONE, "0.957, onset"]
    # Where another limit is what modes miss, that one.
    near, far = parity("y", 0.99, 0.93), parity("y", 0.98, 0.91)
    attempts = tuple(
        Attempt(mode, "refused", ("no",), 9, targets=targets(item)) for mode, item in (("dynamic", near), ("int8", far))
    )
    head, rows = _modes(replace(samplereports.passing(), quantize="auto", chosen="", attempts=attempts))
    assert head[-2] == "worst cosine similarity"
    assert [row[-2] for row in rows] == ["0.93, y", "0.91, y"]


def test_a_mode_without_effect_is_said_to_be_one_at_once() -> None:
    """A float file under the name of a small one must not look like a success."""
    facts = replace(samplefiles.facts(samplefiles.small_net("float"), integer=False), effect=False)
    attempt = replace(PASSING, quantize="dynamic", facts=facts)
    report = replace(samplereports.passing(), quantize="dynamic", chosen="dynamic", attempts=(attempt,))
    header = read(report).all("header")[0][1]
    assert "May ship as dynamic" in header
    assert "dynamic had no effect: no constant became int8; weights of fewer than 1024 values are left" in header
    assert "no effect" not in read(samplereports.passing()).all("header")[0][1]


def test_a_target_that_never_ran_is_said_to_be_one_at_once() -> None:
    """The heading counts those that a table alone judged, the lines under it name them, and what the table says."""
    page = read(samplereports.passing())
    assert page.all("h1")[0][1].endswith("(1 target not run)")
    header = page.all("header")[0][1]
    assert "Not run on ai-edge-litert 2.1.0: has every op in the version that the file needs (by table)" in header
    page = shown(PASSING, targets=PASSING.targets[:3])
    assert "not run" not in page.all("header")[0][1].lower()


def test_a_gate_that_fails_says_what_to_think_of_it() -> None:
    """A note stands behind the limit in the first screen and beside the outputs, and nowhere while it is kept."""
    good, bad = Gate("y", "agreement", 0.96, 0.95, note="or is it none"), Gate("y", "agreement", 0.4, 0.95, note="hm")
    kept = shown(PASSING, targets=targets(OutputParity("y", {}, (good,))))
    assert "or is it none" not in kept.text
    attempt = replace(PASSING, state="refused", reasons=(str(bad),), targets=targets(OutputParity("y", {}, (bad,))))
    page = read(replace(samplereports.passing(), chosen="", attempts=(attempt,)))
    assert "y: argmax agreement 0.4, must be ≥ 0.95 (hm)" in page.all("header")[0][1]
    assert "✗ fails: argmax agreement 0.4, must be ≥ 0.95 (hm)" in page.all("table")[0][1]
    # The reason is told once.
    assert page.all("header")[0][1].count("hm") == 1


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        (540, "Measured on the first 8 of 540 samples, with the first runtime's own kernels: an output's figures are"),
        (8, "Measured with the first runtime's own kernels. All errors"),
    ],
)
def test_layers_say_on_what_they_were_measured(samples: int, says: str) -> None:
    """An output's tensor has other figures there than over all samples; both tables say of how many they are."""
    text = read(replace(samplereports.refused(), samples=samples)).text
    assert says in text
    assert f"Every figure is of all {samples} samples." in text


def test_a_layer_that_is_an_output_is_called_so() -> None:
    """The tensor has a name of its own in the file; the other tables call it by the output's."""
    rows = [text for _, text in read(samplereports.refused()).all("tr") if "model/softmax_14" in text]
    assert rows[-1].endswith("model/softmax_14 = output onset")
    assert not any("model/mean_11 =" in text for _, text in read(samplereports.refused()).all("tr"))


def test_the_savedmodels_figure_has_no_column_of_its_own() -> None:
    """Both stand in one cell, so that the table is as narrow as it can be; each target has its own table."""
    page = read(samplereports.labelled())
    heads = [text for _, text in page.all("tr") if text.startswith("outputverdict")]
    columns = (
        "output", "verdict", "accuracy (SavedModel)", "mean absolute error (SavedModel)", "argmax agreement",
        "worst class's F1", "share of the variance kept (R²)", "worst column's R²", "cosine similarity",
        "signal to noise (dB)", "largest error", "largest error / largest value", "share beyond the range",
    )  # fmt: skip
    assert heads == ["".join(columns)] * 3
    captions = [text for _, text in page.all("caption") if text.startswith("Outputs on ")]
    assert captions == [f"Outputs on {LITERT}", f"Outputs on {TFLITE}", f"Outputs on {LITERT}, own kernels alone"]
    assert f"classes✓ passes0.9074 (0.913){NONE}0.98150.8571{NONE}{NONE}0.9992" in page.text


def test_a_report_of_little_has_no_empty_parts() -> None:
    """What was not measured has no heading."""
    headings = [text for _, text in read(samplereports.bare()).all("h2")]
    assert headings == ["Key figures", "Where it came from"]


def test_a_mode_that_works_is_not_called_one_that_may_not_ship() -> None:
    """After a crash the header says of those modes alone that failed too that they may not ship."""
    report = samplereports.died()
    works = replace(report.attempts[0], quantize="float16", state="passed", reasons=())
    header = read(replace(report, attempts=(report.attempts[0], works))).all("header")[0][1]
    assert "Nor may" not in header

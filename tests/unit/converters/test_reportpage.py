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
from support import samplereports
from support.htmlpage import Page
from support.samplereports import HOSTILE, LITERT, LONG, TFLITE, histogram, parity, targets
from support.savedmodels import ROOT

from converters import reportjson, reportpage
from converters.gates import Gate, OutputParity
from converters.report import Attempt, Histogram, Report
from converters.reportpage_words import NONE, TIMES
from converters.reportpage_worst import parts
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
            "May ship as int8",
            "all 2 limits are kept, measured on 540 samples of test.npz with ai-edge-litert",
        ),
        ("automatic", "May ship as mixed", "Closest to its limit: onset, F1 0.957, must be ≥ 0.95."),
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
    nodes = [samplereports.node(i, "ADD", kind) for i, kind in enumerate(kinds)]
    page = shown(PASSING, facts=samplereports.facts(nodes), coverage=())
    blocks = [a for a, _ in page.all("rect") if (a.get("class") or "").startswith("k-")]
    assert len({a["height"] for a in blocks}) == 5
    assert [text for _, text in page.all("text") if text in {"8", "16", "F", "H", "·"}] == ["8", "16", "F", "H", "·"]


def test_long_tables_are_folded() -> None:
    """30 outputs on three targets: eight rows are seen, the rest is one touch away, none is left out."""
    page = read(samplereports.long())
    assert "82 more rows" in page.text
    # Of 30 outputs each stands in the table for each of 3 targets.
    assert page.text.count(f"{LONG}:17") == 3


def test_coverage_says_how_it_is_known() -> None:
    """Measured and documented are told apart, each with its source; a document's figure is called an upper bound."""
    text = read(samplereports.passing()).text
    assert f"xnnpack ({LITERT})14 of 15 ops (93.3 %)2measured: {LITERT}RESHAPE {TIMES}1" in text
    assert "edgetpuup to 12 of 15 ops (80 %)1documented: Coral Edge TPU compiler" in text
    assert "takes no op; ADD: int8" in text
    assert "an upper bound, the delegate itself may take less" in text


def test_what_a_delegate_leaves_is_told_once_for_every_reason() -> None:
    """Ops that are left for the same reason stand in one line."""
    page = read(samplereports.passing())
    row = next(text for _, text in page.all("tr") if text.startswith("edgetpu"))
    assert f"not in its table: EXPAND_DIMS {TIMES}2" in row
    assert row.count("output of rank 5 (takes up to 4): ") == 1
    assert row.endswith(f": RESHAPE {TIMES}2, EXPAND_DIMS {TIMES}1")


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

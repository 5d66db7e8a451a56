"""The page of two runs beside each other."""

from __future__ import annotations

from collections.abc import Sequence

from edged.bench import compare, page_plots, table
from edged.bench.compare import Pair
from edged.bench.document import Doc
from edged.bench.figure import per_second, times
from edged.bench.markup import Html, el, join, lines, section
from edged.bench.markup import table as listed
from edged.bench.page import document, origin

_HEAD = ("", "P50", "P90", "P99", "P99.9", "max", "ok/s")


def page(first: Doc, second: Doc) -> str:
    """Return the page; A is the first, B the second, a ratio is B / A."""
    pairs, remarks = compare.pairs(first, second), compare.remarks(first, second)
    alike = [pair for pair in pairs if not pair.differs]
    banner = el(
        "header",
        el("p", "edged bench: B against A, ratios of latencies", class_="eyebrow"),
        el("h1", _heading(first, second, alike)),
        lines([f"A: {table.where(first)}", f"B: {table.where(second)}", *remarks]),
        class_="verdict plain",
    )  # fmt: skip
    ratios = listed("B / A", _HEAD, [[pair.label, *map(times, pair.ratios())] for pair in alike])
    parts = [
        section("Ratios", ratios),
        section("Latency", el("div", *map(_plot, pairs), class_="charts") if pairs else ""),
        section("Figures, ms", join(map(_figures, pairs))),
        origin(first, "Where A was measured"),
        origin(second, "Where B was measured"),
    ]
    return document("edged bench: B against A", banner, el("main", *parts))


def _heading(first: Doc, second: Doc, alike: Sequence[Pair]) -> str:
    worst = max((pair.ratios()[2] or 0.0 for pair in alike), default=0.0)
    if worst:
        return f"P99 of B is {'at most ' * (len(alike) > 1)}{times(worst)} that of A"
    knee = compare.knees(first, second)
    if knee:
        return f"The knee of B is {times(knee)} that of A"
    return compare.unjudged(first, second).capitalize()


def _plot(pair: Pair) -> Html:
    return page_plots.by_percentile(pair.label, [("A", pair.first["latency"]), ("B", pair.second["latency"])])


def _figures(pair: Pair) -> Html:
    rows = [
        [name, *table.percentiles(run["latency"]), per_second(run["ok_per_s"])]
        for name, run in (("A", pair.first), ("B", pair.second))
    ]
    return listed(pair.label, _HEAD, rows)

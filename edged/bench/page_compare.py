"""The page of two runs beside each other."""

from __future__ import annotations

from edged.bench import compare, page_plots, table
from edged.bench.compare import Pair
from edged.bench.document import Doc
from edged.bench.markup import Html, el, join, lines, section
from edged.bench.markup import table as listed
from edged.bench.page import document, origin

_HEAD = ("", "P50", "P90", "P99", "P99.9", "max", "ok/s")


def page(first: Doc, second: Doc) -> str:
    """Return the page; A is the first, B the second, a ratio is B / A."""
    pairs, remarks = compare.pairs(first, second), compare.remarks(first, second)
    worst = max((pair.ratios()[2] or 0.0 for pair in pairs), default=0.0)
    most = "at most " if len(pairs) > 1 else ""
    banner = el(
        "header",
        el("p", "edged bench: B against A, ratios of latencies", class_="eyebrow"),
        el("h1", f"P99 of B is {most}{table.times(worst)} that of A"),
        lines(remarks),
        class_="verdict plain",
    )  # fmt: skip
    ratios = listed("B / A", _HEAD, [[pair.label, *map(table.times, pair.ratios())] for pair in pairs])
    parts = [
        section("Ratios", ratios),
        section("Latency", el("div", *(_plot(pair) for pair in pairs), class_="charts")),
        section("Figures, ms", join(map(_figures, pairs))),
        origin(first, "Where A was measured"),
        origin(second, "Where B was measured"),
    ]
    return document("edged bench: B against A", banner, el("main", *parts))


def _plot(pair: Pair) -> Html:
    return page_plots.by_percentile(pair.label, [("A", pair.first["latency"]), ("B", pair.second["latency"])])


def _figures(pair: Pair) -> Html:
    rows = [
        [name, *table.percentiles(run["latency"]), table.per_second(run["ok_per_s"])]
        for name, run in (("A", pair.first), ("B", pair.second))
    ]
    return listed(pair.label, _HEAD, rows)

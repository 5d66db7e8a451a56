"""The report page: one HTML file that needs nothing else, no script, no network; it reads well on a phone.

The verdict comes first. Names come from models of others: they are shown as text and never become markup.
"""

from __future__ import annotations

from importlib import resources

from converters import (
    reportpage_charts,
    reportpage_graph,
    reportpage_key,
    reportpage_layers,
    reportpage_tables,
    reportpage_verdict,
)
from converters.report import Report
from converters.reportpage_html import Html, el, join, section

# Should markup ever slip through, the browser still runs no script and fetches nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
# By this, within its first kilobytes, a page is known as one of ours.
MARK = el("meta", name="generator", content="edged convert")


def page(report: Report, *, timings: bool) -> str:
    """Return the whole page; the same report gives the same text.

    timings False leaves out what was timed on this machine, as a bundle's own copy does.
    """
    return "<!DOCTYPE html>\n" + el("html", _head(report), _body(report, timings=timings), lang="en") + "\n"


def _head(report: Report) -> Html:
    style = resources.files("converters").joinpath("reportpage.css").read_text(encoding="utf-8")
    return el(
        "head",
        el("meta", charset="utf-8"),
        MARK,
        el("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("link", rel="icon", href="data:,"),
        el("title", reportpage_verdict.title(report)),
        el("style", Html(style)),
    )


def _body(report: Report, *, timings: bool) -> Html:
    shown = report.shown
    figures = section("Key figures", reportpage_key.key_figures(report, timings=timings))
    tried = section("Modes tried", reportpage_key.attempts(report, timings=timings))
    parts = [
        figures,
        tried if len(report.attempts) > 1 else Html(),
        reportpage_graph.picture(shown),
        reportpage_charts.errors(shown),
        reportpage_charts.calibration(report),
        reportpage_tables.parity(report, timings=timings),
        reportpage_layers.layers(report),
        reportpage_layers.mixed(shown),
        reportpage_tables.content(shown),
        reportpage_tables.coverage(shown),
        reportpage_tables.origin(report),
        reportpage_tables.warnings(report),
    ]
    return el("body", reportpage_verdict.banner(report), el("main", join(parts)))

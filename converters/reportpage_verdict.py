"""The first screen: may this model ship, why, and what to do, in words that need no other page."""

from __future__ import annotations

from collections.abc import Iterator

from converters import reportpage_reasons
from converters.calibrate import RANDOM
from converters.options import MODES
from converters.report import Report
from converters.reportpage_html import Html, el, lines, name
from converters.reportpage_reasons import short
from converters.reportpage_words import bound, count, listed, percent, unproven
from converters.reportpage_worst import missed, proofs, worst

_REASONS = 4
# From here on nearly all of the room to a limit is left.
_ALL = 0.995
_GATE = "A gate is a limit: how near an output must stay to the SavedModel's."


def title(report: Report) -> str:
    """Return the page's title: the verdict in a browser's tab."""
    return f"{report.name} {report.version}: {_verdict(report).lower()}"


def _verdict(report: Report) -> str:
    if not report.ships:
        return "May not ship"
    absent = unproven(report.shown.targets)
    missing = f" ({count(len(absent), 'target')} not run)" if absent else ""
    return f"May ship as {_mode(report.chosen)}{missing}"


def _mode(quantize: str) -> str:
    return "float (none)" if quantize == "none" else quantize


def banner(report: Report) -> Html:
    """Return the verdict, its reasons, and what to do."""
    asked = f"quantize {report.quantize}"
    return el(
        "header",
        el("p", name(report.name), f" version {report.version} · {asked}", class_="eyebrow"),
        el("h1", el("span", "✓" if report.ships else "✗", class_="mark", aria_hidden="true"), " ", _verdict(report)),
        *(_good(report) if report.ships else _bad(report)),
        _advice(report),
        _warned(report),
        class_="verdict ships" if report.ships else "verdict refused",
    )


def _good(report: Report) -> Iterator[Html]:
    yield from _kept(report)
    yield from _limited(report)


def _kept(report: Report) -> Iterator[Html]:
    groups = worst(report.shown)
    outputs = len({parity.output for _, parity in proofs(report.shown)})
    if not groups:
        yield el("p", "It passed, yet no output was held against the SavedModel.", class_="why")
        return
    limits = sum(map(len, groups))
    kept = "the one limit is kept" if limits == 1 else f"all {limits} limits are kept"
    near = "Its output stays" if outputs == 1 else f"Its {outputs} outputs stay"
    yield el("p", f"{near} as near to the SavedModel's as asked for: {kept}{_measured(report)}.", class_="why")
    closest = groups[0][0]
    room = f": {percent(closest.gate.margin)} of the room is left" if closest.gate.margin < _ALL else ""
    yield el("p", "Closest to its limit: ", name(closest.gate.output), f", {bound(closest.gate)}{room}.")


def _limited(report: Report) -> Iterator[Html]:
    """Say what may be thought of the verdict and is not so: a mode without effect, a runtime that was not asked."""
    shown = report.shown
    if shown.facts is not None and not shown.facts.effect:
        why = MODES[shown.quantize].no_effect
        yield el("p", el("strong", f"{shown.quantize} had no effect: "), f"{why}.")
    for run in shown.targets:
        if run.state == "refused" and run.delegate != "reference":
            yield el("p", el("strong", f"Not for {run.runtime}: "), short(run.reason))
        if run.state == "not run":
            yield el("p", el("strong", f"Not run on {run.runtime}: "), short(run.reason))


def _measured(report: Report) -> str:
    """Say on what it was measured; random inputs are named as such, for they prove little."""
    runtimes = listed(sorted({run.runtime for run in report.shown.targets if run.state == "passed"}))
    samples = count(report.samples, "random sample" if report.evaluation == RANDOM else "sample")
    of = f" of {report.evaluation}" if report.evaluation not in ("", RANDOM) else ""
    data = f", measured on {samples}{of}" if report.samples else ""
    return data + (f" with {runtimes}" if runtimes else "")


def _bad(report: Report) -> Iterator[Html]:
    """What is wrong with the mode that is shown; what is wrong with the others is told where they are listed."""
    shown, groups = report.shown, worst(report.shown)
    yield el("p", _summary(report, len(missed(groups)), sum(map(len, groups))), class_="why")
    yield reportpage_reasons.told(shown, _REASONS)
    nor = [_mode(a.quantize) for a in report.attempts if a is not shown and a.state != "passed"]
    if nor:
        yield el("p", f"Nor may {' or '.join(nor)}: see “Modes tried”.")


def _summary(report: Report, failing: int, limits: int) -> str:
    shown = report.shown
    mode = _mode(shown.quantize)
    start = f"No mode may ship. {mode} comes nearest: it" if report.quantize != shown.quantize else mode
    if not shown.model_bytes:
        return f"{start} could not be made."
    if failing:
        return f"{start} answers too differently from the SavedModel. It misses {failing} of {count(limits, 'limit')}:"
    return f"{start} keeps every limit, yet:" if limits else f"{start} was made, yet no runtime here answers with it:"


def _advice(report: Report) -> Html:
    if not report.advice:
        return Html()
    note = [el("p", _GATE, class_="note")] if any("gate" in line for line in report.advice) else []
    return el("div", el("p", el("strong", "What to do")), lines(report.advice), *note, class_="advice")


def _warned(report: Report) -> Html:
    found = [(len(report.warnings), "warning"), (len(report.shown.notes), "note")]
    told = [count(amount, word) for amount, word in found if amount]
    return el("p", el("a", listed(told), href="#warnings"), class_="warned") if told else Html()

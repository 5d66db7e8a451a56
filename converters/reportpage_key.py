"""The figures that matter most: size, proof and speed as cards, the outputs that are worst, and every mode tried."""

from __future__ import annotations

from collections.abc import Sequence

from converters import compared, figures, reportpage_reasons
from converters.report import Attempt, Report
from converters.reportpage_html import Html, el, fold, join, lines, name, passed, table, text
from converters.reportpage_words import NONE, count, judged, metric, number, percent, time, unproven
from converters.reportpage_worst import Worst, worst
from edged.shown import size

_WORST, _REASONS = 4, 3


def key_figures(report: Report, *, timings: bool) -> Html:
    """Return size, proof, speed as cards, and the worst outputs under them."""
    cards = [_size(report), _proven(report.shown), _outside(report), *([_speed(report.shown)] if timings else [])]
    kept = [card for card in cards if card]
    return join([el("dl", *kept, class_="cards") if kept else "", _worst(report.shown)])


def _card(label: str, value: str, note: str = "") -> Html:
    return el("div", el("dt", label), el("dd", el("span", value, class_="big"), el("span", note, class_="note")))


def _size(report: Report) -> Html:
    after = report.shown.model_bytes
    if not after:
        return Html()
    same = next((a.model_bytes for a in report.attempts if a.quantize == "none" and a is not report.shown), 0)
    before, what = (same, "float model") if same else (report.source.size, report.source.kind)
    note = f"{percent(after / before)} of the {what}'s {size(before)}" if before else ""
    return _card("Size", size(after), note)


def _proven(attempt: Attempt) -> Html:
    """Count the runtimes that were really run; those that were not are named as such."""
    good = sorted({run.runtime for run in attempt.targets if run.state == "passed"})
    bad = sorted({run.runtime for run in attempt.targets if run.state == "refused"} - set(good))
    absent = unproven(attempt.targets)
    if not attempt.targets:
        return Html()
    notes = [", ".join(good), f"refused: {', '.join(bad)}" if bad else ""]
    notes.append(f"not run here: {', '.join(absent)}" if absent else "")
    tried = count(len(good) + len(bad), "runtime")
    return _card("Passes on", f"{len(good)} of {tried}" if bad else tried, " · ".join(filter(None, notes)))


def _outside(report: Report) -> Html:
    if not report.outside or not report.shown.model_bytes:
        return Html()
    most = max(report.outside, key=lambda key: report.outside[key])
    return _card("Outside calibration", percent(report.outside[most]),
                 f"of the evaluation's samples go beyond what calibration saw, input {most}")  # fmt: skip


def _speed(attempt: Attempt) -> Html:
    """Return the median of an inference on every runtime, the fastest first."""
    timed = sorted((run.p50_us, run.runtime) for run in attempt.targets if run.p50_us and run.state == "passed")
    if not timed:
        return Html()
    others = "".join(f"; {time(us)} on {runtime}" for us, runtime in timed[1:])
    return _card("Median time", time(timed[0][0]), f"an inference on {timed[0][1]}{others}; on this machine")


def _worst(attempt: Attempt) -> Html:
    groups = worst(attempt)
    rows = [[name(group[0].gate.output), _gates(group)] for group in groups[:_WORST]]
    more = f": {_WORST} of {len(groups)}" if len(groups) > _WORST else ""
    return join([table(f"Outputs, worst first{more}", ("output", "figures"), rows), _meanings(groups)])


def _meanings(groups: Sequence[Sequence[Worst]]) -> Html:
    keys = figures.ordered(item.gate.metric for group in groups for item in group)
    told = [
        join([el("strong", metric(key)), f": {figures.of(key).meaning}"]) for key in keys if figures.of(key).meaning
    ]
    return fold("What the figures mean", lines(told))


def _gates(group: Sequence[Worst]) -> Html:
    """Return an output's gates, a line each, and where they are worst: once where that is one place."""
    if len({item.place for item in group}) == 1:
        return join([*(_figure(item) for item in group), el("div", f"worst on {group[0].place}", class_="note")])
    return join(_figure(item, f", worst on {item.place}") for item in group)


def _figure(item: Worst, place: str = "") -> Html:
    """Return one gate as a line: what it is, its bound, and the SavedModel's own figure where there is one."""
    own = item.parity.figures.get(figures.own(item.gate.metric))
    beside = "" if own is None else f" (SavedModel {number(own)})"
    sign, tone = ("✓", "good") if item.gate.passed else ("✗ fails:", "bad")
    where = el("span", place, class_="note") if place else ""
    return el("div", el("span", sign, class_=tone), f" {judged(item.gate)}{beside}", where)


def attempts(report: Report, *, timings: bool) -> Html:
    """Return the table of every mode that was tried; the chosen one is marked."""
    largest = max((a.model_bytes for a in report.attempts), default=0)
    timed = [run.runtime for a in report.attempts for run in a.targets if run.p50_us] if timings else []
    runtimes, key = list(dict.fromkeys(timed)), compared.deciding(report.attempts)
    times = [f"median time, {runtime}" for runtime in runtimes]
    head = ["mode", "verdict", "size", *times, *([f"worst {metric(key)}"] if key else []), "what is known"]
    rows = [_row(report, attempt, largest, runtimes, key) for attempt in report.attempts]
    return table("In the order they were tried", head, rows, numbers=range(3, 3 + len(runtimes)), stacked=True)


def _row(report: Report, attempt: Attempt, largest: int, runtimes: Sequence[str], key: str) -> list[str]:
    times = {run.runtime: time(run.p50_us) for run in attempt.targets if run.p50_us}
    chosen = el("span", " ◆ chosen", class_="chosen") if attempt.quantize == report.chosen else ""
    cells = [join([attempt.quantize, chosen]), _state(attempt), _bar(attempt.model_bytes, largest)]
    known = reportpage_reasons.told(attempt, _REASONS, attempt.notes) or NONE
    figure = [_worst_of(attempt, key)] if key else []
    return [*cells, *(times.get(runtime, NONE) for runtime in runtimes), *figure, known]


def _bar(amount: int, largest: int) -> Html:
    if not amount:
        return text("no file")
    width = max(1, round(60 * amount / largest))
    return join([el("span", size(amount), class_="size"), el("span", class_="bar", style=f"width:{width}px")])


def _worst_of(attempt: Attempt, key: str) -> str:
    found = compared.worst(attempt, key)
    return NONE if found is None else join([f"{number(found[0])}, ", name(found[1])])


def _state(attempt: Attempt) -> Html:
    if attempt.state == "died":
        return el("span", "✗ died", class_="bad")
    return passed(attempt.state == "passed", ("passed", "refused"))

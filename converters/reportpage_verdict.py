"""The first screen: may this model ship, why, what to do, and the figures that matter most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from converters.report import Attempt, Report
from converters.reportpage_html import Html, el, fold, join, lines, name, table, text
from converters.reportpage_words import (
    NONE,
    Worst,
    bound,
    count,
    metric,
    number,
    percent,
    proofs,
    size,
    time,
    where,
    worst,
)

# What fits the first screen of a phone; the rest is one touch away.
_REASONS, _LETTERS, _WORST = 3, 150, 4


def title(report: Report) -> str:
    """Return the page's title: the verdict in a browser's tab."""
    return f"{report.name} {report.version}: {_verdict(report).lower()}"


def _verdict(report: Report) -> str:
    return f"May ship as {_mode(report.chosen)}" if report.ships else "May not ship"


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
    chosen = report.shown
    outputs = len({parity.output for _, parity in proofs(chosen)})
    if not outputs:
        yield el("p", "It passed, yet no output was held against the SavedModel.", class_="why")
        return
    runs = [run for run in chosen.targets if run.state == "passed"]
    data = f" on {count(report.samples, 'sample')}" if report.samples else ""
    runtimes = sorted({run.runtime for run in runs})
    shown = f" on {' and '.join(runtimes)}" if runtimes else ""
    yield el(
        "p", f"Every gate is passed: {count(outputs, 'output')} held against the SavedModel{data}{shown}.", class_="why"
    )
    for group in worst(chosen)[:1]:
        yield el("p", "Closest to its limit: ", name(group[0].gate.output), f", {bound(group[0].gate)}.")


def _bad(report: Report) -> Iterator[Html]:
    """What is wrong with the mode that is shown; of the other modes what is wrong first."""
    shown = report.shown
    if shown.state == "died":
        yield el("p", f"{shown.quantize}: the conversion or a runtime died of it.", class_="why")
    reasons = list(shown.reasons) or ["no mode passed every gate"]
    yield el("ul", *(el("li", _short(reason)) for reason in reasons[:_REASONS]), class_="why")
    if len(reasons) > _REASONS or any(len(reason) > _LETTERS for reason in reasons):
        yield fold(f"{count(len(reasons), 'reason')} in full", lines(reasons))
    others = [a for a in report.attempts if a is not shown and a.state != "passed"]
    if others:
        yield el("p", f"Nor may {_listed([_mode(a.quantize) for a in others])}: see “Modes tried”.")


def _listed(words: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _short(reason: str) -> str:
    return reason if len(reason) <= _LETTERS else reason[: _LETTERS - 1].rstrip() + "…"


def _advice(report: Report) -> Html:
    if not report.advice:
        return Html()
    return el("div", el("p", el("strong", "What to do")), lines(report.advice), class_="advice")


def _warned(report: Report) -> Html:
    if not report.warnings:
        return Html()
    return el("p", el("a", count(len(report.warnings), "warning"), href="#warnings"), class_="warned")


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
    """The runtimes that were really run; those that were not are named as such."""
    passed = sorted({run.runtime for run in attempt.targets if run.state == "passed"})
    failed = sorted({run.runtime for run in attempt.targets if run.state == "refused"} - set(passed))
    absent = sorted({run.runtime for run in attempt.targets if run.state == "not run"})
    notes = [", ".join(passed), f"refused: {', '.join(failed)}" if failed else ""]
    notes.append(f"not run here: {', '.join(absent)}" if absent else "")
    if not attempt.targets:
        return Html()
    return _card("Proven on", count(len(passed), "runtime"), " · ".join(filter(None, notes)))


def _outside(report: Report) -> Html:
    if not report.outside:
        return Html()
    most = max(report.outside, key=lambda key: report.outside[key])
    return _card("Outside calibration", percent(report.outside[most]), f"of the samples have such values, input {most}")


def _speed(attempt: Attempt) -> Html:
    timed = [run for run in attempt.targets if run.p50_us and run.state == "passed"]
    if not timed:
        return Html()
    best = min(timed, key=lambda run: run.p50_us)
    return _card("Median time", time(best.p50_us), f"an inference, {where(best)}, on this machine")


def _worst(attempt: Attempt) -> Html:
    groups = worst(attempt)
    rows = [[name(group[0].gate.output), join([*map(_figure, group), _place(group[0])])] for group in groups[:_WORST]]
    more = f": {_WORST} of {len(groups)}" if len(groups) > _WORST else ""
    return table(f"Outputs, worst first{more}", ("output", "figures"), rows)


def _place(item: Worst) -> Html:
    return el("div", f"worst on {item.place}", class_="note")


def _figure(item: Worst) -> Html:
    """Return one gate as a line: what it is, its bound, and the SavedModel's own figure where there is one."""
    own = item.parity.figures.get(f"{item.gate.metric}_float")
    beside = "" if own is None else f" (SavedModel {number(own)})"
    sign, tone = ("✓", "good") if item.gate.passed else ("✗ fails:", "bad")
    return el("div", el("span", sign, class_=tone), f" {bound(item.gate)}{beside}")


def passed(good: bool, words: tuple[str, str] = ("passes", "fails")) -> Html:
    """Return a verdict that is told by sign and word as well as by colour."""
    sign, word, tone = ("✓", words[0], "good") if good else ("✗", words[1], "bad")
    return el("span", f"{sign} {word}", class_=tone)


def attempts(report: Report, *, timings: bool) -> Html:
    """Return the table of every mode that was tried; the chosen one is marked."""
    largest = max((a.model_bytes for a in report.attempts), default=0)
    head = ["mode", "verdict", "size", *(["median time"] if timings else []), "worst output", "why"]
    rows = [_attempt_row(report, attempt, largest, timings=timings) for attempt in report.attempts]
    return table("In the order they were tried", head, rows, numbers=(3,) if timings else ())


def _attempt_row(report: Report, attempt: Attempt, largest: int, *, timings: bool) -> list[str]:
    timed = [run.p50_us for run in attempt.targets if run.p50_us]
    groups = worst(attempt)
    chosen = attempt.quantize == report.chosen
    label = join([attempt.quantize, el("span", " ◆ chosen", class_="chosen") if chosen else ""])
    speed = [time(min(timed)) if timed else NONE] if timings else []
    return [label, _state(attempt), _bar(attempt.model_bytes, largest), *speed, _gate(groups), _why(attempt)]


def _bar(amount: int, largest: int) -> Html:
    if not amount:
        return text("no file")
    width = max(1, round(60 * amount / largest))
    return join([el("span", size(amount), class_="size"), el("span", class_="bar", style=f"width:{width}px")])


def _gate(groups: Sequence[Sequence[Worst]]) -> str:
    if not groups:
        return NONE
    gate = groups[0][0].gate
    return join([f"{metric(gate.metric)} {number(gate.value)}, ", name(gate.output)])


def _state(attempt: Attempt) -> Html:
    if attempt.state == "died":
        return el("span", "✗ died", class_="bad")
    return passed(attempt.state == "passed", ("passed", "refused"))


def _why(attempt: Attempt) -> Html:
    if len(attempt.reasons) <= 1 and all(len(reason) <= _LETTERS for reason in attempt.reasons):
        return text("".join(attempt.reasons) or NONE)
    return join([_short(attempt.reasons[0]), fold(count(len(attempt.reasons), "reason"), lines(attempt.reasons))])

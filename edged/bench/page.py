"""The page of a run: one HTML file that needs nothing else, no script, no network; it reads well on a phone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib import resources
from typing import Any

from edged.bench import knee_words, page_plots, table, verdict
from edged.bench.document import Doc
from edged.bench.figure import milliseconds, per_second
from edged.bench.markup import Html, el, facts, fold, join, lines, section
from edged.bench.markup import table as listed
from edged.shown import clipped, size

# Should markup ever slip through, the browser still runs no script and fetches nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
# So many runs have their plot over time at once; those of others are a click away.
_AT_ONCE = 2
# So much of a hash tells two models apart.
_SHA = 16
_HEAD = ("run", *table.HEAD[1:6], "P50 ms", "P90 ms", "P99 ms", "P99.9 ms", "max ms")


def document(title: str, *body: str) -> str:
    """Return a whole page."""
    style = resources.files("edged.bench").joinpath("page.css").read_text(encoding="utf-8")
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="generator", content="edged bench"),
        el("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("link", rel="icon", href="data:,"),
        el("title", title),
        el("style", Html(style)),
    )
    return "<!DOCTYPE html>\n" + el("html", head, el("body", *body), lang="en") + "\n"


def page(found: Doc) -> str:
    """Return the page of a run; the same document gives the same text."""
    runs = sorted(found["runs"], key=_place)
    found = found | {"runs": runs}
    rows = [[name, *table.row(run)[1:]] for name, run in zip(table.names(runs), runs, strict=True)]
    parts = [
        section("Runs", listed(_caption("Latency as the requester sees it", runs), _HEAD, rows), _few(runs)),
        section("Latency", _latency(found)),
        section("Over time", _over_time(runs) if len(runs) > 1 else ""),
        section("Where the time goes", _stages(runs)),
        section("Minute one and the last", _minutes(runs)),
        section("The device's process", _process(runs)),
        section("Was the generator on time?", _late(runs)),
        origin(found),
    ]
    return document(_title(found), _banner(found), el("main", *parts))


def _place(run: Doc) -> tuple[str, int, int, str, float]:
    """Return where a run stands: by its question, then by rate or number in flight, whenever it was tried."""
    load = run["load"]
    at = next((load[key] for key in ("rate", "concurrency", "every_s") if key in load), 0.0)
    # An open loop comes first.
    return run["model"], run["payload_bytes"], run["qos"], "" if load["kind"] == "open" else load["kind"], at


def _latency(found: Doc) -> Html:
    """Return latency by percentile, against the rate where there are several, over time where there is one."""
    runs, bound = found["runs"], _bound(found)
    named = list(zip(table.names(runs), runs, strict=True))
    lines = [(name, run["latency"]) for name, run in named]
    lines += [(f"{name}, back to back", run["followers"]) for name, run in named if run["followers"]]
    plots = [
        page_plots.by_percentile("latency by percentile", lines, bound),
        page_plots.against_rate(_alike(runs), bound),
        page_plots.against_flight(_alike(runs), bound),
        page_plots.over_time(runs[0], "over time") if len(runs) == 1 else "",
    ]
    return el("div", *plots, class_="charts") if any(plots) else Html()


def _bound(found: Doc) -> float | None:
    bound: float | None = found["knee"]["p99_bound_ms"] if found["knee"] else found.get("max_p99_ms")
    return bound


def _alike(runs: Sequence[Doc]) -> Sequence[Doc]:
    """Return the runs where they are of one question, so that one line can go through them."""
    return runs if len({(run["model"], run["payload_bytes"], run["qos"]) for run in runs}) == 1 else []


def _title(found: Doc) -> str:
    models = ", ".join(dict.fromkeys(clipped(run["model"]) for run in found["runs"]))
    return f"edged bench: {models} on {found['target'].get('device', 'a target')}"


def _banner(found: Doc) -> Html:
    wrong = found.get("failures", verdict.failures(found, None))
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(found["ts"]))
    runs = found["runs"]
    searched = [knee_words.tried(found["knee"])] if found["knee"] else []
    notes = [*wrong, *searched, *table.said(runs, lambda run: run["notes"])]
    tone = "refused" if wrong else "plain" if notes else "ships"
    heading = _verdict(found, wrong)
    cards = _cards(runs[0]) if len(runs) == 1 else Html()
    return el(
        "header",
        el("p", f"{_title(found)}, {when}", class_="eyebrow"),
        el("h1", heading),
        cards,
        lines(notes),
        class_=f"verdict {tone}",
    )


def _verdict(found: Doc, wrong: Sequence[str]) -> str:
    if found["knee"]:
        return f"Knee: {knee_words.headline(found['knee'])}"
    if wrong:
        return f"{len(wrong)} thing{'s' * (len(wrong) != 1)} went wrong"
    runs = found["runs"]
    worst = max((run["latency"]["p99_ms"] or 0.0 for run in runs), default=0.0)
    of = "P99" if len(runs) == 1 else f"Worst P99 of {len(runs)} runs"
    return f"{of} {milliseconds(worst)} ms, nothing missing"


def _caption(words: str, runs: Sequence[Doc]) -> str:
    same = table.common(runs)
    return f"{words}: {same}" if same else words


def _cards(run: Doc) -> Html:
    p50, _, p99, p999, largest = table.percentiles(run["latency"])
    pairs = [
        ("P50", f"{p50} ms"), ("P99", f"{p99} ms"), ("P99.9", f"{p999} ms"), ("longest", f"{largest} ms"),
        ("answers a second", per_second(run["ok_per_s"])), ("errors", f"{sum(run['errors'].values()):,}"),
        ("missing", f"{run['missing'] + run['unsent']:,} of {run['asked']:,}"),
    ]  # fmt: skip
    return el(
        "dl", *(el("div", el("dt", name), el("dd", value, class_="big")) for name, value in pairs), class_="cards"
    )


def _few(runs: Sequence[Doc]) -> Html:
    marked = any(table.FEW_MARK in cell for run in runs for cell in table.row(run)[6:])
    return el("p", f"{table.FEW_MARK} of fewer samples than that percentile needs", class_="note") if marked else Html()


def _over_time(runs: Sequence[Doc]) -> Html:
    plots = [page_plots.over_time(run, name) for run, name in zip(runs, table.names(runs), strict=True)]
    return _some([plot for plot in plots if plot], "more runs")


def _some(plots: Sequence[Html], more: str) -> Html:
    """Return the first plots, and behind a click the others."""
    rest = (
        [fold(f"{len(plots) - _AT_ONCE} {more}", el("div", *plots[_AT_ONCE:], class_="charts"))]
        if plots[_AT_ONCE:]
        else []
    )
    return join([el("div", *plots[:_AT_ONCE], class_="charts"), *rest]) if plots else Html()


def _stages(runs: Sequence[Doc]) -> Html:
    told = [run for run in runs if "stages" in run.get("stages", {})]
    why = [f"{run['label']}: {run['stages']['why_not']}" for run in runs if "why_not" in run.get("stages", {})]
    head = ("stage", "P50 ms", "P90 ms", "P99 ms", "P99.9 ms", "max ms", "mean ms")
    tables = [
        listed(
            f"{run['label']}: {run['stages']['requests']:,} requests inside the device",
            head,
            table.stage_rows(run["stages"]),
        )
        for run in told
    ]
    note = (
        el("p", "As the device counts, with the warm-up. Means add up, percentiles do not.", class_="note")
        if told
        else ""
    )
    shown = tables[0] if len(tables) == 1 else fold("Percentiles of every stage", *tables)
    return join([page_plots.stages(runs), note, shown, lines(why)])


def _minutes(runs: Sequence[Doc]) -> Html:
    told = [run for run in runs if run["minutes"]]
    rows = [
        [f"{_short(run, told)}{name} minute", f"{run['minutes'][key]['n']:,}", *table.percentiles(run["minutes"][key])]
        for run in told
        for key, name in (("first", "first"), ("last", "last"))
    ]
    return listed("Drift", ("", "n", *_HEAD[6:]), rows)


def _short(run: Doc, told: Sequence[Doc]) -> str:
    return f"{run['label']}, " if len(told) > 1 else ""


def _process(runs: Sequence[Doc]) -> Html:
    titles = [f"{name}: " if len(runs) > 1 else "" for name in table.names(runs)]
    plots = [plot for run, title in zip(runs, titles, strict=True) for plot in page_plots.process(run, title)]
    return _some(plots, "more plots")


def _late(runs: Sequence[Doc]) -> Html:
    told = [run for run in runs if run["load"]["kind"] == "open"]
    if not told:
        return Html()
    late = [run["late_sends"] for run in told]
    rows = [[name, f"{one['n']:,}", *table.percentiles(one)] for name, one in zip(table.names(told), late, strict=True)]
    note = el(
        "p",
        "How long after its time each request was sent. What is late here is this program's fault, not the device's.",
        class_="note",
    )
    return join([note, listed("Late sends", ("run", "n", *_HEAD[6:]), rows)])


def origin(found: Doc, title: str = "Where it was measured") -> Html:
    """Return the host, the device and the command."""
    target = found["target"]
    device = [(key, _word(value)) for key, value in target.items() if key != "models"]
    asked = {run["model"] for run in found["runs"]}
    models = [(f"model {name}", _model(body)) for name, body in target.get("models", {}).items() if name in asked]
    return section(
        title,
        el("p", el("code", found["command"])),
        facts([*((key, _fact(key, value)) for key, value in found["host"].items()), *device, *models]),
    )


def _fact(key: str, value: Any) -> str:
    return size(value) if key.endswith("_bytes") else _word(value)


def _word(value: Any) -> str:
    return "" if value is None else str(value)


def _model(body: Doc) -> str:
    keys = ("version", "runtime", "delegate", "scheduling", "state", "sha256")
    told = {key: clipped(str(body[key])) for key in keys if body.get(key) not in (None, "")}
    if "sha256" in told:
        told["sha256"] = told["sha256"][:_SHA]
    return ", ".join(f"{key} {value}" for key, value in told.items())

"""The pictures of a run."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median_low

from edged.bench.chart import RIGHT, Axis, Line, Point, linear, logarithmic, nines, plot
from edged.bench.document import Doc
from edged.bench.figure import milliseconds
from edged.bench.markup import Html, el, join
from edged.bench.table import names
from edged.latency import Histogram
from edged.request import STAGES

# How finely the axis of percentiles is gone through, points a nine.
_FINE = 24
# The unit of an axis of time, by how long it is: what is shorter than this many seconds, seconds in it, its name.
_UNITS = ((300.0, 1.0, "seconds"), (4 * 3600.0, 60.0, "minutes"), (math.inf, 3600.0, "hours"))
_MIB = 1024 * 1024
# The bars of stages: height, and the space for a name above each.
_BAR, _NAME = 18, 18


def by_percentile(title: str, named: Sequence[tuple[str, Doc]], bound: float | None = None) -> Html:
    """Return latency over the percentile, a line for each distribution that has samples."""
    found = [(name, Histogram.decode(told["histogram"])) for name, told in named if told["n"]]
    if not found:
        return Html()
    x = nines(max(histogram.count for _, histogram in found))
    lines = [Line(name, list(_percentiles(histogram))) for name, histogram in found]
    return plot(title, "percentile", "ms", x, _levels(lines, bound), lines, bound)


def _percentiles(histogram: Histogram) -> Iterator[Point]:
    """Yield (percentile, ms) as far as the samples reach."""
    reach = math.log10(max(histogram.count, 2))
    shares = [100 - 100 * 10.0 ** -(i / _FINE) for i in range(int(reach * _FINE) + 1)]
    for share, ns in zip([*shares, 100.0], histogram.percentiles([*shares, 100.0]), strict=True):
        if ns is not None:
            yield min(share, 100 - 100 * 10.0**-reach), ns / 1e6


def _levels(lines: Sequence[Line], bound: float | None = None) -> Axis:
    values = [value for line in lines for _, value in line.points if value > 0]
    values += [bound] if bound else []
    return logarithmic(min(values, default=0.1), max(values, default=1.0))


def over_time(run: Doc, name: str) -> Html:
    """Return P50, P99 and maximum over the time at which requests were due, and where answers failed.

    Nothing for a run of one piece of time.
    """
    told = [point for point in run["timeline"] if point["n"]]
    unit, word = _unit(run["seconds"])
    # A point stands in the middle of its piece of time.
    middle = run["slot_s"] / 2
    lines = [
        Line(name, [((point["at_s"] + middle) / unit, point[key]) for point in told])
        for name, key in (("P50", "p50_ms"), ("P99", "p99_ms"), ("max", "max_ms"))
    ]
    if len(told) < 2:  # noqa: PLR2004
        return Html()
    y = _levels(lines)
    bad = [((p["at_s"] + middle) / unit, y.high) for p in run["timeline"] if p["errors"] or p["missing"]]
    lines += [Line("errors or missing answers", bad, dots=True)] if bad else []
    x = linear(0.0, max(run["seconds"], run["slot_s"]) / unit)
    each = f"each {run['slot_s']:g} s" if run["slot_s"] != 1 else "each second"
    return plot(f"{name}: {each}", word, "ms", x, y, lines)


def _unit(seconds: float) -> tuple[float, str]:
    """Return how many seconds a unit of the axis of time has, and its name."""
    return next((unit, word) for most, unit, word in _UNITS if seconds <= most)


def against_rate(runs: Sequence[Doc], bound: float | None) -> Html:
    """Return P99 and P50 against the rate that was asked, in its order, where at least two rates were run."""
    return _against(runs, "rate", "latency by rate", "requests asked, a second", bound)


def against_flight(runs: Sequence[Doc], bound: float | None) -> Html:
    """Return P99 and P50 against the number in flight, where a closed loop was run with several."""
    return _against(runs, "concurrency", "latency by concurrency", "requests in flight", bound)


def _against(runs: Sequence[Doc], key: str, title: str, across: str, bound: float | None) -> Html:
    # By the value, not by the time it was tried; one that was tried again has the worst of its P99, its median P50.
    told = defaultdict(list)
    for run in runs:
        if run["latency"]["n"] and key in run["load"]:
            told[run["load"][key]].append(run["latency"])
    if len(told) < 2:  # noqa: PLR2004
        return Html()
    again = max(map(len, told.values())) > 1
    lines = [
        Line(
            f"{name}{f', {which} of each' * again}",
            [(at, pick(one[key] for one in told[at])) for at in sorted(told)],
            marks=True,
        )
        for name, key, which, pick in (("P99", "p99_ms", "the worst", max), ("P50", "p50_ms", "the middle", median_low))
    ]
    return plot(title, across, "ms", linear(min(told), max(told)), _levels(lines, bound), lines, bound)


def process(run: Doc, title: str) -> Iterator[Html]:
    """Yield the memory of the device's process over time, and its threads and descriptors. title: how theirs begin."""
    samples = run.get("process", {}).get("samples", [])
    unit, word = _unit(samples[-1]["at_s"] if samples else 0.0)
    told = [
        [(s["at_s"] / unit, s[key]) for s in samples if s.get(key) is not None]
        for key in ("rss_bytes", "threads", "descriptors")
    ]
    memory = [(at, value / _MIB) for at, value in told[0]]
    if len(memory) > 1:
        yield _over_run(f"{title}resident memory of the device", word, "MiB", [Line("RSS", memory)])
    counts = [
        Line(name, points) for name, points in zip(("threads", "descriptors"), told[1:], strict=True) if len(points) > 1
    ]
    if counts:
        yield _over_run(f"{title}threads and descriptors of the device", word, "", counts)


def _over_run(title: str, word: str, up: str, lines: Sequence[Line]) -> Html:
    values = [value for line in lines for _, value in line.points]
    last = max(at for line in lines for at, _ in line.points)
    y = linear(min(values), max(values))
    return plot(title, word, up, linear(0.0, last or 1.0), y, lines)


def stages(runs: Sequence[Doc]) -> Html:
    """Return a bar for each run that knows its stages: the mean time of each, and what is outside the device."""
    known = [run for run in runs if "stages" in run.get("stages", {})]
    told = [(name, parts) for name, run in _named(known) if (parts := list(_parts(run["stages"])))]
    if not told:
        return Html()
    longest = max(sum(value for _, value in parts) for _, parts in told)
    x, height = linear(0.0, longest), len(told) * (_BAR + _NAME) + 34
    bars = [piece for i, (label, parts) in enumerate(told) for piece in _bar(i, label, parts, x)]
    title = "mean time of a request by stage"
    bottom = height - 30
    marks = [
        join([el("line", class_="axis", x1=_across(v, x), x2=_across(v, x), y1=bottom, y2=bottom + 4),
              el("text", word, x=_across(v, x), y=bottom + 16, text_anchor="middle")])
        for v, word in x.marks
    ]  # fmt: skip
    axis = el("line", class_="axis", x1=8, x2=RIGHT, y1=bottom, y2=bottom)
    unit = el("text", "ms", x=RIGHT, y=height - 2, text_anchor="end")
    drawing = el("svg", el("title", title), *bars, axis, *marks, unit,
                 viewBox=f"0 0 360 {height}", role="img", aria_label=title)  # fmt: skip
    keys = [el("li", _swatch(i), name) for i, name in enumerate((*STAGES, "network + client"))]
    return el("figure", el("figcaption", title), drawing, el("ul", *keys, class_="legend"))


def _named(runs: Sequence[Doc]) -> Iterator[tuple[str, Doc]]:
    return zip(names(runs), runs, strict=True) if runs else iter(())


def _across(value: float, x: Axis) -> float:
    return 8 + (RIGHT - 8) * x.place(value)


def _parts(told: Doc) -> Iterator[tuple[str, float]]:
    for name in STAGES:
        mean = told["stages"][name]["mean_ms"]
        if mean:
            yield name, mean
    if told["rest_ms"]:
        yield "network + client", told["rest_ms"]


def _bar(row: int, label: str, parts: Sequence[tuple[str, float]], x: Axis) -> Iterator[Html]:
    top, begin = row * (_BAR + _NAME), 0.0
    order = (*STAGES, "network + client")
    yield el("text", f"{label}: {milliseconds(sum(value for _, value in parts))} ms", x=8, y=top + 13)
    for name, value in parts:
        left, right = _across(begin, x), _across(begin + value, x)
        said = el("title", f"{name}: {milliseconds(value)} ms")
        yield el(
            "rect",
            said,
            x=left,
            y=top + _NAME,
            width=max(right - left, 0.5),
            height=_BAR,
            class_=f"part p{order.index(name)}",
        )
        begin += value


def _swatch(number: int) -> Html:
    return el("svg", el("title", ""), el("rect", x=0, y=0, width=14, height=10, rx=2, class_=f"part p{number}"),
              viewBox="0 0 14 10", class_="key", aria_hidden="true")  # fmt: skip

"""Pictures of figures: how errors are spread, and what calibration saw. Plain SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from converters.gates import Gate
from converters.report import Attempt, Histogram, Report
from converters.reportpage_html import Html, el, name, section
from converters.reportpage_words import bound, count, number, percent
from converters.reportpage_worst import worst
from edged.bundle import InputRange, TensorSpec

# The plot's box inside the picture, in its own units; what is around it is for words.
_WIDTH, _HEIGHT = 340.0, 170.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 330.0, 14.0, 124.0
# Counts further apart than this are told on a logarithmic axis, so that single large errors are seen.
_SPREAD = 20


def errors(attempt: Attempt) -> Html:
    """Return a histogram of every output's errors, in the order of the outputs' trouble."""
    order = {group[0].gate.output: (i, [item.gate for item in group]) for i, group in enumerate(worst(attempt))}
    drawable = [h for h in attempt.histograms if h.counts and all(map(math.isfinite, h.edges))]
    drawable.sort(key=lambda h: (order.get(h.output, (len(order), []))[0], h.output))
    figures = [_histogram(h, order.get(h.output, (0, []))[1]) for h in drawable]
    if not figures:
        return Html()
    note = "Error is the converted model's value minus the SavedModel's, in the output's own units."
    return section("Errors, output by output", el("p", note), el("div", *figures, class_="charts"))


def _histogram(histogram: Histogram, gates: Sequence[Gate]) -> Html:
    total, tall = sum(histogram.counts), max(histogram.counts)
    small = min((c for c in histogram.counts if c), default=1)
    log = tall > _SPREAD * small
    limit = next((gate.threshold for gate in gates if gate.metric == "max_abs"), None)
    title = f"errors of output {histogram.output}: {number(histogram.edges[0])} to {number(histogram.edges[-1])}"
    drawing = el(
        "svg",
        el("title", title),
        *_bars(histogram, tall, log=log),
        *_limits(histogram.edges, limit),
        *_axes(histogram.edges, tall, log=log),
        viewBox=f"0 0 {_WIDTH:.0f} {_HEIGHT:.0f}", role="img", aria_label=title,
    )  # fmt: skip
    told = f" {count(total, 'value')}." + "".join(f" {bound(gate)}." for gate in gates)
    return el("figure", drawing, el("figcaption", name(histogram.output), f":{told}"))


def _x(value: float, low: float, high: float) -> float:
    return _LEFT + (_RIGHT - _LEFT) * ((value - low) / (high - low) if high > low else 0.5)


def _height(amount: int, tall: int, *, log: bool) -> float:
    if not tall:
        return 0.0
    share = math.log10(1 + amount) / math.log10(1 + tall) if log else amount / tall
    return (_BOTTOM - _TOP) * share


def _bars(histogram: Histogram, tall: int, *, log: bool) -> Iterator[Html]:
    low, high = histogram.edges[0], histogram.edges[-1]
    for i, amount in enumerate(histogram.counts):
        left, right = _x(histogram.edges[i], low, high), _x(histogram.edges[i + 1], low, high)
        height = _height(amount, tall, log=log)
        if amount:
            told = f"{number(histogram.edges[i])} to {number(histogram.edges[i + 1])}: {count(amount, 'value')}"
            place = {"x": left, "y": _BOTTOM - height, "width": max(1.0, right - left - 0.6), "height": height}
            yield el("rect", el("title", told), class_="column", **place)


def _limits(edges: Sequence[float], limit: float | None) -> Iterator[Html]:
    """Yield the largest error allowed, on either side, where it is inside the picture."""
    for value in () if limit is None else (-limit, limit):
        if edges[0] <= value <= edges[-1]:
            x = _x(value, edges[0], edges[-1])
            yield el("line", class_="limit", x1=x, x2=x, y1=_TOP - 4, y2=_BOTTOM)
            yield el("text", "limit", x=x, y=_TOP - 5, text_anchor="middle")


def _axes(edges: Sequence[float], tall: int, *, log: bool) -> Iterator[Html]:
    low, high = edges[0], edges[-1]
    yield el("line", class_="axis", x1=_LEFT, x2=_RIGHT, y1=_BOTTOM, y2=_BOTTOM)
    for value, anchor in _marks(low, high):
        x = _x(value, low, high)
        yield el("line", class_="axis", x1=x, x2=x, y1=_BOTTOM, y2=_BOTTOM + 4)
        yield el("text", number(value), x=x, y=_BOTTOM + 17, text_anchor=anchor)
    for amount in sorted({0, 10 ** (len(str(tall)) // 2), tall} if log else {0, tall}):
        y = _BOTTOM - _height(amount, tall, log=log)
        yield el("line", class_="axis", x1=_LEFT - 4, x2=_LEFT, y1=y, y2=y)
        yield el("text", _brief(amount), x=_LEFT - 7, y=y, text_anchor="end", dominant_baseline="central")
    middle = (_LEFT + _RIGHT) / 2
    yield el("text", "error (converted - float)", x=middle, y=_HEIGHT - 6, text_anchor="middle")
    across = "values (log scale)" if log else "values"
    yield el("text", across, x=_LEFT, y=_TOP - 5, text_anchor="start", class_="above")


def _marks(low: float, high: float) -> list[tuple[float, str]]:
    """Return the places that are written under the axis: both ends, and zero where it is clear of them."""
    if not high > low:
        return [(low, "middle")]
    zero = -low / (high - low)
    between = [(0.0, "middle")] if 0.2 < zero < 0.8 else []  # noqa: PLR2004  # a label's width
    return [(low, "start"), *between, (high, "end")]


def _brief(amount: int) -> str:
    for unit, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if amount >= unit:
            return f"{amount / unit:.3g}{letter}"
    return str(amount)


def calibration(report: Report) -> Html:
    """Return what calibration saw of every input, beside what the file's input can hold."""
    seen = report.calibration
    if not seen.ranges:
        return Html()
    facts = report.shown.facts
    specs = {} if facts is None else {spec.name: spec for spec in facts.inputs}
    figures = [_range(r, specs.get(r.input), report.outside.get(r.input)) for r in seen.ranges]
    told = f"{count(seen.samples, 'sample')} of {seen.source}."
    return section("Calibration", el("p", told), el("div", *figures, class_="charts"))


def _range(seen: InputRange, spec: TensorSpec | None, outside: float | None) -> Html:
    holds = _holds(spec)
    words = [f"seen {number(seen.minimum)} to {number(seen.maximum)}"]
    words += [f"{spec.dtype} holds {number(holds[0])} to {number(holds[1])}"] if spec and holds else []
    words += [f"{percent(outside)} of the evaluation's samples go outside"] if outside is not None else []
    bars = [("seen", seen.minimum, seen.maximum)]
    bars += [("holds", *holds)] if holds else []
    title = f"range of input {seen.input}: {words[0]}"
    drawing = el(
        "svg", el("title", title), *_spans(bars), viewBox=f"0 0 {_WIDTH:.0f} {18 * len(bars) + 24}",
        role="img", aria_label=title,
    )  # fmt: skip
    return el("figure", drawing, el("figcaption", name(seen.input), f": {'; '.join(words)}."))


def _holds(spec: TensorSpec | None) -> tuple[float, float] | None:
    """Return the real values that the ends of a quantized input stand for: scale · (q - zero point)."""
    limits = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}
    if spec is None or not spec.scale or spec.dtype not in limits:
        return None
    low, high = limits[spec.dtype]
    return spec.scale * (low - spec.zero_point), spec.scale * (high - spec.zero_point)


def _spans(bars: Sequence[tuple[str, float, float]]) -> Iterator[Html]:
    """Yield one bar a row on a common axis that has zero on it."""
    low, high = min(0.0, *(bar[1] for bar in bars)), max(0.0, *(bar[2] for bar in bars))
    bottom = 18 * len(bars) + 4
    for i, (word, start, end) in enumerate(bars):
        left, right, y = _x(start, low, high), _x(end, low, high), 18 * i + 3
        yield el("rect", class_=f"span-{word}", x=left, y=y, width=max(2.0, right - left), height=12, rx=2)
        yield el("text", word, x=_LEFT - 7, y=y + 6, text_anchor="end", dominant_baseline="central")
    yield el("line", class_="axis", x1=_LEFT, x2=_RIGHT, y1=bottom, y2=bottom)
    marks = dict(_marks(low, high)) | {0.0: "middle"}
    for value, anchor in sorted(marks.items()):
        x = _x(value, low, high)
        yield el("line", class_="axis", x1=x, x2=x, y1=bottom - 3, y2=bottom + 3)
        yield el("text", number(value), x=x, y=bottom + 16, text_anchor=anchor)

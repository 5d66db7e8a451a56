"""Lines on two axes, as plain SVG with a text beside it for who sees no picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from edged.bench.markup import Html, el

# The plot's box inside the picture, in its own units: about the pixels of a phone, so that its words can be read there.
WIDTH, HEIGHT = 360.0, 232.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 350.0, 22.0, 190.0
# As many lines can be told apart; of more a plot says how many it shows.
MOST_LINES = 6
_TICKS = 5
_MOST_DECADES = 6
_MOST_MARKS = 7

Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """A scale from `low` to `high` with marks. place: value → 0..1."""

    low: float
    high: float
    marks: Sequence[tuple[float, str]]
    place: Callable[[float], float]


@dataclass(frozen=True)
class Line:
    """A line with its name. dots: single points instead of a line; marks: a dot at each point as well."""

    name: str
    points: Sequence[Point]
    dots: bool = False
    marks: bool = False


def linear(low: float, high: float) -> Axis:
    """Return a linear scale that ends at round numbers, at zero where that is near."""
    low = 0.0 if low > 0 and low < high / 2 else low
    step = _step((high - low) or abs(high) or 1.0)
    low, high = math.floor(low / step) * step, math.ceil(high / step - 1e-9) * step
    high = high if high > low else low + step
    count = round((high - low) / step)
    marks = [(low + i * step, brief(low + i * step)) for i in range(count + 1)]
    return Axis(low, high, marks, lambda value: (value - low) / (high - low))


def _step(span: float) -> float:
    power = 10.0 ** math.floor(math.log10(span / _TICKS))
    return next(power * unit for unit in (1, 2, 5, 10) if power * unit >= span / _TICKS * 0.999)


def logarithmic(low: float, high: float) -> Axis:
    """Return a logarithmic scale that ends at 1, 2 or 5 of a decade, with marks there where there are not too many."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    last = max(last, first + 1)
    ticks = [10.0**power * unit for power in range(first, last) for unit in (1, 2, 5)] + [10.0**last]
    below = [tick for tick in ticks if tick <= low * 1.001]
    above = [tick for tick in ticks if tick >= high * 0.999]
    bottom, top = below[-1], above[0] if above[0] > below[-1] else ticks[ticks.index(above[0]) + 1]
    inside = [tick for tick in ticks if bottom <= tick <= top]
    decades = [tick for tick in inside if brief(math.log10(tick)).lstrip("-").isdigit()]
    marks = [(tick, brief(tick)) for tick in (inside if len(inside) <= _MOST_MARKS else decades)]
    start, span = math.log10(bottom), math.log10(top / bottom)
    return Axis(bottom, top, marks, lambda value: (math.log10(max(value, bottom)) - start) / span)


def nines(count: int) -> Axis:
    """Return the axis of percentiles, as far as `count` samples reach: each further 9 is as wide as the one before."""
    last = min(max(2, math.ceil(math.log10(max(count, 2)))), _MOST_DECADES)
    names = ["0", "90", "99", "99.9", "99.99", "99.999", "99.9999"]
    # The middle lies between 0 and 90 where the scale puts it.
    marks = [(0.0, "0"), (50.0, "50"), *((100 - 100 * 10.0**-i, names[i]) for i in range(1, last + 1))]
    return Axis(0.0, 100.0, marks, lambda value: min(-math.log10(max(1 - value / 100, 10.0**-last)) / last, 1.0))


def brief(value: float) -> str:
    """Return a number in few characters."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= unit:
            return f"{value / (1e3 if letter == 'k' else unit):g}{letter}"
    return f"{value:.4g}"


def plot(title: str, across: str, up: str, x: Axis, y: Axis, lines: Sequence[Line], bound: float | None = None) -> Html:
    """Return a figure: the drawing, and a legend that names what is drawn. bound: a level that is drawn in.

    Of more lines than can be told apart the first, the last and some evenly between are drawn.
    """
    shown = _spread(lines)
    drawn = [part for i, line in enumerate(shown) for part in _line(i, line, x, y)]
    drawing = el(
        "svg", el("title", title), *_axes(x, y, across, up), *_bound(bound, y), *drawn,
        viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}", role="img", aria_label=title,
    )  # fmt: skip
    more = f" ({len(shown)} of {len(lines)} are drawn, see below)" if len(lines) > len(shown) else ""
    keys = [el("li", _key(i, line), line.name) for i, line in enumerate(shown)]
    return el("figure", el("figcaption", title + more), drawing, el("ul", *keys, class_="legend"))


def _spread(lines: Sequence[Line]) -> Sequence[Line]:
    if len(lines) <= MOST_LINES:
        return lines
    return [lines[round(i * (len(lines) - 1) / (MOST_LINES - 1))] for i in range(MOST_LINES)]


def _at(point: Point, x: Axis, y: Axis) -> Point:
    across, up = x.place(point[0]), y.place(point[1])
    return LEFT + (RIGHT - LEFT) * min(max(across, 0.0), 1.0), BOTTOM - (BOTTOM - TOP) * min(max(up, 0.0), 1.0)


def _line(number: int, line: Line, x: Axis, y: Axis) -> Iterator[Html]:
    places = [_at(point, x, y) for point in line.points]
    if not line.dots and len(places) > 1:
        path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
        yield el("path", d=path, class_=f"line s{number}")
    if line.dots or line.marks or len(places) == 1:
        for place in places:
            yield el("circle", cx=place[0], cy=place[1], r=2.4, class_=f"dot s{number}")


def _key(number: int, line: Line) -> Html:
    dot = [el("circle", cx=12, cy=5, r=3, class_=f"dot s{number}")] if line.dots or line.marks else []
    path = [] if line.dots else [el("path", d="M0 5L24 5", class_=f"line s{number}")]
    return el("svg", el("title", ""), *path, *dot, viewBox="0 0 24 10", class_="key", aria_hidden="true")


def _axes(x: Axis, y: Axis, across: str, up: str) -> Iterator[Html]:
    for value, word in y.marks:
        level = _at((x.low, value), x, y)[1]
        yield el("line", class_="grid", x1=LEFT, x2=RIGHT, y1=level, y2=level)
        yield el("text", word, x=LEFT - 6, y=level, text_anchor="end", dominant_baseline="central")
    yield el("line", class_="axis", x1=LEFT, x2=RIGHT, y1=BOTTOM, y2=BOTTOM)
    for value, word in x.marks:
        place = _at((value, y.low), x, y)[0]
        yield el("line", class_="axis", x1=place, x2=place, y1=BOTTOM, y2=BOTTOM + 4)
        yield el("text", word, x=place, y=BOTTOM + 16, text_anchor="middle")
    yield el("text", across, x=(LEFT + RIGHT) / 2, y=HEIGHT - 8, text_anchor="middle")
    yield el("text", up, x=4, y=TOP - 9)


def _bound(bound: float | None, y: Axis) -> Iterator[Html]:
    if bound is not None and y.low <= bound <= y.high:
        level = BOTTOM - (BOTTOM - TOP) * y.place(bound)
        yield el("line", class_="bound", x1=LEFT, x2=RIGHT, y1=level, y2=level)
        yield el("text", "bound", x=RIGHT, y=level - 4, text_anchor="end")

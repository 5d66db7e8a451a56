"""The picture of the graph: every op in the order of execution, its dtype, and what each delegate takes of it.

A strip shows the whole graph at once, the table under it names the ops. A dtype is told by letter and height as well
as by colour: the taller, the more bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from converters.report import Attempt
from converters.reportpage_html import Html, el, fold, join, name, section
from converters.reportpage_words import NONE, TIMES, count, takes
from edged.engines.tflite_coverage import Coverage
from edged.engines.tflite_nodes import Node
from edged.engines.tflite_partitions import CPU, UNTOLD

# kind → (letters, what it means, height of its bar as a share)
_KINDS = {
    "int8": ("8", "int8: whole numbers of 8 bits", 0.4),
    "int16": ("16", "int16: activations of 16 bits", 0.55),
    "hybrid": ("H", "hybrid: int8 weights, float activations", 0.75),
    "float": ("F", "float", 1.0),
    "other": ("·", "other: shapes, indices, conversions", 0.3),
}
_STRIP, _LANE = 44, 24
# A strip's share below which a letter or a number would not fit in, on a phone.
_LETTER, _NUMBER = 4.0, 5.0
_ROWS = 48
# A table of more rows than this is one touch away.
_SEEN = 24


@dataclass(frozen=True)
class _Run:
    """Ops in a row of the same kind that the same partitions take. taken: a partition's number for every delegate."""

    nodes: tuple[Node, ...]
    taken: tuple[int, ...]

    @property
    def kind(self) -> str:
        return self.nodes[0].kind

    @property
    def places(self) -> str:
        first, last = self.nodes[0].index, self.nodes[-1].index
        return str(first) if first == last else f"{first}{NONE}{last}"


def picture(attempt: Attempt) -> Html:
    """Return the section; nothing when the file's ops are not known."""
    nodes = () if attempt.facts is None else attempt.facts.nodes
    if not nodes:
        return Html()
    # A delegate that takes nothing has no partitions; it is shown beside the others all the same.
    lanes = [c for c in attempt.coverage if len(c.partition) in (0, len(nodes))]
    lanes.sort(key=lambda lane: lane.how != "measured")
    # The table has room for what was measured; the strip above it shows the documented ones as well.
    measured = [lane for lane in lanes if lane.how == "measured" and lane.partition]
    listed = _list(_runs(nodes, measured), measured)
    return section("The graph", el("p", _words(nodes, lanes)), _legend(nodes), _strip(nodes, lanes), listed)


def _words(nodes: Sequence[Node], lanes: Sequence[Coverage]) -> str:
    kinds = Counter(node.kind for node in nodes)
    told = ", ".join(f"{amount} {kind}" for kind, amount in sorted(kinds.items(), key=lambda item: (-item[1], item[0])))
    marked = " Brackets mark what a delegate takes; what has the same number is one partition." if lanes else ""
    return f"{count(len(nodes), 'op')} in the order they run: {told}.{marked}"


def _legend(nodes: Sequence[Node]) -> Html:
    kinds = {node.kind for node in nodes}
    return el("ul", *(_key(kind) for kind in _KINDS if kind in kinds), class_="legend")


def _key(kind: str) -> Html:
    return el("li", badge(kind), f" {_KINDS[kind][1]}")


def badge(kind: str) -> Html:
    """Return a kind's letter on its colour."""
    return el("span", _KINDS[kind][0], class_=f"badge k-{kind}")


def _runs(nodes: Sequence[Node], lanes: Sequence[Coverage]) -> list[_Run]:
    """Return rows of equal ops; of a long graph rows of equal kind, whatever the ops are."""
    taken = [tuple(lane.partition[i] for lane in lanes) for i in range(len(nodes))]
    pairs = list(zip(nodes, taken, strict=True))
    close = _grouped(pairs, by_op=True)
    return close if len(close) <= _ROWS else _grouped(pairs, by_op=False)


def _grouped(pairs: Sequence[tuple[Node, tuple[int, ...]]], *, by_op: bool) -> list[_Run]:
    def alike(pair: tuple[Node, tuple[int, ...]]) -> tuple[object, ...]:
        node, taken = pair
        return (node.kind, taken, node.op, node.version) if by_op else (node.kind, taken)

    groups = [list(group) for _, group in groupby(pairs, alike)]
    return [_Run(tuple(node for node, _ in group), group[0][1]) for group in groups]


def _strip(nodes: Sequence[Node], lanes: Sequence[Coverage]) -> Html:
    """Return the overview. Positions are in percent, so that it fills any width and its letters stay letters.

    What is measured is seen at once; what documents tell is one touch away.
    """
    runs = _grouped([(node, ()) for node in nodes], by_op=False)
    starts = accumulate((len(run.nodes) for run in runs), initial=0)
    parts = [_block(run, start, len(nodes)) for run, start in zip(runs, starts, strict=False)]
    title = f"dtypes of {count(len(nodes), 'op')} in the order they run"
    ends = el("p", el("span", "first op"), el("span", "last op"), class_="ends")
    seen = [_lane(lane) for lane in lanes if lane.how == "measured"]
    told = [_lane(lane) for lane in lanes if lane.how != "measured"]
    by_table = fold(f"{count(len(told), 'delegate')} by their documents, each an upper bound", *told)
    return el("div", _svg(title, _STRIP, join(parts)), *seen, ends, by_table, class_="strip")


def _lane(lane: Coverage) -> Html:
    what = f"{lane.name} {_taken(lane)}, {lane.how}"
    drawn = "" if _unknown(lane) else _svg(what, _LANE, join(_brackets(lane)))
    return join([el("p", what, class_="lane"), drawn])


def _taken(lane: Coverage) -> str:
    if _unknown(lane):
        return lane.reason
    pieces = f" in {count(lane.partitions, 'partition')}" if lane.partitions else ""
    return f"takes {takes(lane)}{pieces}" + (f" ({lane.reason})" if lane.reason else "")


def _unknown(lane: Coverage) -> bool:
    """Whether it is not known what the delegate takes, or its runtime does not run the file: no CPU takes the rest."""
    return not takes(lane) or (lane.how == "measured" and bool(lane.reason))


def _svg(title: str, height: int, content: Html) -> Html:
    return el("svg", el("title", title), content, width="100%", height=height, role="img", aria_label=title)


def _block(run: _Run, start: int, total: int) -> Html:
    x, width = 100 * start / total, 100 * len(run.nodes) / total
    letters, _, share = _KINDS[run.kind]
    height = _STRIP * share
    place: dict[str, str | float] = {"x": f"{x:.2f}%", "y": _STRIP - height, "width": f"{width:.2f}%", "height": height}
    parts = [el("rect", el("title", f"ops {run.places}: {run.kind}"), class_=f"k-{run.kind}", **place)]
    if width >= _LETTER:
        middle: dict[str, str | float] = {
            "x": f"{x + width / 2:.2f}%",
            "y": _STRIP - height / 2,
            "class_": f"t-{run.kind}",
        }
        parts.append(el("text", letters, dominant_baseline="central", text_anchor="middle", **middle))
    return join(parts)


def _brackets(lane: Coverage) -> Iterator[Html]:
    """Yield a bracket for each stretch of ops of one partition; what no partition takes stays a thin line (the CPU).

    What nothing is told of stays empty.
    """
    partition = lane.partition or (CPU,) * lane.total
    total, start = len(partition), 0
    for number, group in groupby(partition):
        length = len(list(group))
        x, width = 100 * start / total, 100 * length / total
        start += length
        if number == UNTOLD:
            continue
        if number == CPU:
            yield el("line", class_="cpu", x1=f"{x:.2f}%", x2=f"{x + width:.2f}%", y1=_LANE / 2, y2=_LANE / 2)
            continue
        yield el("rect", class_=f"taken {lane.how}", x=f"{x:.2f}%", width=f"{width:.2f}%", y=2, height=_LANE - 4, rx=3)
        if width >= _NUMBER:
            place: dict[str, str | float] = {"x": f"{x + width / 2:.2f}%", "y": _LANE / 2, "class_": "t-taken"}
            yield el("text", f"P{number}", dominant_baseline="central", text_anchor="middle", **place)


def _list(runs: Sequence[_Run], lanes: Sequence[Coverage]) -> Html:
    head = el("tr", *(el("th", word, scope="col") for word in ("op", "dtype", "what", *(lane.name for lane in lanes))))
    rows = [_list_row(runs, i, lanes) for i in range(len(runs))]
    title, long = "Ops in the order they run", len(rows) > _SEEN
    hint = " (the list scrolls)" if long else ""
    caption = el("caption", title, el("span", hint, class_="hint"))
    table = el(
        "div",
        el("table", caption, el("thead", head), el("tbody", *rows), class_="ops"),
        class_="scroll tall" if long else "scroll", tabindex=0, role="region", aria_label=title + hint,
    )  # fmt: skip
    return fold(f"{title}: {count(len(rows), 'row')}", table) if long else table


def _list_row(runs: Sequence[_Run], row: int, lanes: Sequence[Coverage]) -> Html:
    run = runs[row]
    cells = [el("th", run.places, scope="row"), el("td", badge(run.kind), f" {run.kind}"), el("td", _ops(run))]
    return el("tr", *cells, *(_lane_cell(runs, row, i, lane) for i, lane in enumerate(lanes)))


def _lane_cell(runs: Sequence[_Run], row: int, lane: int, coverage: Coverage) -> Html:
    """Return the cell of a partition at its first row, as tall as the partition; the rows below it need none."""
    number = runs[row].taken[lane]
    if row and runs[row - 1].taken[lane] == number:
        return Html()
    after = next((i for i in range(row, len(runs)) if runs[i].taken[lane] != number), len(runs))
    span = after - row
    if number in (CPU, UNTOLD):
        return el("td", "CPU" if number == CPU else "not told", rowspan=span, class_="lane-cpu")
    return el(
        "td",
        el("span", f"P{number}"),
        rowspan=span,
        class_="lane-taken",
        title=f"{coverage.name}, partition {number}",
    )


def _ops(run: _Run) -> Html:
    """Return what the ops are, equal ones counted, in the order they first come; a single one with its output."""
    if len(run.nodes) == 1:
        node = run.nodes[0]
        output = el("span", " → ", name(node.tensor), class_="output") if node.tensor else ""
        return join([_op(node), output])
    amounts = Counter((node.op, node.version, node.custom) for node in run.nodes)
    first = {(node.op, node.version, node.custom): node for node in reversed(run.nodes)}
    told = [join([_op(first[key]), f" {TIMES}{amount}" if amount > 1 else ""]) for key, amount in amounts.items()]
    return join(part for i, each in enumerate(told) for part in ([", "] if i else []) + [each])


def _op(node: Node) -> Html:
    return join([name(node.op), el("span", f" v{node.version}", class_="version"), " (custom)" if node.custom else ""])

"""Building HTML so that nothing from a model can become markup: text is escaped, only what is built here is not."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from converters.reportpage_words import NONE
from edged.shown import plain

_BREAKS = re.compile(r"\s")
# So many columns fit a phone, so many a desk.
_FEW, _MANY = 3, 11
# Elements that have no content and no end tag.
_VOID = frozenset({"meta", "link", "br"})


class Html(str):
    """Markup that was built here."""

    __slots__ = ()


def text(value: str) -> Html:
    """Return text as markup: line ends are spaces, control and direction characters are left out, the rest escaped."""
    return Html(html.escape(plain(_BREAKS.sub(" ", value)), quote=True))


def join(parts: Iterable[str]) -> Html:
    """Return the parts one after the other; what is not markup yet is escaped."""
    return Html("".join(part if isinstance(part, Html) else text(part) for part in parts))


def el(tag: str, *children: str, **attributes: str | float) -> Html:
    """Return one element. `class_` is the attribute class, `_` in a name is `-`; every value is escaped.

    Numbers are written with at most 2 decimals, so that a picture is the same on every machine.
    """
    pairs = "".join(f' {_attribute(name)}="{_value(value)}"' for name, value in attributes.items())
    return Html(f"<{tag}{pairs}>" if tag in _VOID else f"<{tag}{pairs}>{join(children)}</{tag}>")


def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _value(value: str | float) -> Html:
    return text(value) if isinstance(value, str) else Html(f"{value:.2f}".rstrip("0").rstrip("."))


def name(value: str) -> Html:
    """Return a name from a model, kept apart from the direction of the text around it."""
    return el("bdi", plain(value) or "(no name)", class_="name")


def section(title: str, *children: str) -> Html:
    """Return a part of the page under a heading; nothing when there is nothing to show."""
    content = join(children)
    return el("section", el("h2", title), content) if content else Html()


def lines(items: Sequence[str]) -> Html:
    """Return a list, one item a line; nothing for none."""
    return el("ul", *(el("li", item) for item in items)) if items else Html()


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = (),
          stacked: bool = False) -> Html:  # fmt: skip
    """Return a table in a box of its own that scrolls sideways; nothing when it has no rows.

    numbers: the columns that are set flush right. The first cell of a row names it. Where the screen is too narrow a
    row becomes a block: stacked, with a line for each cell, for tables whose last column holds sentences; else its
    cells follow each other like words. A table of few columns fits as it is.
    """
    if not rows:
        return Html()
    # Keyboards must reach what scrolls.
    shape = "stacked" if stacked else "flow" if len(head) > _FEW else ""
    kept = {"class_": shape} if shape else {}
    top = el("tr", *(el("th", cell, scope="col", **_number(i in numbers)) for i, cell in enumerate(head)))
    body = el("tbody", *(_row(row, head, numbers) for row in rows))
    return el(
        "div", el("table", el("caption", caption), el("thead", top), body, **kept),
        class_="scroll broad" if len(head) > _MANY else "scroll", tabindex=0, role="region", aria_label=caption,
    )  # fmt: skip


def _number(right: bool) -> dict[str, str]:
    return {"class_": "number"} if right else {}


def _row(cells: Sequence[str], head: Sequence[str], numbers: Sequence[int]) -> Html:
    first = el("th", cells[0], scope="row", **_number(0 in numbers))
    rest = (_cell(cell, head[i], right=i in numbers) for i, cell in enumerate(cells) if i)
    return el("tr", first, *rest)


def _cell(cell: str, label: str, *, right: bool) -> Html:
    classes = [*(["number"] if right else []), *(["none"] if cell == NONE else [])]
    kept = {"class_": " ".join(classes)} if classes else {}
    return el("td", cell, data_label=label, **kept)


def fold(summary: str, *children: str) -> Html:
    """Return what is shown on a click; nothing when there is nothing inside."""
    content = join(children)
    return el("details", el("summary", summary), content) if content else Html()


def folded(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = (),
           first: int = 8, stacked: bool = False) -> Html:  # fmt: skip
    """Return a table whose rows after the `first` are folded, so that a long one does not push the page away."""
    if len(rows) <= first + 2:
        return table(caption, head, rows, numbers=numbers, stacked=stacked)
    rest = rows[first:]
    top = table(f"{caption}: {first} of {len(rows)}", head, rows[:first], numbers=numbers, stacked=stacked)
    below = table(f"{caption}: the rest", head, rest, numbers=numbers, stacked=stacked)
    return join([top, fold(f"{len(rest)} more rows", below)])


def passed(good: bool, words: tuple[str, str] = ("passes", "fails")) -> Html:
    """Return a verdict that is told by sign and word as well as by colour."""
    sign, word, tone = ("✓", words[0], "good") if good else ("✗", words[1], "bad")
    return el("span", f"{sign} {word}", class_=tone)

"""HTML built so that no name from outside can become markup: text is escaped, only what is built here is not."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from edged.shown import plain

_SPACE = re.compile(r"\s")
_VOID = ("meta", "link")


class Html(str):
    """Markup that was built here."""

    __slots__ = ()


def _escaped(value: str) -> str:
    return value if isinstance(value, Html) else html.escape(plain(_SPACE.sub(" ", value)))


def join(parts: Iterable[str]) -> Html:
    """Return the parts one after the other; what is no markup yet is escaped."""
    return Html("".join(map(_escaped, parts)))


def el(tag: str, *children: str, **attributes: str | float) -> Html:
    """Return an element. `class_` is the attribute class, `_` in a name is `-`; numbers have at most 2 decimals."""
    pairs = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_escaped(value) if isinstance(value, str) else _number(value)}"'
        for name, value in attributes.items()
    )
    return Html(f"<{tag}{pairs}>" if tag in _VOID else f"<{tag}{pairs}>{join(children)}</{tag}>")


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def section(title: str, *children: str) -> Html:
    """Return a part of the page under a heading; nothing when there is nothing to show."""
    content = join(children)
    return el("section", el("h2", title), content) if content else Html()


def lines(items: Sequence[str]) -> Html:
    """Return a list; nothing for none."""
    return el("ul", *(el("li", item) for item in items)) if items else Html()


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Html:
    """Return a table: the first cell names a row, the others are flush right; nothing when it has no rows.

    On a narrow screen a row becomes a block, where each cell says its column.
    """
    if not rows:
        return Html()
    top = el("tr", *(el("th", cell, scope="col") for cell in head))
    body = el("tbody", *(el("tr", *_cells(row, head)) for row in rows))
    return el("div", el("table", el("caption", caption), el("thead", top), body), class_="scroll")


def _cells(row: Sequence[str], head: Sequence[str]) -> Iterable[Html]:
    yield el("th", row[0], scope="row")
    yield from (el("td", cell, data_label=label) for cell, label in zip(row[1:], head[1:], strict=True))


def facts(pairs: Iterable[tuple[str, str]]) -> Html:
    """Return names with their values, without the empty ones."""
    return el("dl", *(join([el("dt", name), el("dd", value)]) for name, value in pairs if value), class_="facts")


def fold(summary: str, *children: str) -> Html:
    """Return what is shown on a click; nothing when there is nothing inside."""
    content = join(children)
    return el("details", el("summary", summary), content) if content else Html()

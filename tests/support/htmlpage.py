"""A page as another HTML parser reads it; tags that are not closed, or in the wrong order, fail the test."""

from __future__ import annotations

from html.parser import HTMLParser

_VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """A page as another parser reads it. elements: (tag, attributes, text inside), in the order they open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self._open: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {[e[0] for e in self._open]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element: tuple[str, dict[str, str | None], list[str]] = (tag, dict(attrs), [])
        self.elements.append(element)
        if tag not in _VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element[2].append(data)

    def all(self, tag: str, class_: str = "") -> list[tuple[dict[str, str | None], str]]:
        """Every element of a tag and, where given, of a class: (attributes, text)."""
        return [
            (attributes, "".join(text))
            for found, attributes, text in self.elements
            if found == tag and class_ in ["", *(attributes.get("class") or "").split()]
        ]

    @property
    def text(self) -> str:
        return "".join(next(text for tag, _, text in self.elements if tag == "body"))

"""YAML text to frozen dataclasses; every problem at once, each with its line.

The subset is the one a person reads as it looks. Only `true` and `false` are booleans (`on`, `off`, `yes`, `no` are
text), `1e-3` is a number, `0777`, `12:30:00` and dates are text, as in YAML 1.2's core schema with fewer surprises.
A key given twice is an error. Anchors, aliases, tags and further documents are refused: a configuration needs none,
and an alias can blow up a short text into a huge value. Nesting is bounded. All keys are text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import yaml

from edged import schema
from edged.errors import ConfigError
from edged.schema import Problem

T = TypeVar("T")

MAX_DEPTH = 50

# The C parser is the faster one; PyYAML built without libyaml has only the other.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
# 30 digits are more than any quantity; int() itself refuses thousands of them.
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,29})")
_HEX = re.compile(r"0x[0-9a-fA-F]{1,16}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]{1,99}|[0-9]{1,99}(?:\.[0-9]{0,99})?)(?:[eE][-+]?[0-9]{1,3})?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_SPECIAL = {".inf": float("inf"), "-.inf": float("-inf"), ".nan": float("nan")}
_LAST = re.compile(r"(?:\.|^)[\w-]+$|\[[0-9]+\]$")


@dataclass(frozen=True)
class Located:
    """A problem and its line (from 1)."""

    line: int
    problem: Problem

    def __str__(self) -> str:
        where = "" if self.problem.path == schema.ROOT else f"{self.problem.path}: "
        return f"{self.line}: {where}{self.problem.message}"


class InvalidConfigError(ConfigError):
    """Every problem of one configuration; `str()` has a line `source:line: path: message` for each."""

    def __init__(self, source: str, problems: Sequence[Located]) -> None:
        self.problems = tuple(problems)
        super().__init__(source, "\n".join(map(str, problems)))
        self.args = ("\n".join(f"{source}:{problem}" for problem in problems),)


@dataclass(frozen=True)
class Document:
    """Plain values of a YAML text.

    lines: path → line (from 1). problems: what YAML itself got wrong. refused: paths whose value says nothing, so that
    nobody complains of it a second time.
    """

    value: object
    lines: Mapping[str, int]
    problems: tuple[Located, ...]
    refused: frozenset[str]

    def locate(self, problem: Problem) -> Located:
        """Give a problem the line of its path, or of the nearest thing above it."""
        path = problem.path
        while path not in self.lines and (shorter := _LAST.sub("", path)) != path:
            path = shorter
        return Located(self.lines.get(path, 1), problem)


def load(text: str, cls: type[T], source: str = "<config>") -> T:
    """Build `cls` (a dataclass) from YAML text; raises InvalidConfigError. An empty text counts as an empty mapping."""
    document = parse(text, source)
    built, wrong = schema.build(cls, {} if document.value is None else document.value)
    problems = [*document.problems, *(document.locate(p) for p in wrong if p.path not in document.refused)]
    if built is None or problems:
        raise InvalidConfigError(source, sorted(problems, key=lambda problem: problem.line))
    return built


def parse(text: str, source: str = "<config>") -> Document:
    """Parse one YAML document into plain values; raises InvalidConfigError when it cannot be parsed at all."""
    try:
        text.encode()
        return _Reader(yaml.parse(text, Loader=_LOADER)).document()
    except UnicodeEncodeError as exc:
        line = text.count("\n", 0, exc.start) + 1
        raise InvalidConfigError(source, [Located(line, Problem(schema.ROOT, "not valid Unicode"))]) from exc
    except yaml.YAMLError as exc:
        raise InvalidConfigError(source, [_syntax(exc, text)]) from exc
    except _TooDeepError as exc:
        message = f"nested more than {MAX_DEPTH} levels deep"
        raise InvalidConfigError(source, [Located(exc.line, Problem(schema.ROOT, message))]) from exc


def scalar(text: str) -> object:
    """Return the value of an unquoted YAML scalar: None, bool, int, float or the text itself."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return int(text)
    if _HEX.fullmatch(text):
        return int(text, 16)
    if _FLOAT.fullmatch(text) and not _LEADING_ZERO.fullmatch(text):
        return float(text)
    return _SPECIAL.get(text.lower(), text)


class _TooDeepError(Exception):
    def __init__(self, line: int) -> None:
        self.line = line
        super().__init__()


class _Reader:
    """Turns parser events into plain values."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._lines: dict[str, int] = {}
        self._problems: list[Located] = []
        self._refused: set[str] = set()
        self._depth = 0

    def document(self) -> Document:
        value: object = None
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents == 1:
                    value = self._node(next(self._events), "")
                else:
                    self._complain(event, "", "only one document is read: remove the '---'")
        return Document(value, self._lines, tuple(self._problems), frozenset(self._refused))

    def _complain(self, event: Any, path: str, message: str) -> None:
        self._problems.append(Located(event.start_mark.line + 1, Problem(path or schema.ROOT, message)))

    def _refuse(self, event: Any, path: str, message: str) -> None:
        self._complain(event, path, message)
        self._refused.add(path or schema.ROOT)

    def _node(self, event: Any, path: str) -> object:
        self._lines.setdefault(path, event.start_mark.line + 1)
        if event.anchor is not None:
            self._refuse(event, path, "anchors (&) and aliases (*) are not supported: write the value out")
        if isinstance(event, yaml.AliasEvent):
            return None
        if event.tag is not None:
            self._refuse(event, path, "tags (!) are not supported: remove it")
        if isinstance(event, yaml.ScalarEvent):
            return scalar(event.value) if event.implicit[0] else event.value
        return self._collection(event, path)

    def _collection(self, event: Any, path: str) -> object:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _TooDeepError(event.start_mark.line + 1)
        value = self._sequence(path) if isinstance(event, yaml.SequenceStartEvent) else self._mapping(path)
        self._depth -= 1
        return value

    def _sequence(self, path: str) -> list[object]:
        items: list[object] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, schema.join(path, len(items))))
        return items

    def _mapping(self, path: str) -> dict[str, object]:
        items: dict[str, object] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            line = event.start_mark.line + 1
            if not isinstance(event, yaml.ScalarEvent):
                self._refuse(event, path, "a key must be plain text")
                self._skip(event)
                self._skip(next(self._events))
                continue
            key, where = event.value, schema.join(path, event.value)
            if key in items:
                self._complain(event, where, f"key is given twice, first in line {self._lines[where]}")
                self._skip(next(self._events))
                continue
            self._lines[where] = line
            items[key] = self._node(next(self._events), where)
        return items

    def _skip(self, event: Any) -> None:
        """Pass over the node that `event` begins."""
        depth = int(isinstance(event, yaml.CollectionStartEvent))
        while depth:
            event = next(self._events)
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)


def _syntax(exc: yaml.YAMLError, text: str) -> Located:
    """Return the parser's complaint; a reader's error has a position instead of a mark."""
    mark = getattr(exc, "problem_mark", None) or getattr(exc, "context_mark", None)
    position = getattr(exc, "position", None)
    line = mark.line + 1 if mark is not None else text.count("\n", 0, position or 0) + 1
    what = getattr(exc, "problem", None) or getattr(exc, "reason", None) or "cannot be parsed"
    return Located(line, Problem(schema.ROOT, f"not valid YAML: {what}"))

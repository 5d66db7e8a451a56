"""Plain values (dict, list, scalars) to frozen dataclasses, collecting every problem instead of raising at the first.

One builder for everything a person or a file hands in: configuration (from YAML) and `bundle.json`. Types understood:
nested dataclasses, `tuple[T, ...]`, `Mapping[str, T]`, `Literal`, int, float, str, bool, Path, `Any`, unions with `|`,
and `Annotated[T, …]` whose extras are checks (see edged.checks) or a `Reads`.
Strict: a bool is no int, text is no number, NaN and Inf are no numbers; only an int is taken for a float.

A dataclass may bring rules of its own:
    problems(self) -> Iterable[Problem]                relations between its fields; called when all of them are right
    raw_problems(value) -> Iterable[Problem]           a staticmethod on the plain mapping; called in any case
    REFUSED: ClassVar[Mapping[str, str]]               unknown keys with a reason of their own
Paths in those problems are relative to the dataclass.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union

from edged.checks import Reads, at_least, at_most, hint, show

__all__ = ["ROOT", "Problem", "at_least", "at_most", "build", "hint", "join", "name", "show", "unique_pairs"]

T = TypeVar("T")

ROOT = "$"
_BAD = object()
_PLAIN_KEY = re.compile(r"[\w-]+")
_NAMES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    Path: "a path",
    type(None): "nothing",
}


@dataclass(frozen=True)
class Problem:
    """What is wrong, and where: `path` reads like `models[0].queue.overflow`."""

    path: str
    message: str


def build(cls: type[T], value: object) -> tuple[T | None, list[Problem]]:
    """Build `cls` (a dataclass) from plain values; returns (None, every problem) when any part is wrong."""
    problems: list[Problem] = []
    built = _value(cls, value, "", problems)
    return (None if problems else typing.cast("T", built)), problems


def unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Serve as `object_pairs_hook` of json.loads; raises ValueError naming a key given twice."""
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            msg = f"key {key!r} is given twice"
            raise ValueError(msg)
        result[key] = value
    return result


def join(path: str, key: str | int) -> str:
    """Return the path of `key` (or of a list's element) below `path`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not _PLAIN_KEY.fullmatch(key):
        return f"{path}[{key!r}]"
    return f"{path}.{key}" if path else key


def _value(tp: Any, value: object, path: str, problems: list[Problem]) -> Any:
    """Return the built value, or `_BAD` after adding at least one problem."""
    if dataclasses.is_dataclass(tp):
        return _dataclass(tp, value, path, problems)
    builder = _BY_ORIGIN.get(typing.get_origin(tp), _scalar)
    return builder(tp, value, path, problems)


def _wrong(path: str, message: str, problems: list[Problem]) -> Any:
    problems.append(Problem(path or ROOT, message))
    return _BAD


def _expected(tp: Any, value: object, path: str, problems: list[Problem]) -> Any:
    advice = ""
    if tp is str and isinstance(value, (int, float)):
        advice = " (put it in quotes)"
    elif value is None:
        advice = " (leave the key out for its default)"
    return _wrong(path, f"expected {name(tp)}, got {show(value)}{advice}", problems)


def name(tp: Any) -> str:
    """Return a type as an error line says it."""
    origin = typing.get_origin(tp)
    if origin is Annotated:
        return name(typing.get_args(tp)[0])
    if origin is Literal:
        return " or ".join(map(str, typing.get_args(tp)))
    if origin is tuple:
        return "a list"
    return _NAMES.get(tp, "a mapping")


def _scalar(tp: Any, value: object, path: str, problems: list[Problem]) -> Any:
    if tp is Any:
        return value
    if tp is float and type(value) is int:
        return _finite(value, path, problems)
    if tp is Path and isinstance(value, str) and value and "\0" not in value:
        return Path(value)
    if type(value) is not tp:
        return _expected(tp, value, path, problems)
    return _finite(value, path, problems) if tp is float else value


def _finite(value: Any, path: str, problems: list[Problem]) -> Any:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    return number if math.isfinite(number) else _wrong(path, "must be a finite number", problems)


def _annotated(tp: Any, value: object, path: str, problems: list[Problem]) -> Any:
    inner, *extras = typing.get_args(tp)
    for extra in extras:
        if isinstance(extra, Reads):
            try:
                value = extra.read(value)
            except ValueError as exc:
                return _wrong(path, str(exc), problems)
    built = _value(inner, value, path, problems)
    if built is _BAD:
        return _BAD
    messages = [message for extra in extras if callable(extra) and (message := extra(built))]
    for message in messages:
        _wrong(path, message, problems)
    return _BAD if messages else built


def _literal(tp: Any, value: object, path: str, problems: list[Problem]) -> Any:
    choices = typing.get_args(tp)
    if any(type(value) is type(choice) and value == choice for choice in choices):
        return value
    names = [str(choice) for choice in choices]
    advice = hint(value, names) if isinstance(value, str) else ""
    one_of = "one of " if len(names) > 1 else ""
    return _wrong(path, f"expected {one_of}{', '.join(names)}, got {show(value)}{advice}", problems)


def _union(tp: Any, value: object, path: str, problems: list[Problem]) -> Any:
    """Build the first arm that takes the value; where none does, tell of the arm that has the value's shape."""
    arms = typing.get_args(tp)
    if value is None and type(None) in arms:
        return None
    arms = tuple(arm for arm in arms if arm is not type(None))
    tried: list[list[Problem]] = []
    for arm in arms:
        tried.append([])
        built = _value(arm, value, path, tried[-1])
        if built is not _BAD:
            return built
    shaped = [found for arm, found in zip(arms, tried, strict=True) if len(arms) == 1 or _same_shape(arm, value)]
    if len(shaped) == 1:
        problems.extend(shaped[0])
        return _BAD
    *others, last = map(name, arms)
    return _wrong(path, f"expected {', '.join(others)} or {last}, got {show(value)}", problems)


def _same_shape(arm: Any, value: object) -> bool:
    shape = name(arm)
    return (shape == "a list" and isinstance(value, list)) or (shape == "a mapping" and isinstance(value, Mapping))


def _list(tp: Any, value: object, path: str, problems: list[Problem]) -> Any:
    if not isinstance(value, (list, tuple)):
        return _expected(tp, value, path, problems)
    item = typing.get_args(tp)[0]
    built = tuple(_value(item, element, join(path, i), problems) for i, element in enumerate(value))
    return _BAD if _BAD in built else built


def _mapping(tp: Any, value: object, path: str, problems: list[Problem]) -> Any:
    if not isinstance(value, Mapping):
        return _expected(tp, value, path, problems)
    item = typing.get_args(tp)[1]
    built = {str(key): _value(item, element, join(path, str(key)), problems) for key, element in value.items()}
    return _BAD if any(element is _BAD for element in built.values()) else built


@cache
def _fields(cls: Any) -> dict[str, tuple[Any, bool]]:
    """Return name → (type, required) of a dataclass."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {
        f.name: (hints[f.name], f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING)
        for f in dataclasses.fields(cls)
        if f.init
    }


def _dataclass(cls: Any, value: object, path: str, problems: list[Problem]) -> Any:
    if isinstance(value, cls):
        return value
    if not isinstance(value, Mapping):
        return _expected(cls, value, path, problems)
    before = len(problems)
    fields = _fields(cls)
    built = {}
    for key, element in value.items():
        if key in fields:
            built[key] = _value(fields[key][0], element, join(path, key), problems)
        else:
            _unknown(cls, str(key), fields, path, problems)
    for key, (_, required) in fields.items():
        if required and key not in value:
            _wrong(join(path, key), "required key is missing", problems)
    _add(getattr(cls, "raw_problems", None), value, path, problems)
    if len(problems) > before:
        return _BAD
    made = cls(**built)
    _add(getattr(cls, "problems", None), made, path, problems)
    return made if len(problems) == before else _BAD


def _unknown(cls: Any, key: str, fields: Iterable[str], path: str, problems: list[Problem]) -> None:
    reason = getattr(cls, "REFUSED", {}).get(key)
    _wrong(join(path, key), reason or f"unknown key{hint(key, fields)}", problems)


def _add(rule: Callable[[Any], Iterable[Problem]] | None, subject: object, path: str, problems: list[Problem]) -> None:
    if rule is not None:
        problems.extend(Problem(_below(path, p.path), p.message) for p in rule(subject))


def _below(path: str, relative: str) -> str:
    if relative in ("", ROOT):
        return path or ROOT
    return f"{path}{relative}" if relative.startswith("[") or not path else f"{path}.{relative}"


_BY_ORIGIN: dict[Any, Callable[[Any, object, str, list[Problem]], Any]] = {
    Annotated: _annotated,
    Union: _union,
    types.UnionType: _union,
    Literal: _literal,
    tuple: _list,
    Mapping: _mapping,
}

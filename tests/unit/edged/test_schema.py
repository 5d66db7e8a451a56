"""The builder: right values in, exact objects out; wrong values in, every problem out, and never an exception."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged import checks, schema
from edged.schema import Problem


@dataclass(frozen=True)
class Inner:
    size: Annotated[int, schema.at_least(1), schema.at_most(9)] = 3
    mode: Literal["fast", "slow", "off"] = "fast"


@dataclass(frozen=True)
class Outer:
    REFUSED: ClassVar[Mapping[str, str]] = {"secret": "no secrets here"}

    name: str
    ratio: float = 0.5
    on: bool = False
    level: Literal[0, 1] = 0
    inner: Inner = Inner()
    inners: tuple[Inner, ...] = ()
    by_name: Mapping[str, Inner] = field(default_factory=dict)
    anything: Any = None
    maybe: Annotated[int, schema.at_least(0)] | None = None
    choice: Literal["auto"] | tuple[str, ...] | Inner = "auto"
    file: Path | None = None
    bytes: Annotated[int, checks.byte_size, schema.at_least(1)] = 1
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Span:
    low: int
    high: int

    def problems(self) -> list[Problem]:
        return [Problem("high", "must not be below low")] if self.high < self.low else []

    @staticmethod
    def raw_problems(value: Mapping[str, Any]) -> list[Problem]:
        return [Problem("", "low is never 13")] if value.get("low") == 13 else []


@dataclass(frozen=True)
class Spans:
    spans: tuple[Span, ...]


def problems(cls: type, value: object) -> dict[str, str]:
    """Path → message; the object must be None exactly when there is one."""
    built, found = schema.build(cls, value)
    assert (built is None) == bool(found)
    return {problem.path: problem.message for problem in found}


def test_every_supported_type_is_built() -> None:
    """One value of each type comes out as Python means it, with lists as tuples and nested dataclasses as objects."""
    built, found = schema.build(
        Outer,
        {
            "name": "n", "ratio": 2, "on": True, "level": 1, "inner": {"size": 4}, "inners": [{}, {"mode": "off"}],
            "by_name": {"a": {"size": 1}}, "anything": [{"x": 1}], "maybe": 7, "choice": ["a", "b"], "file": "a/b",
            "bytes": "1.5KiB", "extra": {"k": [1]},
        },
    )  # fmt: skip
    assert found == []
    assert built == Outer(
        "n", 2.0, True, 1, Inner(4), (Inner(), Inner(mode="off")), {"a": Inner(1)}, [{"x": 1}], 7, ("a", "b"),
        Path("a/b"), 1536, {"k": [1]},
    )  # fmt: skip
    assert type(built.ratio) is float


def test_defaults_fill_what_is_left_out() -> None:
    """Plain defaults, default factories and dataclass instances as defaults are all honoured."""
    assert schema.build(Outer, {"name": "n"}) == (Outer("n"), [])


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("name", 5, "expected text, got 5 (put it in quotes)"),
        ("name", None, "expected text, got nothing (leave the key out for its default)"),
        ("ratio", True, "expected a number, got true"),
        ("ratio", "0.5", "expected a number, got '0.5'"),
        ("ratio", float("nan"), "must be a finite number"),
        ("ratio", float("inf"), "must be a finite number"),
        ("ratio", 10**400, "must be a finite number"),
        ("on", 1, "expected true or false, got 1"),
        ("level", True, "expected one of 0, 1, got true"),
        ("level", 2, "expected one of 0, 1, got 2"),
        ("level", 1.0, "expected one of 0, 1, got 1.0"),
        ("inner", [], "expected a mapping, got a list"),
        ("inners", {}, "expected a list, got a mapping"),
        ("inners", "ab", "expected a list, got 'ab'"),
        ("maybe", -1, "must be at least 0, got -1"),
        ("maybe", "x", "expected a whole number, got 'x'"),
        ("maybe", 1.0, "expected a whole number, got 1.0"),
        ("choice", "gpu", "expected auto, a list or a mapping, got 'gpu'"),
        ("file", "", "expected a path, got ''"),
        ("file", "a\0b", "expected a path, got 'a\\x00b'"),
        ("bytes", "64M", "expected a size in bytes such as 64MiB, 10kB or 4096, got '64M'"),
        ("bytes", True, "expected a size in bytes such as 64MiB, 10kB or 4096, got true"),
        ("bytes", 0, "must be at least 1, got 0"),
        ("extra", 3, "expected a mapping, got 3"),
        ("secret", "hunter2", "no secrets here"),
    ],
)
def test_one_wrong_value_is_one_problem(key: str, value: object, message: str) -> None:
    """Each type refuses what is not its own, in words, at the right path."""
    assert problems(Outer, {"name": "n", key: value}) == {key: message}


def test_all_problems_come_at_once_with_their_paths() -> None:
    """A wrong value at every depth, an unknown key and a missing one are told together."""
    value = {"inners": [{}, {"size": 0, "mode": "fats"}], "by_name": {"a b": {"size": 10}}, "ratoi": 1, "choice": [1]}
    assert problems(Outer, value) == {
        "inners[1].size": "must be at least 1, got 0",
        "inners[1].mode": "expected one of fast, slow, off, got 'fats' (did you mean 'fast'?)",
        "by_name['a b'].size": "must be at most 9, got 10",
        "ratoi": "unknown key (did you mean 'ratio'?)",
        "choice[0]": "expected text, got 1 (put it in quotes)",
        "name": "required key is missing",
    }


def test_a_union_tells_of_the_arm_that_has_the_shape() -> None:
    """A mapping handed to `auto | list | mapping` is judged as the mapping, key by key."""
    assert problems(Outer, {"name": "n", "choice": {"size": 0}}) == {"choice.size": "must be at least 1, got 0"}


def test_the_top_must_be_a_mapping() -> None:
    """The root has a path of its own."""
    assert problems(Outer, [1]) == {"$": "expected a mapping, got a list"}


def test_rules_of_a_dataclass_are_asked_with_relative_paths() -> None:
    """`problems` runs on a whole object, `raw_problems` on the plain value in any case; both are placed below it."""
    value = {"spans": [{"low": 1, "high": 0}, {"low": 13}, {"low": 1, "high": 2}]}
    built, found = schema.build(Spans, value)
    assert built is None
    assert found == [
        Problem("spans[0].high", "must not be below low"),
        Problem("spans[1].high", "required key is missing"),
        Problem("spans[1]", "low is never 13"),
    ]


def test_a_url_with_credentials_is_never_shown() -> None:
    """A value in the wrong place is echoed, but not the credentials inside a URL, nor anything long."""
    (message,) = problems(Outer, {"name": "n", "inner": "mqtt://user:p@ss/w0rd@host"}).values()
    assert "host" in message
    assert "user" not in message
    assert "w0rd" not in message
    (message,) = problems(Outer, {"name": "n", "inner": "x" * 5000}).values()
    assert len(message) < 200


def test_a_key_given_twice_in_json_is_refused() -> None:
    """`unique_pairs` makes json.loads refuse what it would silently overwrite."""
    with pytest.raises(ValueError, match="'a' is given twice"):
        json.loads('{"a": 1, "a": 2}', object_pairs_hook=schema.unique_pairs)
    assert json.loads('{"a": {"b": 1}}', object_pairs_hook=schema.unique_pairs) == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("text", "count"),
    [("4096B", 4096), ("10kB", 10_000), ("64MiB", 67_108_864), ("1 GiB", 2**30), ("0.5MB", 500_000), (7, 7)],
)
def test_byte_sizes(text: object, count: int) -> None:
    """Decimal units are powers of 1000, binary ones of 1024."""
    assert checks.byte_size.read(text) == count


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["name", "ratio", "on", "level", "inner", "inners", "by_name", "choice", "file", "bytes", "size"]
)


@given(st.dictionaries(KEYS, PLAIN | st.dictionaries(KEYS, PLAIN)) | PLAIN)
def test_any_plain_value_is_built_or_told_of(value: object) -> None:
    """Whatever comes in, the answer is an object or a list of problems, each on one line and with a path."""
    built, found = schema.build(Outer, value)
    assert (built is None) == bool(found)
    assert all(p.path and p.message and "\n" not in p.path + p.message for p in found)
